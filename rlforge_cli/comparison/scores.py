"""An arm's own score: its interval, and the same under the asked format only."""

from __future__ import annotations

from rlforge_cli.comparison.arms import Arm
from rlforge_cli.comparison.entries import share
from rlforge_cli.comparison.measure import matrix
from rlforge_cli.stats import Interval, clustered_interval, clustered_se, mean_pass_at_k, wilson


def strict_accuracy(arm: Arm) -> float | None:
    """Mean accuracy under the asked format, in 0..1; None unless every run of the arm has one."""
    values = []
    for entry in arm.entries:
        if entry.scores is not None and entry.scores.strict is not None:
            values.append(int(entry.scores.strict.sum()) / (len(entry.scores.ids) * entry.scores.samples))
        elif (stored := share(entry.head.summary.get("accuracy_strict"))) is not None:
            values.append(stored)
    return sum(values) / len(values) if len(values) == len(arm.entries) else None


def strict_delta(control: Arm, arm: Arm) -> float | None:
    """Difference of the strict scores in points."""
    a, b = strict_accuracy(control), strict_accuracy(arm)
    return 100 * (b - a) if a is not None and b is not None else None


def score_error(arm: Arm) -> float | None:
    """Standard error of an arm's accuracy over items; None where the results are not there, or of a single item."""
    scores = arm.named.scores
    return clustered_se(matrix(arm, scores.ids).mean(axis=0)) if scores is not None and len(scores.ids) > 1 else None


def pass_at_k(arm: Arm) -> dict[str, float] | None:
    """Mean pass@k over problems and runs for the powers of two and all of k <= samples; None for one sample."""
    scores = [entry.scores for entry in arm.entries if entry.scores is not None]
    if not scores or len(scores) < len(arm.entries) or (n := scores[0].samples) == 1:
        return None
    sizes = dict.fromkeys([*(2**power for power in range(n.bit_length())), n])
    return {str(k): sum(mean_pass_at_k(s.right, n=n, k=k) for s in scores) / len(scores) for k in sizes}


def score_interval(arm: Arm) -> Interval | None:
    """95 % interval of an arm's accuracy over items: what other problems of this kind would say of these checkpoints.

    Wilson for one run of one answer a problem, else over the items' means. Seed noise belongs to differences.
    """
    scores = arm.named.scores
    if scores is None:
        ci = arm.named.head.summary.get("ci95")
        if len(arm.entries) > 1 or not isinstance(ci, list) or len(ci) != 2:
            return None
        low, high = map(share, ci)
        return (low, high) if low is not None and high is not None else None
    if len(arm.entries) == 1 and scores.samples == 1:
        return wilson(int(scores.right.sum()), len(scores.ids))
    return clustered_interval(matrix(arm, scores.ids).mean(axis=0)) if len(scores.ids) > 1 else None
