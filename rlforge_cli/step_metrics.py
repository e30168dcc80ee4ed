"""What a step's rollout says about itself: means over everything that was generated, not only what was trained on."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from rlforge_cli.rewards import component_means
from rlforge_cli.rollouts import Collected


def rollout_metrics(collected: Collected, advantages: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Metrics by name (see :mod:`rlforge_cli.metrics`); ``advantages`` [groups][G] of all generated groups."""
    groups = collected.generated
    completions = [c for group in groups for c in group.completions]
    grades = [grade for group in groups for grade in group.grades]
    scores = [score for group in groups for score in group.scores]
    rewards = [score.total for score in scores if score.total is not None]
    kept = {id(group) for group in collected.kept}
    trained = [a for group, values in zip(groups, advantages, strict=True) if id(group) in kept for a in values]
    lengths = [len(c.completion_ids) for c in completions]
    record: dict[str, Any] = {
        "reward": mean(rewards),
        "reward_std": statistics.pstdev(rewards) if rewards else 0.0,
    }
    record |= {f"reward/{name}": value for name, value in component_means(scores).items()}
    dead = sum(not group.live for group in groups)
    dropped = len(groups) - len(collected.kept)
    return record | {
        "accuracy": mean([float(grade.correct) for grade in grades]),
        "completion_length": mean(lengths),
        "truncated_fraction": mean([float(c.truncated) for c in completions]),
        "adv_std": unbiased_std(trained),
        "adv_std_generated": unbiased_std([a for values in advantages for a in values]),
        "zero_std_fraction": dead / len(groups),
        "groups_requested": collected.requested,
        "groups_generated": len(groups),
        "groups_kept": len(collected.kept),
        "frac_groups_dropped": dead / len(groups) if dropped else 0.0,
        "kept_without_correct": sum(not any(g.correct for g in group.grades) for group in collected.kept),
        "unscored": len(scores) - len(rewards),
        "grader_errors": sum(grade.error is not None for grade in grades),
        "tokens_generated": sum(lengths),
    }


def update_metrics(parts: Sequence[dict[str, float]]) -> dict[str, float]:
    """Of one update, from each rank's sums over its trained tokens: means over the tokens of all.

    Each part has tokens_in_loss, loss (the rank's share of it: they add up) and sampling_diff_max (of which the largest
    counts); kl_ref is over kl_ref_tokens where those are given.
    """
    sums: dict[str, float] = {}
    for part in parts:
        for key, value in part.items():
            known = sums.get(key)
            if known is None:
                sums[key] = value
            elif key != "sampling_diff_max":
                sums[key] = known + value
            elif not known >= value and known == known:  # a NaN stays
                sums[key] = value
    tokens = max(1.0, sums.pop("tokens_in_loss"))
    of = {"loss": 1.0, "sampling_diff_max": 1.0, "kl_ref": max(1.0, sums.pop("kl_ref_tokens", tokens))}
    return {key: value / of.get(key, tokens) for key, value in sums.items()}


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def unbiased_std(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0
