"""Power, seeds needed, grader error and trends."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special

from rlforge_cli import stats
from rlforge_cli.errors import UserError

N = 1319

# power


def test_detectable_effects() -> None:
    found = [100 * stats.detectable_effect(N, psi) for psi in (0.05, 0.10, 0.15, 0.20)]
    assert found == pytest.approx([1.72, 2.44, 2.98, 3.45], abs=0.0051)


def test_connor_is_the_inverse_of_the_detectable_effect() -> None:
    for psi in (0.05, 0.15, 0.20):
        assert stats.items_needed(stats.detectable_effect(N, psi), psi) in (N, N + 1)
    assert stats.items_needed(0.0298, 0.15) == 1324


@pytest.mark.parametrize("psi", [0.05, 0.10, 0.15, 0.20])
def test_the_exact_test_has_its_power_at_the_corrected_count(psi: float) -> None:
    effect = stats.detectable_effect(N, psi)
    assert 0.77 < exact_power(N, psi, effect) < 0.80  # Connor's count is for the z test
    assert 0.795 < exact_power(stats.exact_items_needed(effect, psi), psi, effect) < 0.82


def exact_power(n: int, psi: float, effect: float) -> float:
    """Power of exact McNemar by enumeration over discordant counts and wins."""
    total = 0.0
    for discordant in range(1, n + 1):
        weight = math.exp(_log_binomial(n, discordant, psi))
        if weight < 1e-8:
            continue
        wins = np.arange(discordant + 1)
        losing = np.minimum(wins, discordant - wins)
        significant = (2 * special.bdtr(losing, discordant, 0.5) < 0.05) & (2 * wins > discordant)
        chance = np.exp(_log_binomial(discordant, wins, (psi + effect) / (2 * psi)))
        total += weight * float(chance[significant].sum())
    return total


def _log_binomial(n: int, k: np.ndarray | int, p: float) -> np.ndarray:
    choose = special.gammaln(n + 1) - special.gammaln(np.add(k, 1)) - special.gammaln(np.subtract(n + 1, k))
    return choose + np.multiply(k, math.log(p)) + np.subtract(n, k) * math.log1p(-p)


@pytest.mark.parametrize(("seed_sd", "seeds"), [(1.08, 3), (1.5, 4), (2, 6), (3, 13)])
def test_seeds_needed(seed_sd: float, seeds: int) -> None:
    assert stats.seeds_needed(4, seed_sd=seed_sd, item_se=0.7, n_items=N) == seeds
    power = stats.seeds_power(seeds, effect=4, seed_sd=seed_sd, item_se=0.7, n_items=N)
    assert power >= 0.8 > stats.seeds_power(seeds - 1, effect=4, seed_sd=seed_sd, item_se=0.7, n_items=N)


def test_no_number_of_seeds_beats_the_item_noise() -> None:
    assert stats.seeds_needed(4, seed_sd=1.5, item_se=1.5, n_items=N) is None
    assert stats.seeds_needed(4, seed_sd=1.5, item_se=1.42, n_items=N) is not None
    assert stats.seeds_needed(4, seed_sd=0.0, item_se=0.0, n_items=N) == 2


# graders


def test_rogan_gladen() -> None:
    assert stats.rogan_gladen(3.8, sensitivity=0.97, specificity=0.98) == pytest.approx(4.0)
    with pytest.raises(UserError, match="chance"):
        stats.rogan_gladen(3.8, sensitivity=0.5, specificity=0.5)


def test_bias_difference_bound() -> None:
    # 0.5 apart, half-widths 0.3 and 0.4 combine to 0.5
    assert stats.bias_difference_bound(1.0, (0.7, 1.3), 1.5, (1.1, 1.9)) == pytest.approx(1.0)
    assert stats.bias_difference_bound(1.5, (1.1, 1.9), 1.0, (0.7, 1.3)) == pytest.approx(1.0)


# trends


def test_mann_kendall_by_hand() -> None:
    # 10 of 10 pairs rise: S = 10, var = 5*4*15/18, z = 9/sqrt(16.667)
    assert stats.mann_kendall([1, 2, 3, 4, 5]).z == pytest.approx(9 / math.sqrt(50 / 3))
    tied = stats.mann_kendall([1, 1, 2, 3])  # S = 5, ties of two take 18 from 4*3*13
    assert tied.z == pytest.approx(4 / math.sqrt((156 - 18) / 18))
    assert stats.mann_kendall([2.0] * 9).p == 1
    assert stats.mann_kendall([1, 2, 3]).p == 1


def test_blocks_drop_the_start_and_what_is_not_finite() -> None:
    assert stats.block_means([9, 1, math.nan, 3, 5, 7], block=2).tolist() == [2, 6]
    assert stats.curve_trend(range(50), block=20).blocks == 2


@pytest.mark.parametrize(
    ("rho", "plain", "blocked"), [(0.6, (0.28, 0.40), (0.03, 0.08)), (0.9, (0.55, 0.70), (0.06, 0.14))]
)
def test_blocks_tame_false_alarms(rho: float, plain: tuple[float, float], blocked: tuple[float, float]) -> None:
    rng = np.random.default_rng(7)
    curves = np.zeros((600, 200))
    noise = rng.normal(size=curves.shape)
    curves[:, 0] = noise[:, 0] / math.sqrt(1 - rho**2)
    for step in range(1, 200):
        curves[:, step] = rho * curves[:, step - 1] + noise[:, step]
    alarms = np.mean([stats.mann_kendall(curve).p < 0.05 for curve in curves])
    tamed = np.mean([stats.curve_trend(curve).p < 0.05 for curve in curves])
    assert plain[0] < alarms < plain[1]
    assert blocked[0] < tamed < blocked[1]
