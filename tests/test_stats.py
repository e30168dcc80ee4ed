"""Every statistic against numbers worked out elsewhere: the method's own examples, and small cases by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlforge_cli import stats
from rlforge_cli.errors import UserError

N = 1319
RIGHT_A = 950


def table(only_a: int, only_b: int) -> stats.PairedTable:
    return stats.PairedTable(both=RIGHT_A - only_a, only_a=only_a, only_b=only_b, neither=N - RIGHT_A - only_b)


def matrix(text: str) -> np.ndarray:
    return np.array([[int(c) for c in row] for row in text.split()])


def points(interval: tuple[float, float]) -> list[float]:
    return [round(100 * end, 2) for end in interval]


# one checkpoint


def test_wilson() -> None:
    assert [round(end, 5) for end in stats.wilson(990, 1319)] == [0.72651, 0.77317]


def test_wilson_ends_at_the_edges() -> None:
    low, high = stats.wilson(0, 10)
    assert low == 0.0
    assert high == pytest.approx(0.2775327998628892, abs=1e-12)  # z^2/(n + z^2)
    assert stats.wilson(10, 10)[1] == 1.0


@pytest.mark.parametrize(("successes", "n"), [(0, 0), (3, 2), (-1, 5)])
def test_wilson_refuses_impossible_counts(successes: int, n: int) -> None:
    with pytest.raises(UserError, match="successes"):
        stats.wilson(successes, n)


def test_clustered_se_is_over_items() -> None:
    answers = matrix("1111 1111 0000 0000")
    assert stats.clustered_se(answers) == pytest.approx(0.288675, abs=5e-7)
    assert stats.clustered_se(answers) == pytest.approx(stats.clustered_se(answers.mean(axis=1)), abs=1e-15)


def test_clustered_interval_uses_t_over_items_and_stays_in_range() -> None:
    low, high = stats.clustered_interval(matrix("1111 1111 0000 0000"))
    assert (low, high) == (0.0, 1.0)  # 0.5 +- 3.18 * 0.2887
    low, high = stats.clustered_interval(np.tile(matrix("11 10 00"), (100, 1)))
    assert high - 0.5 == pytest.approx(0.5 - low)
    assert high - 0.5 == pytest.approx(1.96793 * 0.40893 / math.sqrt(300), rel=1e-4)


def test_a_single_item_has_no_standard_error() -> None:
    with pytest.raises(UserError, match="two items"):
        stats.clustered_se([[1, 0, 1]])


def test_items_that_all_score_the_same_leave_room() -> None:
    assert stats.clustered_interval(np.zeros((5, 4))) == stats.wilson(0, 5)
    assert stats.clustered_interval(np.ones((5, 4))) == stats.wilson(5, 5)


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"),
    [(16, 3, 4, 0.607143), (10, 1, 5, 0.5), (8, 2, 4, 0.785714), (16, 3, 8, 0.9), (8, 0, 4, 0.0), (8, 1, 8, 1.0)],
)
def test_pass_at_k(n: int, c: int, k: int, expected: float) -> None:
    assert stats.pass_at_k(n, c, k) == pytest.approx(expected, abs=5e-7)


@pytest.mark.parametrize(("n", "c", "k"), [(2, 0, 5), (1, 0, 10), (4, 2, 0), (4, 5, 1)])
def test_pass_at_k_refuses_what_samples_cannot_say(n: int, c: int, k: int) -> None:
    with pytest.raises(UserError, match="pass@"):
        stats.pass_at_k(n, c, k)


def test_mean_pass_at_k_counts_samples_not_questions() -> None:
    right = [1] * 50 + [0] * 114
    assert stats.mean_pass_at_k(right, n=1, k=1) == pytest.approx(0.304878, abs=5e-7)
    with pytest.raises(UserError, match="at least 10 samples"):
        stats.mean_pass_at_k(right, n=1, k=10)


# two checkpoints


@pytest.mark.parametrize(
    ("only_a", "only_b", "delta", "p", "ci95", "ci90", "verdict", "below"),
    [
        (60, 100, 3.033, 0.0019537, [1.16, 4.91], [1.46, 4.61], "better", False),
        (100, 60, -3.033, 0.0019537, [-4.91, -1.16], None, "worse", False),
        (40, 46, 0.455, 0.590036, [-0.93, 1.84], [-0.70, 1.61], "no_material_difference", False),
        (20, 45, 1.895, 0.0026264, [0.70, 3.10], [0.89, 2.90], "better", True),
        (64, 89, 1.895, 0.05199, [0.06, 3.73], [0.35, 3.44], "no_material_difference", False),
        (100, 160, 4.549, 0.0002389, [2.16, 6.93], [2.55, 6.55], "better", False),
    ],
)
def test_paired_comparison(
    only_a: int,
    only_b: int,
    delta: float,
    p: float,
    ci95: list[float],
    ci90: list[float] | None,
    verdict: str,
    below: bool,
) -> None:
    contrast = table(only_a, only_b)
    assert round(100 * contrast.delta, 3) == delta
    assert contrast.p == pytest.approx(p, abs=5e-8 if p < 0.01 else 5e-6)
    assert points(contrast.interval(0.05)) == ci95
    if ci90 is not None:
        assert points(contrast.interval(0.10)) == ci90
    decision = stats.decide(contrast.interval(0.05), contrast.interval(0.10), p=contrast.p, margin=0.04)
    assert (decision.verdict, decision.below_margin) == (verdict, below)


def test_wald_agrees_with_newcombe_at_full_size_only() -> None:
    for only_a, only_b in ((60, 100), (20, 45), (100, 160)):
        contrast = table(only_a, only_b)
        for end, sign in zip(contrast.interval(0.05), (-1, 1), strict=True):
            assert 100 * end == pytest.approx(100 * (contrast.delta + sign * 1.96 * contrast.se), abs=0.02)
    small = stats.PairedTable(both=0, only_a=0, only_b=5, neither=5)
    assert small.interval(0.05)[1] < 0.80 < small.delta + 1.96 * small.se + 0.01


def test_paired_table_from_vectors() -> None:
    counted = stats.paired_table([1, 1, 0, 0, 1], [1, 0, 1, 1, 0])
    assert (counted.both, counted.only_a, counted.only_b, counted.neither) == (1, 2, 2, 0)


def test_a_paired_gain_that_an_unpaired_test_misses() -> None:
    gain = stats.PairedTable(both=900, only_a=8, only_b=22, neither=389)
    assert gain.delta == pytest.approx(0.010614, abs=5e-7)
    assert gain.p == pytest.approx(0.016125, abs=5e-7)
    assert gain.se == pytest.approx(0.004142, abs=1e-5)


def test_identical_vectors() -> None:
    same = stats.paired_table([1] * 950 + [0] * 369, [1] * 950 + [0] * 369)
    assert same.p == 1
    low, high = same.interval(0.05)
    assert -low == high == pytest.approx(1 - 0.025 ** (1 / 1319))


@pytest.mark.parametrize("n", [2, 3, 5, 10, 50, 73])
def test_few_items_that_agree_show_no_equivalence(n: int) -> None:
    half = [1] * (n // 2) + [0] * (n - n // 2)
    for right in (half, [1] * n, [0] * n):
        table = stats.paired_table(right, right)
        decision = stats.decide(table.interval(0.05), table.equivalence_interval(0.05), p=table.p, margin=0.04)
        assert decision.verdict == "inconclusive"
        prior = stats.SeedNoise(sd=0.0, df=math.inf)
        for contrast in (
            stats.paired_means(right, right),
            stats.known_noise_contrast([right], [right], noise=prior),
            stats.recipe_contrast([right] * 2, [right] * 2),
        ):
            room = 1 - 0.05 ** (1 / n)  # none of n: what a share this large leaves unseen once in twenty
            low, high = contrast.equivalence_interval(0.05)
            assert -low == high >= room - 1e-12
            assert contrast.p == 1


def test_many_items_that_agree_do() -> None:
    same = [1] * 950 + [0] * 369
    assert stats.paired_table([1, 0] * 5, [1, 0] * 5).interval(0.05) == pytest.approx((-0.3085, 0.3085), abs=1e-4)
    for contrast in (stats.paired_table(same, same), stats.paired_means(same, same)):
        assert stats.equivalent(contrast.equivalence_interval(0.05), margin=0.004)


@pytest.mark.parametrize(("n", "discordance"), [(75, 0.04), (100, 0.05), (150, 0.04), (200, 0.08)])
def test_a_difference_as_large_as_the_margin_seldom_passes_as_none(n: int, discordance: float) -> None:
    """By enumeration of all outcomes: with Newcombe's interval alone up to 15 % of them did."""
    margin, found = 0.04, 0.0
    shares = ((discordance - margin) / 2, (discordance + margin) / 2, 1 - discordance)

    def log_chance(counts: tuple[int, ...]) -> float:
        pairs = [(count, share) for count, share in zip(counts, shares, strict=True) if count]
        if any(share <= 0 for _, share in pairs):
            return -math.inf
        return math.lgamma(n + 1) + sum(c * math.log(p) - math.lgamma(c + 1) for c, p in pairs)

    for only_a in range(n + 1):
        for only_b in range(n + 1 - only_a):
            chance = math.exp(log_chance((only_a, only_b, n - only_a - only_b)))
            if chance > 1e-6:
                both = (n - only_a - only_b) // 2
                table = stats.PairedTable(both=both, only_a=only_a, only_b=only_b, neither=n - only_a - only_b - both)
                found += chance * stats.equivalent(table.equivalence_interval(0.05), margin=margin)
    assert found <= 0.06


@pytest.mark.parametrize("n", [2, 3, 4])
def test_a_recipe_is_never_surer_than_its_checkpoints(n: int) -> None:
    a, b = np.zeros(n), np.ones(n)
    checkpoints = stats.paired_means(a, b)
    for noise in (stats.SeedNoise(sd=0.0153, df=math.inf), stats.SeedNoise(sd=0.0153, df=8)):
        assert stats.known_noise_contrast([a], [b], noise=noise).p > 0.05
        assert stats.known_noise_contrast([a], [b], noise=noise).p == pytest.approx(checkpoints.p, abs=0.02)


@pytest.mark.parametrize("n", [3, 5, 8, 20])
def test_few_items_of_several_samples_seldom_differ_by_chance(n: int) -> None:
    rng = np.random.default_rng(0)
    noise = stats.SeedNoise(sd=0.0153, df=math.inf)
    ability = rng.beta(0.2, 0.2, size=(2000, n))
    pairs = [(rng.binomial(4, p) / 4, rng.binomial(4, p) / 4) for p in ability]
    found = [stats.known_noise_contrast([a], [b], noise=noise).p < 0.05 for a, b in pairs]
    assert np.mean(found) <= 0.06


def test_equal_differences_of_few_items_are_no_certainty() -> None:
    assert stats.paired_means([0, 0], [1, 1]).p > 0.1
    assert stats.recipe_contrast([[0, 0, 0]] * 2, [[1, 1, 1]] * 2).se > 0.3


@settings(deadline=None)
@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30), st.integers(0, 30))
def test_newcombe_is_antisymmetric_and_holds_the_estimate(both: int, only_a: int, only_b: int, neither: int) -> None:
    if both + only_a + only_b + neither == 0:
        return
    there = stats.newcombe(both=both, only_a=only_a, only_b=only_b, neither=neither, alpha=0.05)
    back = stats.newcombe(both=both, only_a=only_b, only_b=only_a, neither=neither, alpha=0.05)
    assert there == pytest.approx((-back[1], -back[0]), abs=1e-12)
    delta = (only_b - only_a) / (both + only_a + only_b + neither)
    assert -1 - 1e-12 <= there[0] <= delta + 1e-12 <= there[1] + 2e-12 <= 1 + 4e-12


def test_several_samples_are_one_cluster() -> None:
    contrast = stats.paired_means([0.5, 1.0, 0.0, 0.25], [1.0, 1.0, 0.5, 0.25])
    assert contrast.delta == pytest.approx(0.25)
    assert contrast.se == pytest.approx(math.sqrt((4 * 0.0625) / 3) / 2)
    assert contrast.df == 3


def test_tipping_point() -> None:
    assert stats.tipping_point(60, 100, alpha=0.05) == 16
    assert stats.mcnemar_exact(60, 84) == pytest.approx(0.0549, abs=5e-5)
    assert stats.mcnemar_exact(60, 85) < 0.05
    assert stats.tipping_point(100, 60, alpha=0.05) == 16
    assert stats.tipping_point(40, 46, alpha=0.05) is None
    assert stats.tipping_point(0, 6, alpha=0.05) == 1  # p = 0.03125 with six wins, 0.0625 with five


# recipes


SEEDS_A, SEEDS_B = [0.7020, 0.7149, 0.6914], [0.7415, 0.7483, 0.7293]


def test_welch_on_seed_means() -> None:
    contrast = stats.welch_contrast(SEEDS_A, SEEDS_B)
    assert contrast.statistic == pytest.approx(4.207, abs=5e-4)
    assert contrast.df == pytest.approx(3.849, abs=5e-4)
    assert contrast.p == pytest.approx(0.01476, abs=5e-6)
    assert points(contrast.interval(0.05)) == [1.22, 6.17]
    decision = stats.decide(contrast.interval(0.05), contrast.interval(0.10), p=contrast.p, margin=0.04)
    assert decision.verdict == "better"


def test_seeds_by_items() -> None:
    contrast = stats.recipe_contrast(matrix("11110010 11100110 11010010"), matrix("11111010 11110111 11111010"))
    assert contrast.delta == pytest.approx(0.208333, abs=5e-7)
    assert contrast.se == pytest.approx(0.087684, abs=5e-7)
    assert contrast.df == pytest.approx(5.1587, abs=5e-5)
    assert [round(end, 4) for end in contrast.interval(0.05)] == [-0.0150, 0.4317]


def test_recipe_variance_by_hand() -> None:
    # seeds differ by a constant and items do not interact: no residual, seed and item parts add up
    item = np.array([0.1, 0.5, 0.9, 0.3])
    a = np.stack([item, item + 0.02])
    b = np.stack([item * 0.5 + 0.3, item * 0.5 + 0.34])
    parts = stats.variance_parts(a, b)
    assert parts.residual == pytest.approx(0, abs=1e-18)
    assert parts.seed_a == pytest.approx(0.0002 / 2)
    assert parts.seed_b == pytest.approx(0.0008 / 2)
    assert parts.item == pytest.approx(float(np.var(item * 0.5, ddof=1)) / 4)
    contrast = stats.recipe_contrast(a, b)
    assert contrast.se**2 == pytest.approx(parts.seed_a + parts.seed_b + parts.item)


def test_recipe_variance_never_falls_below_its_parts() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        a, b = rng.integers(0, 2, size=(2, 3, 9))
        parts = stats.variance_parts(a, b)
        assert stats.recipe_contrast(a, b).se ** 2 >= max(parts.seed_a + parts.seed_b, parts.item) - 1e-15


def test_one_seed_each_with_the_prior() -> None:
    a = np.array([[1] * 890 + [1] * 60 + [0] * 100 + [0] * 269])
    b = np.array([[1] * 890 + [0] * 60 + [1] * 100 + [0] * 269])
    noise = stats.pool_seed_noise([])
    assert (noise.sd, noise.df) == (0.0153, math.inf)
    contrast = stats.known_noise_contrast(a, b, noise=noise)
    assert points(contrast.interval(0.05)) == [-1.60, 7.67]
    decision = stats.decide(contrast.interval(0.05), contrast.interval(0.10), p=contrast.p, margin=0.04)
    assert decision.verdict == "inconclusive"


def test_prior_and_measured_seeds_are_pooled() -> None:
    noise = stats.pool_seed_noise([[0.70, 0.72, 0.74], [0.5, 0.52], [0.9]])
    expected = (6 * 0.0153**2 + 2 * 0.0004 + 1 * 0.0002) / 9
    assert noise.sd == pytest.approx(math.sqrt(expected))
    assert noise.df == 9


def test_three_seeds_pin_the_sd_to_a_factor() -> None:
    low, high = stats.sd_factors(3)
    assert (round(low, 2), round(high, 1)) == (0.52, 6.3)


# decisions


def test_grader_error_must_be_cleared() -> None:
    contrast = table(60, 100)
    ends, inner = contrast.interval(0.05), contrast.interval(0.10)
    assert stats.decide(ends, inner, p=contrast.p, margin=0.04, grader_error=0.011).verdict == "better"
    assert stats.decide(ends, inner, p=contrast.p, margin=0.04, grader_error=0.012).verdict == "inconclusive"
    small = table(40, 46)
    same = {"p": small.p, "margin": 0.04}
    ends, inner = small.interval(0.05), small.interval(0.10)
    assert stats.decide(ends, inner, **same, grader_error=0.023).verdict == "no_material_difference"
    assert stats.decide(ends, inner, **same, grader_error=0.024).verdict == "inconclusive"


def test_adjusted_p_vetoes() -> None:
    contrast = table(60, 100)
    decision = stats.decide(contrast.interval(0.05), contrast.interval(0.10), p=0.05, margin=0.04)
    assert decision.verdict == "inconclusive"


def test_holm() -> None:
    adjusted = stats.holm([0.00195373, 0.0087, 0.0614, 0.59, 0.021, 0.013, 0.584])
    assert adjusted == pytest.approx([0.01367611, 0.0522, 0.1842, 1, 0.084, 0.065, 1], abs=1e-8)
    assert stats.holm([]) == []
    assert stats.holm([0.04, 0.03]) == pytest.approx([0.06, 0.06])  # never below the smaller one's


@pytest.mark.parametrize(
    ("difference", "verdict"),
    [
        (53, "better"),
        (52, "no_material_difference"),
        (-53, "worse"),
        (-52, "no_material_difference"),
        (0, "no_material_difference"),
    ],
)
def test_simple_rule_on_counts(difference: int, verdict: str) -> None:
    assert stats.simple_rule(difference, 1319, margin=4.0).verdict == verdict


def test_simple_rule_at_the_margin_is_exact() -> None:
    assert stats.simple_rule(-4, 100, margin=4.0).verdict == "worse"
    assert stats.simple_rule(29, 1000, margin=2.9).verdict == "better"
    assert stats.simple_rule_of_scores(0.579, 0.539, margin=4.0).verdict == "worse"
    assert stats.simple_rule_of_scores(0.579, 0.5391, margin=4.0).verdict == "no_material_difference"
    assert 100 * (0.579 - 0.539) < 4.0  # why summaries are rounded
