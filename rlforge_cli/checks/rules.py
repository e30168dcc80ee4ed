"""Doctor's rules: how to read the dashboard. Each is silent on a healthy run, and says what it saw and what to do.

They look at block averages of 20 steps and want a change that is both sure and large, for a single step says nothing.
"""

from __future__ import annotations

import math

from rlforge_cli.checks.check import Finding
from rlforge_cli.checks.curves import Curves
from rlforge_cli.checks.lost import lost

OK = Finding("pass")
CLIP_HIGH = 0.2
ADV_LOW = 0.5
SOLVED = 0.9
"""Above this accuracy few groups can have spread, which is no fault."""
ENTROPY_NORMAL, ENTROPY_GONE = 0.05, 0.01
KL_DRIFT = 0.1
"""Nats a token below which growth of the KL is no matter."""
GROWTH = 1.25
SATURATED = 0.95
MISMATCH_GROWTH = 5.0
GAP = 0.1
UNSCORED = 0.05
REPEATED = 0.5


def lost_run(run: Curves) -> Finding:
    found = lost(run.records, run.config)
    if found is None:
        return OK
    return Finding("fail", found.rule, "", f"lost since about step {found.since}: {found.evidence}", found.action)


def clip_fraction(run: Curves) -> Finding:
    value = run.last("clip_fraction")
    if value is None or value <= CLIP_HIGH:
        return OK
    return Finding(
        "warn", round(value, 4), f"<= {CLIP_HIGH}", run.course("clip_fraction"),
        "updates are cut off at the clip: lower optimizer.lr (clip_fraction is its gauge), or grpo.updates",
    )  # fmt: skip


def signal(run: Curves) -> Finding:
    value, entropy, accuracy = run.last("adv_std_generated"), run.last("entropy"), run.last("accuracy")
    if value is None or value >= ADV_LOW or (accuracy or 0.0) > SOLVED or run.config.grpo.advantage_std == "none":
        return OK
    evidence = f"{run.course('adv_std_generated')}; {run.course('entropy')}; {run.course('zero_std_fraction')}"
    if entropy is not None and entropy < ENTROPY_NORMAL:
        return OK  # the fault is the entropy's, which has a rule of its own
    return Finding(
        "warn", round(value, 4), f">= {ADV_LOW}", evidence,
        "most groups have no spread while entropy is normal: train on a band of difficulty (data.difficulty with "
        "data.difficulty_from), raise the temperature, or sample dynamically (oversample=1.5)",
    )  # fmt: skip


def entropy(run: Curves) -> Finding:
    """Gone, and gone without being right: a solved task needs no entropy."""
    first, value, accuracy = run.first("entropy"), run.last("entropy"), run.last("accuracy")
    if first is None or value is None or value >= ENTROPY_GONE or value > first / 5 or (accuracy or 0.0) > SOLVED:
        return OK
    return Finding(
        "warn", round(value, 5), f">= {ENTROPY_GONE}", f"{run.course('entropy')}; {run.course('accuracy')}",
        "raise rollout.temperature with an entropy bonus (grpo.entropy_coef), or lower optimizer.lr",
    )  # fmt: skip


def incoherent(run: Curves) -> Finding:
    first, value = run.first("entropy"), run.last("entropy")
    if first is None or value is None or value < 2 * first or run.direction("entropy") <= 0:
        return OK
    if run.direction("accuracy") >= 0 and run.direction("reward/format") >= 0:
        return OK
    return Finding(
        "warn", round(value, 4), f"< {2 * first:.3g}",
        f"{run.course('entropy')}; {run.course('accuracy')}; {run.course('reward/format')}",
        "text turns incoherent or its format scatters: back to temperature 1.0, no entropy bonus, lower optimizer.lr",
    )  # fmt: skip


def kl_drift(run: Curves) -> Finding:
    value, first = run.last("kl_ref"), run.first("kl_ref")
    if value is None or first is None or value < KL_DRIFT or value < GROWTH * first or run.direction("kl_ref") <= 0:
        return OK
    if improved(run, "accuracy") or improved(run, "reward"):
        return OK
    return Finding(
        "warn", round(value, 4), "grows with reward", f"{run.course('kl_ref')}; {run.course('reward')}",
        "the policy drifts without earning more: lower optimizer.lr, or a small grpo.kl_coef such as 0.001",
    )  # fmt: skip


def length(run: Curves) -> Finding:
    first, value = run.first("completion_length"), run.last("completion_length")
    if first is None or value is None or value < GROWTH * first or run.direction("completion_length") <= 0:
        return OK
    if improved(run, "accuracy"):
        return OK
    return Finding(
        "warn", round(value, 2), f"< {GROWTH:g} x the start",
        f"{run.course('completion_length')}; {run.course('accuracy')}",
        "length grows and accuracy does not: only then penalise it (length_penalty, threshold above useful lengths)",
    )  # fmt: skip


def truncation(run: Curves) -> Finding:
    first, value = run.first("truncated_fraction"), run.last("truncated_fraction")
    if first is None or value is None or value < 0.3 or value < first + 0.1 or run.direction("truncated_fraction") <= 0:
        return OK
    return Finding(
        "warn", round(value, 4), "<= 0.3", f"{run.course('truncated_fraction')}; {run.course('completion_length')}",
        "more and more answers are cut off: raise rollout.max_tokens, or see why they ramble",
    )  # fmt: skip


def shortcut(run: Curves) -> Finding:
    """Reward rises on the other components alone, and accuracy falls."""
    if run.direction("reward") <= 0 or run.direction("accuracy") >= 0:
        return OK
    names = sorted(
        {key for record in run.records for key in record if key.startswith("reward/")} - {"reward/correctness"}
    )
    rising = [name for name in names if run.direction(name) > 0]
    first, value = run.first("accuracy"), run.last("accuracy")
    if not rising or first is None or value is None or value > 0.8 * first:
        return OK
    return Finding(
        "warn", rising[0], "rises with accuracy",
        f"{run.course('reward')}; {run.course('accuracy')}; {'; '.join(run.course(name) for name in rising)}",
        f"the policy collects {', '.join(rising)} instead of being right: `rlforge smoke --rewards`; lower its weight",
    )  # fmt: skip


def saturation(run: Curves) -> Finding:
    """A component that everything earns, while hardly anything is right and nothing improves."""
    weight, value, accuracy = run.config.reward.format, run.last("reward/format"), run.last("accuracy")
    if weight <= 0 or value is None or value < SATURATED * weight or len(run.blocks("reward")) < 4:
        return OK
    if accuracy is None or accuracy > 0.1 or run.direction("accuracy") > 0:
        return OK
    return Finding(
        "warn", round(value, 4), f"< {SATURATED * weight:.3g}",
        f"{run.course('reward/format')}; {run.course('accuracy')}",
        "the format is learned and nothing else: easier problems (data.difficulty), a larger G, or a warmer start",
    )  # fmt: skip


def train_eval_gap(run: Curves) -> Finding:
    """Validation falls from its best, beyond noise, while the training problems are still getting better."""
    if len(run.validations) < 3 or not run.validation_problems:
        return OK
    best_step, best = max(run.validations, key=lambda point: point[1])
    step, now = run.validations[-1]
    noise = math.sqrt(2 * max(best * (1 - best), 0.01) / run.validation_problems)
    accuracy = run.last("accuracy")
    if accuracy is None or best - now < max(GAP / 2, 3.5 * noise) or accuracy - now < GAP:
        return OK
    return Finding(
        "warn", round(best - now, 4), f"< {max(GAP / 2, 3.5 * noise):.3g}",
        f"validation {best:.3f} at step {best_step}, {now:.3f} at step {step}; {run.course('accuracy')}",
        "training problems are learned by heart: stop at best/, use more problems, or a lower optimizer.lr",
    )  # fmt: skip


def mismatch(run: Curves) -> Finding:
    first, value = run.first("kl_sampling"), run.last("kl_sampling")
    limit = 1e-3 if run.config.model.dtype == "float32" else 1e-2
    if first is None or value is None or abs(value) < limit or abs(value) < MISMATCH_GROWTH * abs(first):
        return OK
    return Finding(
        "warn", round(value, 6), f"<= {limit:g}", run.course("kl_sampling"),
        "engine and trainer drift apart: `rlforge smoke` says whether weights, temperature or precision differ; "
        "against precision alone: grpo.sampling_correction=token-truncate",
    )  # fmt: skip


def repeated_rollouts(run: Curves) -> Finding:
    """Different problems answered with the same text."""
    if not run.completions:
        return OK
    step = run.completions[-1][0]
    latest = [(problem, text) for at, problem, text in run.completions if at == step]
    problems = {problem for problem, _ in latest}
    if len(problems) < 2 or len(latest) < 8:
        return OK
    shared = [text for _, text in latest if len({p for p, t in latest if t == text}) > 1]
    share = len(shared) / len(latest)
    if share <= REPEATED:
        return OK
    return Finding(
        "warn", round(share, 3), f"<= {REPEATED}",
        f"step {step}: {len(shared)} of {len(latest)} sampled completions are "
        f"shared by different problems, for example {shared[0][:40]!r}",
        "the policy ignores its prompt: go back to an earlier checkpoint with a lower optimizer.lr",
    )  # fmt: skip


def ungraded(run: Curves) -> Finding:
    errors, unscored, total = sum(run.series("grader_errors")), sum(run.series("unscored")), 0.0
    for record in run.records:
        total += (record.get("groups_generated") or 0) * run.config.rollout.group_size
    if not total or (errors + unscored) / total <= UNSCORED:
        return OK
    return Finding(
        "warn", round((errors + unscored) / total, 4), f"<= {UNSCORED}",
        f"{errors:.0f} grader errors and {unscored:.0f} unscored completions of {total:.0f}",
        "see `rlforge grade` on rollouts.jsonl, and what your reward functions return",
    )  # fmt: skip


def improved(run: Curves, name: str) -> bool:
    """Rising, or clearly above the start although it levelled off."""
    first, value = run.first(name), run.last(name)
    return run.direction(name) > 0 or (first is not None and value is not None and value > first + 0.05)
