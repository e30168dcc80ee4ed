"""Gates about learning: is there a signal, does it reach the weights, is the step the right size, does reward hold?"""

from __future__ import annotations

import math
import statistics

from rlforge_cli.checks.check import Finding, skip
from rlforge_cli.checks.evidence import Evidence
from rlforge_cli.checks.token_gates import EARLY
from rlforge_cli.stats import wilson
from rlforge_cli.stats.distributions import two_sided_p

DEAD_WARN, DEAD_FAIL = 0.25, 0.5
SIZES = (4, 8, 16, 32, 64)
MOVED_WARN, MOVED_FAIL = 0.25, 0.5
"""Nats a token between the start and the policy after twenty steps. Healthy runs measured 0.01 to 0.1; at 0.5 the
policy has become another model before it could learn."""
ADV_FAIL = 0.3
CLUSTER = 3
"""Completions of one problem succeed together: that many of them tell as much as one."""
CHANGED_FAIL, CHANGED_WARN = 0.05, 0.5
"""Share of weights that an update changes: pure bfloat16 at lr 1e-6 gives 0.02."""
FALL_ALPHA = 0.005


def live_share(success: float, group_size: int) -> float:
    """1 - p^G - (1 - p)^G: how many groups hold both a right and a wrong answer when every problem has the same p."""
    return 1 - success**group_size - (1 - success) ** group_size


def proposed_group_size(success: float) -> int | None:
    """The smallest usual G with which half of the groups would live by correctness alone."""
    return next((size for size in SIZES if live_share(success, size) >= 0.5), None)


def zero_std_fraction(evidence: Evidence) -> Finding:
    """Measured on the reward's spread under the untrained policy; a sure excess is a fault, an unsure one a warning."""
    probe, config = evidence.probes.groups, evidence.config.rollout
    if probe is not None:
        dead, groups, success = probe.dead, probe.groups, probe.success
    else:
        fractions, counts = evidence.series("zero_std_fraction")[:EARLY], evidence.series("groups_generated")[:EARLY]
        if not fractions or len(counts) != len(fractions):
            return skip("no steps were logged")
        groups = round(sum(counts))
        dead = round(sum(f * n for f, n in zip(fractions, counts, strict=True)))
        success = statistics.fmean(evidence.series("accuracy")[:EARLY] or [0.0])
    if groups <= 0:
        return skip("no group of completions was logged")
    share = dead / groups
    why = f"{dead} of {groups} groups have no reward spread at G = {config.group_size} (success rate {success:.2f})"
    size = proposed_group_size(success)
    larger = f"--set G={size}, or " if size and size > config.group_size else ""
    fix = f"{larger}problems nearer to a success rate of one half (data.difficulty), or a denser reward"
    if wilson(dead, groups)[0] > DEAD_FAIL:
        return Finding("fail", round(share, 4), f"<= {DEAD_FAIL}", f"{why}: most of the rollout teaches nothing", fix)
    if share > DEAD_WARN:
        return Finding("warn", round(share, 4), f"<= {DEAD_WARN}", why, fix)
    return Finding("pass", round(share, 4), f"<= {DEAD_WARN}", why)


def live_by_correctness(evidence: Evidence) -> Finding:
    """Advice: what G could give if every problem were equally hard."""
    probe = evidence.probes.groups
    if probe is None:
        return skip(evidence.missing)
    live = live_share(probe.success, probe.group_size)
    sure = probe.groups * probe.group_size // CLUSTER
    likely = live_share(min(0.5, wilson(round(probe.success * sure), sure)[1]), probe.group_size)
    size = proposed_group_size(probe.success)
    why = f"1 - p^G - (1-p)^G = {live:.2f} at success rate {probe.success:.3f} and G = {probe.group_size}"
    if likely < 0.5:
        return Finding(
            "warn", round(live, 4), ">= 0.5", f"{why}: few groups hold both a right and a wrong answer",
            f"--set G={size}" if size else "no usual G does: easier problems (data.difficulty) or a warmer start",
        )  # fmt: skip
    return Finding("pass", round(live, 4), ">= 0.5", why)


def lora_updates(evidence: Evidence) -> Finding:
    if evidence.config.model.adaptation == "full":
        return skip("all parameters are trained: there is no adapter")
    probe = evidence.probes.adapters
    if probe is None:
        return skip(evidence.missing)
    changed = probe.total - len(probe.unmoved)
    why = f"{changed} of {probe.total} LoRA B matrices are non-zero after two updates"
    if probe.unmoved or not probe.total:
        return Finding(
            "fail", changed, f"= {probe.total}", f"{why}; still zero: {', '.join(probe.unmoved[:3]) or 'none found'}",
            "their gradient does not arrive: requires_grad, and input gradients under gradient checkpointing",
        )  # fmt: skip
    return Finding("pass", changed, f"= {probe.total}", why)


def gradient(evidence: Evidence) -> Finding:
    """On the first step that had a signal."""
    if evidence.probes.gradient_path is False:
        return Finding(
            "fail", 0, "> 0, finite", "the loss does not depend on any trainable weight",
            "under gradient checkpointing a frozen embedding cuts the graph: enable input gradients",
        )  # fmt: skip
    live = next((r for r in evidence.records if r.get("groups_kept") and r.get("adv_std") != 0), None)
    if live is None:
        return skip("no step had a group with reward spread")
    norm, lost = live.get("grad_norm"), live.get("_nonfinite", [])
    if norm is None or not math.isfinite(norm):
        return Finding(
            "fail", None, "> 0, finite",
            f"the gradient of step {live['step']} is not finite ({', '.join(lost) or 'grad_norm'})",
            "model.dtype=float32, a smaller optimizer.lr, and look at the reward for NaN",
        )  # fmt: skip
    why = (
        f"norm {norm:.3g} in step {live['step']}; a loss of 0 is normal there: on policy the ratio is 1 and a group's "
        "advantages sum to 0, their gradient does not"
    )
    if norm == 0:
        return Finding(
            "fail", 0.0, "> 0, finite", "the gradient is exactly 0 although groups have reward spread",
            "the loss does not reach the trained weights: requires_grad, the mask, a detached log-probability",
        )  # fmt: skip
    return Finding("pass", round(norm, 6), "> 0, finite", why)


def weights_changed(evidence: Evidence) -> Finding:
    """The best of the first updates: a warm-up's first one is small. Of float32 masters where there are any, for there
    small steps add up, whatever one of them shows in the stored weights."""
    updates = [r for r in evidence.records if not r.get("skipped") and r.get("adv_std") != 0]
    masters, stored = (
        [float(r[name]) for r in updates if isinstance(r.get(name), (int, float))][:EARLY]
        for name in ("masters_changed_fraction", "weights_changed_fraction")
    )
    if not masters and not stored:
        return skip("no update was logged")
    share = max(masters or stored)
    of = "float32 masters" if masters else "trained weights, as stored"
    why = f"an update changes {100 * share:.1f} % of the {of}"
    if masters and stored:
        why += f", {100 * max(stored):.1f} % of the stored weights at once"
    if share < CHANGED_FAIL:
        return Finding(
            "fail", round(share, 4), f">= {CHANGED_FAIL}", f"{why}: training silently does nothing",
            "keep float32 masters of bfloat16 weights; or nothing is trainable where the gradient is",
        )  # fmt: skip
    if share < CHANGED_WARN:
        return Finding(
            "warn",
            round(share, 4),
            f">= {CHANGED_WARN}",
            f"{why}: most updates are lost to rounding",
            "raise optimizer.lr",
        )
    return Finding("pass", round(share, 4), f">= {CHANGED_WARN}", why)


def learning_rate(evidence: Evidence) -> Finding:
    """The distance covered, for on policy nothing is clipped and clip_fraction says nothing."""
    logged = evidence.series("kl_ref")[-EARLY:]
    known = [v for v in (statistics.median(logged) if logged else None, evidence.probes.policy_kl) if v is not None]
    clipped = evidence.series("clip_fraction")
    if not known:
        return skip("kl_ref is not logged: model.reference=true keeps the start to compare with")
    moved = max(known)
    steps = len(evidence.records)
    clip = f"; clip_fraction at most {max(clipped):.2g}" if clipped else ""
    why = f"the policy moved {moved:.3g} nats a token in {steps} steps{clip}"
    fix = "lower optimizer.lr by 3 to 10 (reinforcement learning wants one to two orders less than fine-tuning)"
    if not math.isfinite(moved) or moved > MOVED_FAIL:
        return Finding("fail", round(moved, 5), f"<= {MOVED_FAIL}", f"{why}: it is another model already", fix)
    if moved > MOVED_WARN:
        return Finding("warn", round(moved, 5), f"<= {MOVED_WARN}", why, fix)
    return Finding("pass", round(moved, 5), f"<= {MOVED_WARN}", why)


def finite(evidence: Evidence) -> Finding:
    if not evidence.records:
        return skip("no steps were logged")
    lost = [r for r in evidence.records if r.get("_nonfinite") or any(bad(v) for v in r.values())]
    if lost:
        names = lost[0].get("_nonfinite") or [key for key, value in lost[0].items() if bad(value)]
        return Finding(
            "fail", len(lost), "= 0", f"step {lost[0]['step']}: {', '.join(names)} not finite",
            "lower optimizer.lr, or model.dtype=float32",
        )  # fmt: skip
    return Finding("pass", 0, "= 0", f"every number of {len(evidence.records)} steps is finite")


def bad(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def adv_std(evidence: Evidence) -> Finding:
    """Over all generated groups: under dynamic sampling the trained ones hold it up by construction."""
    values = evidence.series("adv_std_generated")[-EARLY:]
    if not values:
        return skip("no steps were logged")
    if evidence.config.grpo.advantage_std == "none":
        return skip("advantages are not divided by their spread (grpo.advantage_std = none): no scale to hold them to")
    last = statistics.fmean(values)
    first = evidence.series("adv_std_generated")[0]
    why = f"adv_std_generated {first:.2f} at first, {last:.2f} in the last {len(values)} steps"
    if last < ADV_FAIL:
        return Finding(
            "fail", round(last, 4), f">= {ADV_FAIL}", f"{why}: the signal has collapsed",
            "with normal entropy: harder problems or a higher temperature; with low entropy: a lower learning rate",
        )  # fmt: skip
    return Finding("pass", round(last, 4), f">= {ADV_FAIL}", why)


def reward_direction(evidence: Evidence) -> Finding:
    """Paired t test over fixed problems with the same random numbers; falling fails, rising is reported."""
    before, after = evidence.probes.rewards_before, evidence.probes.rewards_after
    if before is None or after is None:
        return skip(evidence.missing)
    if not before:
        return skip("no problem got a reward before the steps and after them")
    changes = [b - a for a, b in zip(before, after, strict=True)]
    change = statistics.fmean(changes)
    spread = statistics.stdev(changes) if len(changes) > 1 else 0.0
    if spread == 0:
        p = 1.0 if change == 0 else 0.0
    else:
        p = two_sided_p(change / (spread / math.sqrt(len(changes))), len(changes) - 1)
    how = f"reward on {len(changes)} fixed problems {statistics.fmean(before):.3f} -> {statistics.fmean(after):.3f}"
    threshold = f"not falling (p > {2 * FALL_ALPHA:g})"
    if change < 0 and p <= 2 * FALL_ALPHA:
        return Finding(
            "fail", round(change, 4), threshold, f"{how} (paired p = {p:.2g}): training makes it worse",
            "the sign of the reward or the advantage, then optimizer.lr",
        )  # fmt: skip
    word = "rising" if change > 0 and p <= 0.05 else "no change shown"
    return Finding("pass", round(change, 4), threshold, f"{how}: {word} (paired p = {p:.2g})")
