"""One checkpoint's score: Wilson interval, the standard error of several samples an item, pass@k."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike

from rlforge_cli.errors import UserError
from rlforge_cli.stats.distributions import Interval, normal_quantile, t_quantile


def wilson(successes: float, n: int, alpha: float = 0.05) -> Interval:
    """Wilson's score interval of a proportion, in 0..1.

    Wilson, JASA 22 (1927). Example: ``wilson(990, 1319)`` -> ``(0.72651, 0.77317)``.

    Raises:
        UserError: no trials, or more successes than trials.
    """
    if n < 1 or not 0 <= successes <= n:
        raise UserError(f"a proportion needs 0 <= successes <= n and n >= 1, not {successes} of {n}")
    z2 = normal_quantile(1 - alpha / 2) ** 2
    share = successes / n
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = math.sqrt(z2 * (share * (1 - share) / n + z2 / (4 * n * n))) / (1 + z2 / n)
    # at 0 and n the ends are exactly 0 and 1; rounding would leave them a hair beyond
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == n else min(1.0, centre + half)
    return low, high


def clustered_se(matrix: ArrayLike) -> float:
    """Standard error of the mean of ``matrix`` [items, samples]: over items, never over samples.

    The samples of one item share its difficulty, so they are one cluster (Miller, arXiv:2411.00640, section 2.2).
    Example: four items of four samples, ``[1111] [1111] [0000] [0000]`` -> 0.288675 (as 16 samples: 0.129).

    Raises:
        UserError: fewer than two items: nothing says how much items differ.
    """
    values = np.asarray(matrix, dtype=float)
    means = values.mean(axis=1) if values.ndim == 2 else values
    if len(means) < 2:
        raise UserError("a standard error over items needs at least two items")
    return float(means.std(ddof=1) / math.sqrt(len(means)))


def clustered_interval(matrix: ArrayLike, alpha: float = 0.05) -> Interval:
    """t-interval of a mean score over items [items, samples], cut to 0..1.

    Where all items score the same their spread is not known to be none: Wilson's, each item as one answer.
    """
    values = np.asarray(matrix, dtype=float)
    se, mean = clustered_se(values), float(values.mean())
    if se == 0:
        return wilson(mean * len(values), len(values), alpha)
    half = t_quantile(1 - alpha / 2, len(values) - 1) * se
    return max(0.0, mean - half), min(1.0, mean + half)


def pass_at_k(n: int, c: int, k: int) -> float:
    """Unbiased chance that at least one of ``k`` samples is right, from ``c`` right of ``n``: 1 - C(n-c,k)/C(n,k).

    Chen et al., arXiv:2107.03374, equation 1. Example: ``pass_at_k(16, 3, 4)`` -> 0.607143.

    Raises:
        UserError: ``k`` above ``n`` (the formula would claim 1.0 for an unsolved problem), or counts out of range.
    """
    if not 0 <= c <= n:
        raise UserError(f"pass@k needs 0 <= right <= samples, not {c} of {n}")
    if not 1 <= k <= n:
        raise UserError(f"pass@{k} needs at least {max(k, 1)} samples a problem, there are {n}: raise --samples")
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def mean_pass_at_k(right: Iterable[int], *, n: int, k: int) -> float:
    """pass@k averaged over items; ``right`` counts the right ones of ``n`` samples of each item."""
    scores = [pass_at_k(n, int(c), k) for c in right]
    if not scores:
        raise UserError("pass@k of no problems is undefined")
    return math.fsum(scores) / len(scores)
