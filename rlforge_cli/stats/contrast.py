"""A difference with its standard error and degrees of freedom: what every t or z comparison comes down to."""

from __future__ import annotations

import math
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from rlforge_cli.stats.distributions import Interval, normal_quantile, t_quantile, two_sided_p


class Contrast(Protocol):
    """A difference B - A in proportions, its p-value, and its confidence interval at any level."""

    @property
    def delta(self) -> float: ...

    @property
    def p(self) -> float: ...

    @property
    def se(self) -> float: ...

    def interval(self, alpha: float) -> Interval: ...

    def equivalence_interval(self, alpha: float) -> Interval:
        """What an equivalence test at ``alpha`` looks at: the 1 - 2 alpha interval, wide enough for few items too."""
        ...


def item_variance(differences: NDArray[np.float64]) -> float:
    """Of the mean of ``differences`` [items >= 2].

    Where all are equal none was seen to differ, which a share of up to 1 - 0.05^(1/n) of other items may do (the exact
    one-sided bound, about 3/n): that is taken for what 1.64 standard errors reach. Ten equal items: 26 %.
    """
    n = len(differences)
    if np.ptp(differences) > 0:
        return float(differences.var(ddof=1)) / n
    return ((1 - 0.05 ** (1 / n)) / normal_quantile(0.95)) ** 2


class TContrast(msgspec.Struct, frozen=True):
    """A difference judged by Student's t (``df = inf``: by z).

    Example: ``TContrast(delta=0.0372, se=0.00884, df=3.849)`` -> p = 0.0148.
    """

    delta: float
    se: float
    df: float

    @property
    def statistic(self) -> float:
        if self.se == 0:
            return 0.0 if self.delta == 0 else math.copysign(math.inf, self.delta)
        return self.delta / self.se

    @property
    def p(self) -> float:
        return 1.0 if self.delta == 0 else two_sided_p(self.statistic, self.df)

    def interval(self, alpha: float) -> Interval:
        half = t_quantile(1 - alpha / 2, self.df) * self.se
        return self.delta - half, self.delta + half

    def equivalence_interval(self, alpha: float) -> Interval:
        return self.interval(2 * alpha)
