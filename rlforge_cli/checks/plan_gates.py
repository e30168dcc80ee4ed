"""Gates before any step: what the run will cost, and whether the model can be trained at all."""

from __future__ import annotations

from rlforge_cli.checks.check import Finding, skip
from rlforge_cli.checks.evidence import Evidence

FLOOR_G = 4
FULL_SHARE = 0.9


def plan(evidence: Evidence) -> Finding:
    facts = evidence.plan
    if facts is None:
        return skip(evidence.missing)
    config = evidence.config
    value = f"{facts.completions} completions"
    why = (
        f"{config.train.steps} steps ({facts.updates} updates) of {config.rollout.prompts} prompts x G "
        f"{config.rollout.group_size}: "
        f"at most {facts.tokens:,} completion tokens"
    )
    threshold = f"G >= {FLOOR_G}"
    if config.rollout.group_size < FLOOR_G:
        return Finding(
            "warn", value, threshold, f"{why}; below {FLOOR_G} the group is too small to be a baseline",
            "--set G=8; with memory to spare add prompts before G",
        )  # fmt: skip
    return Finding("pass", value, threshold, why)


def memory(evidence: Evidence) -> Finding:
    facts = evidence.plan
    if facts is None:
        return skip(evidence.missing)
    if facts.predicted_gib is None:
        return skip("the architecture is not known without the model")
    value = round(facts.predicted_gib, 2)
    why = f"predicted peak {facts.predicted_gib:.1f} GiB ({facts.largest_parts}); {facts.fits}"
    if facts.device_gib is None:
        return Finding("skip", value, "", f"no CUDA device here to compare with; {why}")
    threshold = f"<= {facts.device_gib:.1f} GiB"
    fix = (
        "model.gradient_checkpointing=true, a smaller train.micro_batch_size (accumulation keeps the result), "
        "rollout.max_tokens, or model.adaptation=lora"
    )
    if facts.predicted_gib > facts.device_gib:
        return Finding("fail", value, threshold, f"{why}; {facts.device} has less", fix)
    if facts.predicted_gib > FULL_SHARE * facts.device_gib:
        return Finding("warn", value, threshold, f"{why}; tight: the model is right to about a tenth", fix)
    return Finding("pass", value, threshold, why)


def time(evidence: Evidence) -> Finding:
    steps = evidence.config.train.steps
    measured = evidence.series("seconds_total")
    if measured:
        settled = measured[1:] or measured  # the first step also warms up
        seconds = sum(settled) / len(settled)
        return Finding(
            "pass", round(seconds, 4), "", f"measured {seconds:.3g} s a step: {hours(steps * seconds)} in all"
        )
    facts = evidence.plan
    if facts is None or facts.seconds_per_step is None:
        return skip("no step was measured, and no speed is assumed for this device")
    seconds = facts.seconds_per_step
    return Finding(
        "pass",
        round(seconds, 4),
        "",
        f"predicted {seconds:.3g} s a step ({facts.time_basis}): {hours(steps * seconds)}",
    )


def hours(seconds: float) -> str:
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )


def trainable_parameters(evidence: Evidence) -> Finding:
    count, total = evidence.probes.trainable, evidence.probes.parameters
    if count is None:
        return skip(evidence.missing)
    why = f"{count:,} trainable parameters" + (f" of {total:,} ({100 * count / total:.2f} %)" if total else "")
    if count == 0:
        return Finding(
            "fail", 0, "> 0", f"{why}: nothing would be trained",
            "model.adaptation full or lora, and model.lora_targets that the model has",
        )  # fmt: skip
    return Finding("pass", count, "> 0", why)


def longest_batch(evidence: Evidence) -> Finding:
    probe = evidence.probes.longest
    if probe is None:
        return skip(evidence.missing)
    peak = f", peak {probe.peak_gib:.2f} GiB" if probe.peak_gib is not None else ""
    why = f"{probe.rows} rows of {probe.tokens} tokens, forward and backward{peak}"
    if probe.fits:
        return Finding("pass", probe.rows * probe.tokens, "fits", why)
    if probe.fitting:
        return Finding(
            "fail", probe.rows * probe.tokens, "fits", f"out of memory: {why}",
            f"--set micro_batch={probe.fitting}: accumulation gives the same result",
        )  # fmt: skip
    return Finding(
        "fail", probe.rows * probe.tokens, "fits", f"out of memory even with one row: {why}",
        "model.gradient_checkpointing=true, or a smaller rollout.max_tokens, max_prompt_tokens or model",
    )  # fmt: skip
