"""Stratified checks: shares, sums and ratios with intervals that cover what they claim to."""

from __future__ import annotations

import random

import pytest

from rlforge_cli.errors import UserError
from rlforge_cli.stats.stratified import Stratum, allocate, exact_interval, ratio, weighted_sum


def test_checks_go_where_they_narrow_most() -> None:
    assert allocate({"right": 800, "near": 100, "wrong": 100}, 50) == {"right": 34, "near": 8, "wrong": 8}
    assert allocate({"right": 3, "near": 0, "wrong": 100}, 50) == {"right": 3, "near": 0, "wrong": 47}
    assert allocate({"right": 3, "near": 0, "wrong": 4}, 50) == {"right": 3, "near": 0, "wrong": 4}
    with pytest.raises(UserError, match="each of the 3 strata"):
        allocate({"right": 3, "near": 1, "wrong": 4}, 2)


def test_more_checks_never_take_one_away() -> None:
    sizes = {"right": 700, "near": 13, "wrong": 290}
    before = allocate(sizes, 3)
    for n in range(4, 200):
        after = allocate(sizes, n)
        assert sum(after.values()) == n
        assert all(after[name] >= before[name] for name in sizes)
        before = after


def test_a_share_has_its_exact_interval_until_everything_is_checked() -> None:
    huge = Stratum(weight=1.0, size=10**9, asked=50, yes=48)
    assert huge.interval() == pytest.approx(exact_interval(48, 50))
    # of 100 items 50 checked: as 50 * 99 / 50 = 99 checks of an endless supply
    assert Stratum(weight=1.0, size=100, asked=50, yes=48).interval() == pytest.approx(exact_interval(0.96 * 99, 99))
    assert Stratum(weight=1.0, size=50, asked=50, yes=48).interval() == (0.96, 0.96)


def test_exact_intervals_are_those_of_scipy() -> None:
    from scipy.stats import binomtest

    for k, n in [(0, 34), (1, 34), (17, 34), (33, 34), (34, 34), (3, 1319)]:
        expected = binomtest(k, n).proportion_ci(method="exact")
        assert exact_interval(k, n) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_a_weighted_sum_by_hand() -> None:
    a, b = Stratum(weight=0.8, size=10**9, asked=32, yes=31), Stratum(weight=0.2, size=10**9, asked=18, yes=2)
    value, (low, high) = weighted_sum([(0.8, a), (-0.2, b)])
    la, ua = exact_interval(31, 32)
    lb, ub = exact_interval(2, 18)
    pa, pb = 31 / 32, 2 / 18
    assert value == pytest.approx(0.8 * pa - 0.2 * pb)
    assert low == pytest.approx(value - ((0.8 * (pa - la)) ** 2 + (0.2 * (ub - pb)) ** 2) ** 0.5)
    assert high == pytest.approx(value + ((0.8 * (ua - pa)) ** 2 + (0.2 * (pb - lb)) ** 2) ** 0.5)


def test_a_ratio_of_one_stratum_on_each_side() -> None:
    right = Stratum(weight=0.8, size=10**9, asked=30, yes=30)
    wrong = Stratum(weight=0.2, size=10**9, asked=20, yes=0)
    value, (low, high) = ratio([right], [wrong])
    assert (value, high) == (1.0, 1.0)
    # at the end r, (1 - r) * 0.8 = sqrt(((1 - r) * 0.8 * (1 - l))^2 + (r * 0.2 * u)^2)
    deviation = ((1 - low) * 0.8 * (1 - exact_interval(30, 30)[0])) ** 2 + (low * 0.2 * exact_interval(0, 20)[1]) ** 2
    assert (1 - low) * 0.8 == pytest.approx(deviation**0.5, rel=1e-6)


def test_a_ratio_that_is_checked_completely_is_exact() -> None:
    part, rest = Stratum(weight=0.6, size=6, asked=6, yes=5), Stratum(weight=0.4, size=4, asked=4, yes=1)
    value, (low, high) = ratio([part], [rest])
    assert value == pytest.approx(5 / 6)
    assert (low, high) == pytest.approx((5 / 6, 5 / 6), abs=1e-12)


def test_no_affirmed_item_has_no_ratio() -> None:
    nothing = Stratum(weight=0.5, size=100, asked=10, yes=0)
    value, (low, high) = ratio([nothing], [nothing])
    assert value is None
    assert (low, high) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("truth", "n"), [((0.98, 0.30, 0.01), 50), ((0.99, 0.10, 0.0), 50), ((0.90, 0.5, 0.05), 100), ((1.0, 0.0, 0.0), 50)]
)
def test_the_intervals_cover(truth: tuple[float, float, float], n: int) -> None:
    """Model: 1,000 graded items, 600 right, 60 near, 340 wrong, of which the shares ``truth`` are truly right."""
    sizes = {"right": 600, "near": 60, "wrong": 340}
    rng = random.Random(7)
    items = {
        name: [index < round(size * share) for index in range(size)]
        for (name, size), share in zip(sizes.items(), truth, strict=True)
    }
    counts = allocate(sizes, n)
    right = sum(map(sum, items.values()))
    found = sum(items["right"])
    denied = {name: len(part) - sum(part) for name, part in items.items()}
    true_values = {
        "accuracy": right / 1000,
        "sensitivity": found / right,
        "specificity": (denied["near"] + denied["wrong"]) / sum(denied.values()),
    }
    covered = dict.fromkeys(true_values, 0)
    trials = 200
    for _ in range(trials):
        strata = {
            name: Stratum(
                weight=sizes[name] / 1000,
                size=sizes[name],
                asked=counts[name],
                yes=sum(rng.sample(items[name], counts[name])),
            )
            for name in sizes
        }
        graded_right, graded_wrong = [strata["right"]], [strata["near"], strata["wrong"]]
        intervals = {
            "accuracy": weighted_sum([(s.weight, s) for s in strata.values()])[1],
            "sensitivity": ratio(graded_right, graded_wrong)[1],
            "specificity": ratio([s.denied() for s in graded_wrong], [s.denied() for s in graded_right])[1],
        }
        for name, (low, high) in intervals.items():
            covered[name] += low - 1e-9 <= true_values[name] <= high + 1e-9
    assert min(covered.values()) >= 0.92 * trials  # 95 %, less twice the standard error of 200 trials
