"""Training curves as doctor reads them: block averages of 20 steps, and trends that are steady and large enough."""

from __future__ import annotations

import math
import statistics
from typing import Any

import msgspec

from rlforge_cli.config import Config
from rlforge_cli.stats.trend import BLOCK, block_means, curve_trend

ALPHA = 0.02
"""Of a trend. Curves are autocorrelated: on AR(1) noise of 0.9 this raises about 3 to 7 % alarms, not 2 %."""


class Curves(msgspec.Struct, frozen=True, kw_only=True):
    """A run as logged. Example: ``Curves(config=Config(), records=run.metrics())``."""

    config: Config
    records: list[dict[str, Any]]
    """Steps from 1 on."""
    validations: list[tuple[int, float]] = []
    """(step, greedy accuracy)."""
    validation_problems: int = 0
    completions: list[tuple[int, str, str]] = []
    """(step, problem id, text) of the sampled completions."""

    def series(self, name: str) -> list[float]:
        """Finite values of a metric, one a step."""
        values = [r.get(name) for r in self.records]
        return [float(v) for v in values if isinstance(v, (int, float)) and math.isfinite(v)]

    def blocks(self, name: str) -> list[float]:
        """Means of 20 consecutive steps, the last one ending at the last step."""
        return [float(value) for value in block_means(self.series(name))]

    def first(self, name: str) -> float | None:
        """Mean of the first 20 steps of a run that has at least 40."""
        values = self.series(name)
        return statistics.fmean(values[:BLOCK]) if len(values) >= 2 * BLOCK else None

    def last(self, name: str) -> float | None:
        """Mean of the last 20 steps of a run that has at least 40."""
        values = self.series(name)
        return statistics.fmean(values[-BLOCK:]) if len(values) >= 2 * BLOCK else None

    def direction(self, name: str) -> int:
        """1 rising, -1 falling, 0 neither shown."""
        return direction(self.series(name))

    def course(self, name: str) -> str:
        """Evidence: ``kl_ref 0.010 -> 0.412 (blocks of 20: 0.010, 0.09, 0.412)``; at most six blocks."""
        blocks = self.blocks(name)
        if not blocks:
            return f"{name} not logged"
        step = max(1, math.ceil(len(blocks) / 6))
        shown = [*blocks[:-1:step], blocks[-1]]
        return f"{name} {' -> '.join(f'{value:.3g}' for value in shown)}"


def direction(values: list[float]) -> int:
    """Mann-Kendall on block means, at :data:`ALPHA`."""
    trend = curve_trend(values)
    return 0 if trend.p >= ALPHA else 1 if trend.z > 0 else -1
