"""How many items or seeds it takes to see a difference."""

from __future__ import annotations

import math

from rlforge_cli.errors import UserError
from rlforge_cli.stats.distributions import noncentral_t_power, normal_quantile


def items_needed(effect: float, discordance: float, *, power: float = 0.8, alpha: float = 0.05) -> int:
    """Paired items that detect ``effect`` when a share ``discordance`` of items is right on one side only.

    N = ((z_{alpha/2} sqrt(psi) + z_beta sqrt(psi - effect^2)) / effect)^2 (Connor, Biometrics 43 (1987) 207-211).
    Both arguments in proportions. A difference cannot exceed the discordance, so the larger of the two is used as psi.
    """
    if effect <= 0:
        raise UserError(f"the effect to detect must be above 0, not {effect}")
    psi = max(discordance, effect)
    root = normal_quantile(1 - alpha / 2) * math.sqrt(psi) + normal_quantile(power) * math.sqrt(psi - effect**2)
    return math.ceil((root / effect) ** 2)


def exact_items_needed(effect: float, discordance: float, *, power: float = 0.8, alpha: float = 0.05) -> int:
    """Paired items that give the *exact* McNemar test that power: Connor's count is for the z test, about 2 % short.

    N/4 (1 + sqrt(1 + 4/(N effect)))^2: the continuity correction of Casagrande, Pike and Smith (Biometrics 34 (1978)
    483-486), for a binomial test of psi*N discordant items.
    """
    connor = items_needed(effect, discordance, power=power, alpha=alpha)
    return math.ceil(connor / 4 * (1 + math.sqrt(1 + 4 / (connor * effect))) ** 2)


def detectable_effect(n: int, discordance: float, *, power: float = 0.8, alpha: float = 0.05) -> float:
    """The smallest difference (proportion) that ``n`` paired items detect: Connor's formula solved for the effect."""
    z_alpha, z_beta = normal_quantile(1 - alpha / 2), normal_quantile(power)
    low, high = 0.0, discordance
    for _ in range(60):  # bisection to the last bit: the needed n falls as the effect grows
        middle = (low + high) / 2
        enough = z_alpha * math.sqrt(discordance) + z_beta * math.sqrt(discordance - middle**2) <= middle * math.sqrt(n)
        low, high = (low, middle) if enough else (middle, high)
    return high


def seeds_power(
    seeds: int, *, effect: float, seed_sd: float, item_se: float, n_items: int, alpha: float = 0.05
) -> float:
    """Power of the recipe comparison with ``seeds`` >= 2 seeds in each arm (noncentral t, Satterthwaite df).

    ``effect``, ``seed_sd`` and ``item_se`` share one unit; ``item_se`` is the item part of the standard error.
    """
    seed_part = seed_sd**2 / seeds
    variance = 2 * seed_part + item_se**2
    if variance == 0:
        return 1.0
    df = variance**2 / (2 * seed_part**2 / (seeds - 1) + item_se**4 / (n_items - 1))
    return noncentral_t_power(effect / math.sqrt(variance), df, alpha=alpha)


def seeds_needed(
    effect: float, *, seed_sd: float, item_se: float, n_items: int, power: float = 0.8, alpha: float = 0.05
) -> int | None:
    """Seeds an arm that detect ``effect``, at least 2; None when the item noise alone hides it.

    Example (points): effect 4, item SE 0.7, 1,319 items -> 3, 4, 6, 13 seeds for a seed SD of 1.08, 1.5, 2, 3.
    """
    if effect <= 0 or (item_se and noncentral_t_power(effect / item_se, n_items - 1, alpha=alpha) < power):
        return None

    def enough(seeds: int) -> bool:
        return (
            seeds_power(seeds, effect=effect, seed_sd=seed_sd, item_se=item_se, n_items=n_items, alpha=alpha) >= power
        )

    high = 2
    while not enough(high):
        high *= 2
        if high > 1_000_000:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return max(2, high)
