"""One metric over all runs as an SVG picture: the logged values faintly, the smoothed curve strongly."""

from __future__ import annotations

from html import escape

import numpy as np

from rlforge_cli.report.blocks import Line, Panel
from rlforge_cli.report.scale import Scale, padded, tick_labels, ticks
from rlforge_cli.report.series import FEWEST_TO_SMOOTH, pieces, smoothed, thinned
from rlforge_cli.report.text import one_line

WIDTH, HEIGHT = 360.0, 196.0
LEFT, RIGHT, TOP, BOTTOM = 44.0, 8.0, 18.0, 34.0
COLOURS = 9
"""Colours of the style sheet; the tenth run would have the first again."""
OUTLIERS = 0.5
"""Percent of the logged values at either end that the vertical axis need not show."""


def colour_class(colour: int) -> str:
    return f"c{colour % COLOURS}"


def picture(panel: Panel) -> str:
    """A drawing of ``panel`` that scales with its place."""
    x_values = np.concatenate([line.series.x for line in panel.lines])
    x_values = x_values[np.isfinite(x_values)]
    x_low, x_high = float(x_values.min(initial=0.0)), float(x_values.max(initial=1.0))
    low, high = _range(panel)
    x = Scale(low=x_low, high=x_high, start=LEFT, end=WIDTH - RIGHT)
    y = Scale(low=low, high=high, start=HEIGHT - BOTTOM, end=TOP)
    parts = [_axes(panel, x, y)]
    inner = [_line(line, x, y, raw=True) for line in panel.lines] + [
        _line(line, x, y, raw=False) for line in panel.lines
    ]
    # an inner svg clips what the axis leaves out
    box = f'x="{LEFT:g}" y="{TOP:g}" width="{WIDTH - LEFT - RIGHT:g}" height="{HEIGHT - TOP - BOTTOM:g}"'
    view = f"{LEFT:g} {TOP:g} {WIDTH - LEFT - RIGHT:g} {HEIGHT - TOP - BOTTOM:g}"
    parts.append(f'<svg {box} viewBox="{view}">{"".join(inner)}</svg>')
    name = escape(one_line(f"{panel.title} ({panel.key})"), quote=True)
    return (
        f'<svg class="plot" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{name}">'
        + "".join(parts)
        + "</svg>"
    )


def _range(panel: Panel) -> tuple[float, float]:
    """Every smoothed value, and the logged ones but for the outermost; shares stay within 0..1."""
    logged = np.concatenate([line.series.finite for line in panel.lines])
    curves = np.concatenate([smoothed(line.series) for line in panel.lines])
    curves = curves[np.isfinite(curves)]
    few = len(logged) < 100
    low, high = (logged.min(), logged.max()) if few else np.percentile(logged, [OUTLIERS, 100 - OUTLIERS])
    low, high = padded(min(float(low), float(curves.min())), max(float(high), float(curves.max())))
    return (max(low, -0.02), min(high, 1.02)) if panel.unit == "percent" else (low, high)


def _axes(panel: Panel, x: Scale, y: Scale) -> str:
    parts = []
    levels = ticks(y.low, y.high, most=4)
    for value, text in zip(levels, tick_labels(levels, percent=panel.unit == "percent"), strict=True):
        at = f"{y(value):.1f}"
        parts.append(f'<line class="grid" x1="{LEFT:g}" x2="{WIDTH - RIGHT:g}" y1="{at}" y2="{at}"/>')
        parts.append(
            f'<text class="tick" x="{LEFT - 5:g}" y="{at}" dy="0.32em" text-anchor="end">{escape(text)}</text>'
        )
    base = HEIGHT - BOTTOM
    parts.append(f'<line class="axis" x1="{LEFT:g}" x2="{WIDTH - RIGHT:g}" y1="{base:g}" y2="{base:g}"/>')
    places = ticks(x.low, x.high, most=5)
    for value, text in zip(places, tick_labels(places), strict=True):
        place = x(value)
        parts.append(f'<line class="axis" x1="{place:.1f}" x2="{place:.1f}" y1="{base:g}" y2="{base + 4:g}"/>')
        anchor = "end" if place > WIDTH - RIGHT - 12 else "middle"
        parts.append(
            f'<text class="tick" x="{place:.1f}" y="{base + 15:g}" text-anchor="{anchor}">{escape(text)}</text>'
        )
    middle = (LEFT + WIDTH - RIGHT) / 2
    label = escape(panel.x_label)
    parts.append(f'<text class="tick" x="{middle:g}" y="{HEIGHT - 4:g}" text-anchor="middle">{label}</text>')
    if panel.unit not in ("percent", ""):
        parts.append(f'<text class="tick" x="{LEFT - 5:g}" y="9" text-anchor="start">{escape(panel.unit)}</text>')
    return "".join(parts)


def _line(line: Line, x: Scale, y: Scale, *, raw: bool) -> str:
    series = line.series
    sparse = len(series.y) < FEWEST_TO_SMOOTH
    if raw and sparse:
        return ""
    values = series.y if raw else smoothed(series)
    drawn = []
    kind = f"{'raw' if raw else 'curve'} {colour_class(line.colour)}"
    for piece in pieces(*thinned(series.x, values, extremes=raw)):
        points = [(x(a), y(b)) for a, b in piece]
        if len(points) > 1:
            path = "L".join(f"{a:.1f} {b:.1f}" for a, b in points)
            drawn.append(f'<path class="{kind}" d="M{path}"/>')
        if not raw and (sparse or len(points) == 1):
            drawn += [
                f'<circle class="dot {colour_class(line.colour)}" cx="{a:.1f}" cy="{b:.1f}" r="2.4"/>'
                for a, b in points
            ]
    return "".join(drawn)


def swatch(line: Line) -> str:
    """A piece of the line for the legend."""
    return (
        '<svg class="swatch" width="26" height="10" viewBox="0 0 26 10" aria-hidden="true">'
        f'<path class="curve {colour_class(line.colour)}" d="M1 5L25 5"/></svg>'
    )
