"""Gates about the rollout engine: does it sample from the policy that is trained, now and after updates?"""

from __future__ import annotations

from rlforge_cli.checks.check import Finding, skip
from rlforge_cli.checks.evidence import Evidence

KL_EXACT, KL_ROUNDED = 1e-3, 1e-2
"""Largest kl_sampling: float32 agrees to 1e-9 here; bfloat16 kernels of two programs to about 1e-3."""
MEAN_EXACT, MEAN_ROUNDED = 5e-3, 5e-2
"""Largest mean |difference| of log-probabilities, in nats."""
LARGEST = 1.0
RATIO_EXACT, RATIO_ROUNDED = 1e-3, 5e-2
FOLLOWS = 0.5
MOVED_OVER_NOISE = 2.0


def sleep_wake(evidence: Evidence) -> Finding:
    """The engine's memory is given to the update and taken back in every step."""
    rollout, probe = evidence.config.rollout, evidence.probes.sleep
    if rollout.engine == "hf":
        return skip("the hf engine never sleeps: it works on the policy's own weights")
    if not rollout.sleep:
        return skip("rollout.sleep is off")
    if probe is None:
        return skip(evidence.missing)
    if probe.changed:
        return Finding(
            "fail", probe.changed, "= 0",
            f"after sleep level {probe.level} and a sync of the same weights, {probe.changed} of {probe.prompts} "
            "prompts get other greedy tokens: the engine woke with other weights or buffers",
            "--set rollout.sleep=false, or another version of the engine",
        )  # fmt: skip
    why = f"sleep level {probe.level}: {probe.prompts} prompts get the same greedy tokens before and after"
    return Finding("pass", 0, "= 0", why)


def engine_agreement(evidence: Evidence) -> Finding:
    """Before any update, so that only tokens, temperature and arithmetic can differ."""
    limit = KL_EXACT if evidence.exact else KL_ROUNDED
    mean_limit = MEAN_EXACT if evidence.exact else MEAN_ROUNDED
    probe = evidence.probes.agreement
    if probe is not None:
        kl, mean, largest = probe.kl, probe.mean, probe.largest
        about = f"mean |Δ log p| {mean:.2g}, largest {largest:.2g}, kl {kl:.2g} over {probe.tokens} tokens"
    else:
        first, worst = evidence.series("kl_sampling")[:1], evidence.series("sampling_diff_max")[:1]
        if not first or not worst:
            return skip(evidence.missing)
        kl, mean, largest = first[0], 0.0, worst[0]
        about = f"kl_sampling {kl:.2g}, largest |Δ log p| {largest:.2g} in step 1"
    threshold = f"<= {limit:g}"
    temperature = evidence.config.rollout.temperature
    why = f"engine and trainer at temperature {temperature:g}: {about}"
    if abs(kl) > limit or mean > mean_limit:
        if evidence.config.rollout.top_p < 1 or evidence.config.rollout.top_k:
            return Finding(
                "warn", round(kl, 9), threshold, f"{why}; top_p/top_k make the engine alone renormalise",
                "--set top_p=1 top_k=0",
            )  # fmt: skip
        return Finding(
            "fail", round(kl, 9), threshold, f"{why}: they disagree before any update",
            "the same temperature on both sides (it divides logits), the same token ids, the same precision",
        )  # fmt: skip
    if largest > LARGEST:
        return Finding("warn", round(kl, 9), threshold, f"{why}; single tokens are off by more than {LARGEST:g} nat")
    return Finding("pass", round(kl, 9), threshold, why)


def ratio(evidence: Evidence) -> Finding:
    """On policy the probability ratio is 1 whatever the batch shape is."""
    limit = RATIO_EXACT if evidence.exact else RATIO_ROUNDED
    logged = evidence.series("ratio_mean")[:1] if evidence.config.grpo.updates == 1 else []
    gap = evidence.probes.padding_gap
    if gap is None and not logged:
        return skip(evidence.missing)
    off = max(abs(logged[0] - 1) if logged else 0.0, gap or 0.0)
    why = f"ratio {logged[0]:.6f} on the first update" if logged else "first update"
    if gap is not None:
        why += f"; log-probabilities change by at most {gap:.2g} with the batch shape"
    if off > limit:
        return Finding(
            "fail", round(off, 9), f"<= {limit:g}", f"{why}: it should be 1 before the weights move",
            "old and current log-probabilities need the same weights, tokens and temperature; dropout breaks it",
        )  # fmt: skip
    return Finding("pass", round(off, 9), f"<= {limit:g}", why)


def engine_weights(evidence: Evidence) -> Finding:
    """After the updates, so that an engine that kept its first weights shows."""
    probe = evidence.probes.movement
    if probe is None:
        return skip(evidence.missing)
    fix = "sync_weights must reach the engine after every update, and its prefix cache must be emptied after that"
    if probe.checksum_moved is False:
        return Finding(
            "fail", "unchanged", "changed", "the engine's checksum of its weights did not change in training", fix
        )
    if probe.identical:
        return Finding(
            "fail", "identical", "differ", "the engine repeats its first completions to the last digit although the "
            "policy's weights changed: it still has the old ones", fix,
        )  # fmt: skip
    if probe.moved == 0:
        return skip("the policy did not move")
    if probe.slope is None or probe.moved is None or probe.slope_se is None:
        return Finding(
            "pass", "moved", "differ", "completions changed with the weights (no reference to measure how far)"
        )
    noise = evidence.probes.agreement.rms if evidence.probes.agreement else 0.0
    why = (
        f"of the policy's movement ({probe.moved:.2g} nat rms a token) {100 * probe.slope:.1f} % reached the engine's "
        "log-probabilities"
    )
    if probe.moved <= MOVED_OVER_NOISE * noise or probe.slope_se > 0.1:
        return Finding("skip", round(probe.slope, 4), "", f"the policy moved too little to tell from rounding; {why}")
    if probe.slope < FOLLOWS:
        return Finding("fail", round(probe.slope, 4), f">= {FOLLOWS}", f"{why}: it samples from stale weights", fix)
    return Finding("pass", round(probe.slope, 4), f">= {FOLLOWS}", why)


def engine_drift(evidence: Evidence) -> Finding:
    """The same bound as at the start, over the last steps."""
    values = evidence.series("kl_sampling")
    if len(values) < 2:
        return skip("fewer than two steps were logged")
    limit = KL_EXACT if evidence.exact else KL_ROUNDED
    last = max(values[-5:])
    why = f"kl_sampling {values[0]:.2g} at first, at most {last:.2g} in the last {len(values[-5:])} steps"
    if last <= limit:
        return Finding("pass", round(last, 9), f"<= {limit:g}", why)
    if evidence.config.rollout.top_p < 1 or evidence.config.rollout.top_k:
        return Finding("warn", round(last, 9), f"<= {limit:g}", f"{why}; top_p/top_k make the engine renormalise")
    return Finding(
        "fail", round(last, 9), f"<= {limit:g}", f"{why}: engine and trainer drift apart",
        "the engine lags behind the weights, or its precision does not do for them",
    )  # fmt: skip
