"""What a stratified sample of checked items says about all of them: shares, sums and ratios of shares, with intervals.

A stratum's share has the exact interval (Clopper and Pearson, Biometrika 26 (1934) 404-413: a stratum mostly shows no
error or one, where Wilson's covers 90 % instead of 95 %) with the finite population correction: checking every item
leaves no doubt. Sums of shares are combined by MOVER (Zou and Donner, Statistics in Medicine 27 (2008) 1693-1702).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import msgspec

from rlforge_cli.errors import UserError
from rlforge_cli.stats.beta import incomplete_beta
from rlforge_cli.stats.distributions import Interval


class Stratum(msgspec.Struct, frozen=True):
    """``asked`` of ``size`` items were checked and ``yes`` of them affirmed; ``weight`` is its share of all items.

    Example: ``Stratum(weight=0.8, size=800, asked=32, yes=31)``.
    """

    weight: float
    size: int
    asked: int
    yes: float
    """A count; a part of one where a larger sample is imagined."""

    @property
    def share(self) -> float:
        return self.yes / self.asked

    def interval(self, alpha: float = 0.05) -> Interval:
        """Of the share among all ``size`` items."""
        if self.asked >= self.size:
            return self.share, self.share
        # var of a sample without replacement is smaller by (N - n) / (N - 1): as if more had been checked
        effective = self.asked * (self.size - 1) / (self.size - self.asked)
        return exact_interval(self.share * effective, effective, alpha)

    def denied(self) -> Stratum:
        """The same check, counted by the items that were not affirmed."""
        return msgspec.structs.replace(self, yes=self.asked - self.yes)


def exact_interval(successes: float, n: float, alpha: float = 0.05) -> Interval:
    """Of a proportion, never covering less than 1 - alpha. Example: ``exact_interval(0, 34)`` -> ``(0, 0.10282)``."""
    failures = n - successes
    low = _quantile(alpha / 2, successes, failures + 1) if successes > 0 else 0.0
    high = _quantile(1 - alpha / 2, successes + 1, failures) if failures > 0 else 1.0
    return low, high


def _quantile(p: float, a: float, b: float) -> float:
    """Of the beta distribution."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if incomplete_beta(a, b, middle) < p else (low, middle)
    return (low + high) / 2


def allocate(sizes: Mapping[str, int], n: int) -> dict[str, int]:
    """How many of ``n`` checks each stratum gets; growing ``n`` never takes one away.

    The interval of a stratum without errors is about 3/n_h wide, so the sum of (size_h / n_h)^2 is made least: each
    check goes where it takes most away. Example: sizes 800, 100, 100 and n = 50 -> 34, 8, 8.

    Raises:
        UserError: fewer checks than strata with items.
    """
    counts = {name: min(1, size) for name, size in sizes.items()}
    if n < sum(counts.values()):
        raise UserError(f"--n {n}: at least one item of each of the {sum(counts.values())} strata must be checked")
    while sum(counts.values()) < min(n, sum(sizes.values())):
        open_ones = [name for name in sizes if 0 < counts[name] < sizes[name]]

        def gain(name: str) -> float:
            return sizes[name] ** 2 * (counts[name] ** -2 - (counts[name] + 1) ** -2)

        counts[max(open_ones, key=gain)] += 1
    return counts


def weighted_sum(terms: Sequence[tuple[float, Stratum]], alpha: float = 0.05) -> tuple[float, Interval]:
    """The sum of coefficient x share over independent strata, and its interval (MOVER)."""
    return _mover([(coefficient, stratum.share, stratum.interval(alpha)) for coefficient, stratum in terms])


def _mover(terms: Sequence[tuple[float, float, Interval]]) -> tuple[float, Interval]:
    """The sum of coefficient x share, where each share has an interval of its own."""
    value, below, above = 0.0, 0.0, 0.0
    for coefficient, share, (low, high) in terms:
        down, up = share - low, high - share
        if coefficient < 0:
            down, up = up, down
        value += coefficient * share
        below += (coefficient * down) ** 2
        above += (coefficient * up) ** 2
    return value, (value - math.sqrt(below), value + math.sqrt(above))


def ratio(part: Sequence[Stratum], rest: Sequence[Stratum], alpha: float = 0.05) -> tuple[float | None, Interval]:
    """Of all affirmed items, the share that lies in ``part``, and its interval; None where none is affirmed.

    The interval holds every ratio r that the interval of (1 - r) x part - r x rest cannot tell from 0.
    """

    terms = [(True, s.weight, s.share, s.interval(alpha)) for s in part]
    terms += [(False, s.weight, s.share, s.interval(alpha)) for s in rest]

    def difference(r: float) -> tuple[float, Interval]:
        return _mover([((1 - r if ours else -r) * weight, share, known) for ours, weight, share, known in terms])

    inside = sum(s.weight * s.share for s in part)
    total = inside + sum(s.weight * s.share for s in rest)
    low = _crossing(lambda r: difference(r)[1][0])
    high = _crossing(lambda r: difference(r)[1][1])
    return (inside / total if total else None), (low, high)


def _crossing(end: Callable[[float], float]) -> float:
    """Where a falling function of 0..1 leaves the positive numbers."""
    low, high = 0.0, 1.0
    if end(high) >= 0:
        return 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if end(middle) > 0 else (low, middle)
    return low
