"""Axes: round ticks, and the texts beside them."""

from __future__ import annotations

import math

import msgspec


class Scale(msgspec.Struct, frozen=True):
    """Values ``low`` .. ``high`` on pixels ``start`` .. ``end``. ``Scale(low=0, high=1, start=40, end=350)``."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def padded(low: float, high: float, *, share: float = 0.06) -> tuple[float, float]:
    """The range with some air around it; a single value gets a range of its own size."""
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        half = abs(high) / 2 or 0.5
        return low - half, high + half
    air = share * (high - low)
    return low - air, high + air


def step_for(span: float, *, most: int) -> float:
    """The smallest of 1, 2, 2.5 and 5 times a power of ten that cuts ``span`` into at most ``most`` intervals."""
    raw = span / most
    power = 10.0 ** math.floor(math.log10(raw))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * (1 - 1e-9))


def ticks(low: float, high: float, *, most: int = 5) -> list[float]:
    """Round values inside ``low`` .. ``high``, at most ``most`` + 1 of them."""
    step = step_for(high - low, most=most)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [index * step for index in range(first, last + 1)]


def tick_labels(values: list[float], *, percent: bool = False) -> list[str]:
    """All with the digits that tell neighbours apart.

    Example: ``[0.0, 0.25, 0.5]`` -> ``["0.00", "0.25", "0.50"]``; ``[0, 2e5]`` -> ``["0", "200k"]``.
    """
    shown = [100 * value for value in values] if percent else values
    step = abs(shown[1] - shown[0]) if len(shown) > 1 else abs(shown[0]) if shown else 0.0
    largest = max(map(abs, shown), default=0.0)
    if largest >= 1e7 or 0 < largest < 1e-4:
        texts = [f"{value:.3g}" for value in shown]
    elif largest >= 1e4 and step >= 100:
        digits = 0 if step % 1000 == 0 else 1
        texts = [f"{value / 1000:.{digits}f}k" if value else "0" for value in shown]
    else:
        digits = next((d for d in range(7) if math.isclose(step, round(step, d), rel_tol=1e-6, abs_tol=1e-12)), 6)
        texts = [f"{value:.{digits}f}" for value in shown]
    return [text.replace("-", "−") + ("%" if percent else "") for text in texts]
