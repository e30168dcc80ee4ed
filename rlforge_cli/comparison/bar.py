"""An interval drawn in text around zero, with the margin's band."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

Interval = Sequence[float]


class Scale(msgspec.Struct, frozen=True):
    """From ``-limit`` to ``limit`` points over ``width`` (odd) characters.

    Example: ``Scale(limit=12, margin=4, width=21)``.
    """

    limit: float
    margin: float
    width: int

    def place(self, points: float) -> int:
        """Column of a value; beyond the scale, its outermost column."""
        inside = max(-self.limit, min(self.limit, points))
        return round((inside + self.limit) / (2 * self.limit) * (self.width - 1))


def scale_for(intervals: Iterable[Interval], *, margin: float, width: int) -> Scale:
    """A scale that shows every interval, at least half as much again as the margin, at most three margins."""
    furthest = max((abs(end) for interval in intervals for end in interval), default=0.0)
    return Scale(limit=min(3 * margin, max(1.5 * margin, furthest)), margin=margin, width=width)


def axis(scale: Scale) -> str:
    """The header above the bars: the margin's ends and zero.

    Example: ``"   -4   0   +4   "``.
    """
    line = [" "] * scale.width
    for value in (-scale.margin, scale.margin, 0.0):
        label = f"{value:+g}" if value else "0"
        start = max(0, min(scale.width - len(label), scale.place(value) - len(label) // 2))
        line[start : start + len(label)] = label
    return "".join(line)


def bar(interval: Interval, estimate: float, scale: Scale) -> str:
    """One interval. Example: ``"   ┊   │ ━●━┿    "``; an arrow marks an end beyond the scale, and the estimate then
    keeps clear of the arrow."""
    line = [" "] * scale.width
    marks = {scale.place(-scale.margin): "┊", scale.place(scale.margin): "┊", scale.place(0.0): "│"}
    for column, mark in marks.items():
        line[column] = mark
    for column in range(scale.place(interval[0]), scale.place(interval[1]) + 1):
        line[column] = "┿" if column in marks else "━"
    cut_low, cut_high = interval[0] < -scale.limit, interval[1] > scale.limit
    line[max(int(cut_low), min(scale.width - 1 - cut_high, scale.place(estimate)))] = "●"
    if cut_low:
        line[0] = "◀"
    if cut_high:
        line[-1] = "▶"
    return "".join(line)
