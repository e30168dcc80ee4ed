"""Normal, t, noncentral t and binomial against scipy."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from rlforge_cli.stats.beta import incomplete_beta
from rlforge_cli.stats.distributions import (
    fair_binomial_cdf,
    noncentral_t_power,
    normal_cdf,
    normal_quantile,
    t_quantile,
    two_sided_p,
)

# distributions


@pytest.mark.parametrize("df", [1, 1.5, 3.849, 5.1587, 8, 30, 1318, 1e5])
def test_t_agrees_with_scipy(df: float) -> None:
    for probability in (0.5, 0.9, 0.95, 0.975, 0.995, 0.025):
        quantile = t_quantile(probability, df)
        assert quantile == pytest.approx(float(special.stdtrit(df, probability)), rel=1e-9, abs=1e-12)
    for statistic in (0.0, 0.3, 1.96, -4.207, 30.0):
        expected = 2 * float(special.stdtr(df, -abs(statistic)))
        assert two_sided_p(statistic, df) == pytest.approx(expected, rel=1e-8)


def test_t_with_infinite_df_is_normal() -> None:
    assert t_quantile(0.975, math.inf) == pytest.approx(1.959963984540054, abs=1e-12)
    assert two_sided_p(1.959963984540054, math.inf) == pytest.approx(0.05, abs=1e-12)
    assert two_sided_p(math.inf, 4) == 0
    assert normal_cdf(1.0) == pytest.approx(float(special.ndtr(1.0)), abs=1e-15)
    assert normal_quantile(0.8) == pytest.approx(float(special.ndtri(0.8)), abs=1e-14)


@pytest.mark.parametrize("df", [1, 2, 2.7, 4, 5.2, 40, 1318])
@pytest.mark.parametrize("noncentrality", [0.0, 1.0, 2.8, 6.0, 10.0])
def test_noncentral_t_agrees_with_scipy(df: float, noncentrality: float) -> None:
    critical = float(special.stdtrit(df, 0.975))
    lower = special.nctdtr(df, noncentrality, -critical) if noncentrality < 5 else 0.0  # scipy says NaN for tiny tails
    expected = float(1 - special.nctdtr(df, noncentrality, critical) + lower)
    assert noncentral_t_power(noncentrality, df, alpha=0.05) == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("n", [1, 2, 7, 86, 160, 5000])
def test_fair_binomial_agrees_with_scipy(n: int) -> None:
    for successes in {0, n // 3, n // 2, n - 1, n}:
        expected = float(special.bdtr(successes, n, 0.5))
        assert fair_binomial_cdf(successes, n) == pytest.approx(expected, rel=1e-9)


@settings(deadline=None)
@given(st.floats(0.5, 400), st.floats(0.5, 400), st.floats(0, 1))
def test_incomplete_beta_agrees_with_scipy(a: float, b: float, x: float) -> None:
    assert incomplete_beta(a, b, x) == pytest.approx(float(special.betainc(a, b, x)), abs=1e-11)
