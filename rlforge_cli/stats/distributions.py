"""Normal, Student t, noncentral t and the fair binomial, without ``scipy`` (see :mod:`rlforge_cli.stats.beta`)."""

from __future__ import annotations

import math
from statistics import NormalDist

from rlforge_cli.stats.beta import incomplete_beta

Interval = tuple[float, float]
"""Lower and upper end, in the unit of the estimate it belongs to."""

NEARLY_NORMAL = 1e7
"""Degrees of freedom from which t and normal agree to eight digits."""
NODES = 256
"""Of the trapezoid rule of the noncentral t, whose integrand is nearly a Gaussian bell; four times as many below 4
degrees of freedom, where the bell has a long tail."""


def normal_quantile(probability: float) -> float:
    return NormalDist().inv_cdf(probability)


def normal_cdf(value: float) -> float:
    return 0.5 * math.erfc(-value / math.sqrt(2))


def two_sided_p(statistic: float, df: float) -> float:
    """P(|T| >= |statistic|) under Student's t with ``df`` degrees of freedom (``inf``: normal)."""
    if df >= NEARLY_NORMAL:
        return math.erfc(abs(statistic) / math.sqrt(2))
    if math.isinf(statistic):
        return 0.0
    return incomplete_beta(df / 2, 0.5, df / (df + statistic * statistic))


def _t_density(value: float, df: float) -> float:
    log_scale = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - 0.5 * math.log(df * math.pi)
    return math.exp(log_scale - (df + 1) / 2 * math.log1p(value * value / df))


def t_quantile(probability: float, df: float) -> float:
    """Quantile of Student's t, 0 < ``probability`` < 1; ``df = inf`` is the normal distribution."""
    if probability < 0.5:
        return -t_quantile(1 - probability, df)
    value = normal_quantile(probability)
    if df >= NEARLY_NORMAL:
        return value
    # the upper half of the distribution function is concave and the normal quantile lies below the root, so Newton's
    # steps approach it from below and never pass it
    for _ in range(200):
        step = (two_sided_p(value, df) / 2 - (1 - probability)) / _t_density(value, df)
        value += step
        if abs(step) <= 1e-14 * (1 + value):
            break
    return value


def noncentral_t_power(noncentrality: float, df: float, *, alpha: float) -> float:
    """Probability that a two-sided t test at ``alpha`` rejects when the statistic has that noncentrality.

    P(|T| > t) with T = (Z + noncentrality) / s and s = chi_df / sqrt(df): the normal probability given s, averaged over
    the density of s.
    """
    critical = t_quantile(1 - alpha / 2, df)
    if df >= NEARLY_NORMAL:
        return normal_cdf(noncentrality - critical) + normal_cdf(-noncentrality - critical)
    spread = 1 / math.sqrt(2 * df)
    low, high = -9 * spread - 23 / df, math.log1p(9 * spread)
    nodes = NODES if df >= 4 else 4 * NODES
    width = (high - low) / nodes
    log_scale = math.log(2) + df / 2 * math.log(df / 2) - math.lgamma(df / 2)
    total = 0.0
    for index in range(nodes + 1):
        log_s = low + index * width  # in log s the density falls off smoothly on both sides, whatever df is
        s = math.exp(log_s)
        reject = normal_cdf(noncentrality - critical * s) + normal_cdf(-noncentrality - critical * s)
        total += math.exp(log_scale + df * log_s - df * s * s / 2) * reject
    return min(1.0, total * width)


def fair_binomial_cdf(successes: int, n: int) -> float:
    """P(X <= successes) for X of ``n`` tosses of a fair coin."""
    return 1.0 if successes >= n else incomplete_beta(n - successes, successes + 1, 0.5)
