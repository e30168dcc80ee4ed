"""Would training again this way differ? Item noise and training-seed noise together.

Seeds and items are crossed (every seed meets the same items), so the variance of the difference adds a seed part and
an item part and takes away the residual that both of them contain. Welch on seed means agrees; percentile and BCa
bootstraps over three to five seeds reject a true null in 12-28 % of cases and are not offered.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlforge_cli.stats.contrast import TContrast, item_variance

PRIOR_SD = 0.0153
"""Seed SD of test accuracy before any is measured: three seeds of the reference experiment ranged over 2-3 points."""
PRIOR_DF = 6
"""How many degrees of freedom the prior is worth against measured seeds."""


class SeedNoise(msgspec.Struct, frozen=True):
    """The seed SD a comparison uses (in proportions) and how well it is known.

    Example: ``SeedNoise(sd=0.0153, df=inf)``: the prior alone, so the comparison is a z test.
    """

    sd: float
    df: float


def pool_seed_noise(groups: Iterable[Sequence[float]]) -> SeedNoise:
    """Prior and measured seed variance: (nu0*sigma0^2 + nu*s^2)/(nu0 + nu), s^2 pooled over arms of 2+ seeds.

    ``groups`` holds the accuracies (0..1) of each arm's seeds. With nothing measured the prior stands alone and df is
    infinite (a z test); otherwise df = nu0 + nu.
    """
    squares, df = 0.0, 0
    for group in groups:
        if len(group) > 1:
            squares += float(np.var(group)) * len(group)
            df += len(group) - 1
    if df == 0:
        return SeedNoise(sd=PRIOR_SD, df=math.inf)
    return SeedNoise(sd=math.sqrt((PRIOR_DF * PRIOR_SD**2 + squares) / (PRIOR_DF + df)), df=PRIOR_DF + df)


def sd_factors(n: int, alpha: float = 0.05) -> tuple[float, float]:
    """Between which factors of the measured SD of ``n`` seeds the true SD lies. Three seeds: 0.52 to 6.3."""
    from scipy.special import chdtri  # 0.2 s that a comparison does not need

    df = n - 1
    return math.sqrt(df / float(chdtri(df, alpha / 2))), math.sqrt(df / float(chdtri(df, 1 - alpha / 2)))


def _residual_mean_square(arm: NDArray[np.float64]) -> float:
    """Seeds-by-items interaction of one arm [seeds, items]: mean square of the two-way residual."""
    seeds, items = arm.shape
    residual = arm - arm.mean(axis=1, keepdims=True) - arm.mean(axis=0) + arm.mean()
    return float((residual**2).sum() / ((seeds - 1) * (items - 1)))


class VarianceParts(msgspec.Struct, frozen=True):
    """Variance of the difference of two arms, in parts (proportions squared)."""

    seed_a: float
    seed_b: float
    item: float
    """Of the mean difference over items; contains ``residual``."""
    residual: float

    @property
    def pure_item(self) -> float:
        """Item noise that no number of seeds removes."""
        return max(0.0, self.item - self.residual)


def variance_parts(a: ArrayLike, b: ArrayLike) -> VarianceParts:
    """Seed, item and residual parts from two arms [seeds, items] on the same items; one seed gives no seed part."""
    first, second = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    n = first.shape[1]
    seed_parts = [float(arm.mean(axis=1).var(ddof=1)) / len(arm) if len(arm) > 1 else 0.0 for arm in (first, second)]
    residual = sum(_residual_mean_square(arm) / (n * len(arm)) for arm in (first, second) if len(arm) > 1)
    item = item_variance(second.mean(axis=0) - first.mean(axis=0))
    return VarianceParts(seed_a=seed_parts[0], seed_b=seed_parts[1], item=item, residual=residual)


def recipe_contrast(a: ArrayLike, b: ArrayLike) -> TContrast:
    """Difference of two recipes from matrices [seeds >= 2, items >= 2] of scores on the same items.

    SE^2 = max(seed + item - residual, seed, item), Satterthwaite degrees of freedom
    (Satterthwaite, Biometrics Bulletin 2 (1946) 110-114).
    """
    first, second = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    parts = variance_parts(first, second)
    seed = parts.seed_a + parts.seed_b
    variance = max(seed + parts.item - parts.residual, seed, parts.item)
    spread = (
        parts.seed_a**2 / (len(first) - 1) + parts.seed_b**2 / (len(second) - 1) + parts.item**2 / (first.shape[1] - 1)
    )
    delta = float(second.mean() - first.mean())
    return TContrast(delta=delta, se=math.sqrt(variance), df=variance**2 / spread if spread else math.inf)


def welch_contrast(a: Sequence[float], b: Sequence[float]) -> TContrast:
    """Difference of two recipes from the accuracies of their seeds alone (2+ each): Welch's t."""
    variance_a, variance_b = float(np.var(a, ddof=1)) / len(a), float(np.var(b, ddof=1)) / len(b)
    variance = variance_a + variance_b
    spread = variance_a**2 / (len(a) - 1) + variance_b**2 / (len(b) - 1)
    delta = float(np.mean(b) - np.mean(a))
    return TContrast(delta=delta, se=math.sqrt(variance), df=variance**2 / spread if spread else math.inf)


def known_noise_contrast(a: ArrayLike, b: ArrayLike, *, noise: SeedNoise) -> TContrast:
    """Difference of two recipes when an arm has one seed: SE^2 = sigma^2 (1/S_A + 1/S_B) + item variance.

    ``a`` and ``b`` are [seeds >= 1, items >= 2]; the item part keeps its residual, which one seed cannot separate.
    """
    first, second = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    return with_known_noise(
        float(second.mean() - first.mean()), variance_parts(first, second).item, n=first.shape[1],
        seeds=(len(first), len(second)), noise=noise,
    )  # fmt: skip


def with_known_noise(delta: float, item: float, *, n: int, seeds: tuple[int, int], noise: SeedNoise) -> TContrast:
    """The same from a difference and its variance ``item`` over ``n`` items.

    As many degrees of freedom as the seed noise has, but no more than Satterthwaite's: few items do not say well how
    much they vary. From a thousand on t is z.
    """
    seed = noise.sd**2 * (1 / seeds[0] + 1 / seeds[1])
    variance = seed + item
    spread = seed**2 / noise.df + item**2 / (n - 1)
    df = variance**2 / spread if spread else math.inf
    return TContrast(delta=delta, se=math.sqrt(variance), df=min(noise.df, df) if df < 1000 else noise.df)
