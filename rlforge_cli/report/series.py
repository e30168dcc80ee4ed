"""A metric of a run as a curve: reading, smoothing, thinning, and its first and last tenth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
SMOOTH = 0.04
"""Standard deviation of the smoothing kernel, as a share of the curve: equal for runs of unequal step counts."""
WINDOW = 0.1
"""Share of the steps at either end that a start and an end average."""
FEWEST_TO_SMOOTH = 30
"""Shorter curves (validations) are drawn point by point."""
LARGEST = 1e100
"""Beyond it nothing was measured: sums and squares of such values overflow."""
MOST_POINTS = 240
"""Longer curves are thinned for drawing: each bin of a raw curve keeps its lowest and its highest value."""


class Series(msgspec.Struct, frozen=True):
    """One metric of one run: ``x`` (steps or completions generated), ``y``, both [n]; NaN: a value was not finite."""

    x: Array
    y: Array

    @property
    def finite(self) -> Array:
        return self.y[np.isfinite(self.y)]


def number(record: dict[str, Any], key: str) -> float | None:
    """A logged value; NaN when it was logged and is no finite number, None when it was not logged."""
    value = record.get(key)
    if value is None:
        lost = record.get("_nonfinite")
        return math.nan if isinstance(lost, list) and key in lost else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if -LARGEST < value < LARGEST else math.nan


def read(records: Sequence[dict[str, Any]], key: str, *, x: str = "step") -> Series:
    """The records that logged ``key``. A record without ``x`` (the validation before training) stands at 0."""
    pairs = [(number(record, x) or 0.0, value) for record in records if (value := number(record, key)) is not None]
    return Series(x=np.array([a for a, _ in pairs], dtype=float), y=np.array([b for _, b in pairs], dtype=float))


def start_and_end(series: Series) -> tuple[float, float] | None:
    """Means over the first and the last tenth; NaN when a value there is not finite, None without values."""
    n = len(series.y)
    if n == 0:
        return None
    width = math.ceil(WINDOW * n)
    return float(series.y[:width].mean()), float(series.y[n - width :].mean())


def smoothed(series: Series) -> Array:
    """Centred Gaussian mean of the finite values; NaN stays where a value was not finite."""
    n = len(series.y)
    if n < FEWEST_TO_SMOOTH:
        return series.y
    sd = max(1.0, SMOOTH * n)
    reach = min(math.ceil(3 * sd), n - 1)
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sd) ** 2)
    known = np.isfinite(series.y)
    weights = np.convolve(known.astype(float), kernel)[reach : reach + n]
    sums = np.convolve(np.where(known, series.y, 0.0), kernel)[reach : reach + n]
    return np.where(known, sums / np.where(known, weights, 1.0), np.nan)


def thinned(x: Array, y: Array, *, extremes: bool) -> tuple[Array, Array]:
    """At most about :data:`MOST_POINTS` points: every bin's extremes in order, or evenly spaced ones."""
    n = len(y)
    if n <= MOST_POINTS:
        return x, y
    if not extremes:
        keep = np.unique(np.linspace(0, n - 1, MOST_POINTS).round().astype(int))
        return x[keep], y[keep]
    edges = np.linspace(0, n, MOST_POINTS // 2 + 1).astype(int)
    kept: list[int] = []
    for low, high in pairwise(edges.tolist()):
        part = y[low:high]
        if np.isfinite(part).all():
            kept += sorted({low + int(part.argmin()), low + int(part.argmax())})
        else:
            kept.append(low + int(np.flatnonzero(~np.isfinite(part))[0]))
    return x[kept], y[kept]


def pieces(x: Array, y: Array) -> list[list[tuple[float, float]]]:
    """The unbroken stretches of finite points."""
    found: list[list[tuple[float, float]]] = [[]]
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        if math.isfinite(a) and math.isfinite(b):
            found[-1].append((a, b))
        elif found[-1]:
            found.append([])
    return [piece for piece in found if piece]
