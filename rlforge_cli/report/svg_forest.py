"""Differences as intervals around zero. Places are percentages, so a strip fits any width and text never shrinks."""

from __future__ import annotations

from html import escape

from rlforge_cli.report.blocks import Difference, Forest
from rlforge_cli.report.scale import Scale, tick_labels, ticks
from rlforge_cli.report.text import one_line

HEIGHT = 26
MOST_MARGINS = 6
"""Margins shown to either side of zero at most; an arrow marks what lies beyond."""
EDGE = 1.5
"""Percent of the width kept free at either end, for arrows and the outermost label."""


def scale_of(block: Forest) -> Scale:
    """Symmetric around zero, from one and a half margins on."""
    known = [abs(end) for row in block.rows if row.ci95 is not None for end in row.ci95]
    known += [abs(row.delta) for row in block.rows if row.delta is not None]
    limit = min(MOST_MARGINS * block.margin, max(1.5 * block.margin, 1.05 * max(known, default=0.0)))
    return Scale(low=-limit, high=limit, start=EDGE, end=100 - EDGE)


def _ground(block: Forest, scale: Scale) -> str:
    left, right, zero = scale(-block.margin), scale(block.margin), scale(0.0)
    band = f'<rect class="band" x="{left:.2f}%" y="0" width="{right - left:.2f}%" height="100%"/>'
    return band + f'<line class="zero" x1="{zero:.2f}%" x2="{zero:.2f}%" y1="0" y2="100%"/>'


def strip(row: Difference, block: Forest, scale: Scale) -> str:
    """One row's interval."""
    name = escape(one_line(f"{row.run}: {row.numbers}, {row.word}"), quote=True)
    parts = [_ground(block, scale)]
    middle = HEIGHT / 2
    for ends, kind in ((row.ci95, "ci95"), (row.ci90, "ci90")):
        if ends is not None:
            low, high = (scale(min(max(end, scale.low), scale.high)) for end in ends)
            parts.append(
                f'<line class="{kind} v-{row.verdict}" x1="{low:.2f}%" x2="{high:.2f}%" y1="{middle}" y2="{middle}"/>'
            )
    if row.ci95 is not None and row.ci95[0] < scale.low:
        parts.append(_arrow(scale.start, "M0 0L7 -5L7 5Z", row.verdict))
    if row.ci95 is not None and row.ci95[1] > scale.high:
        parts.append(_arrow(scale.end, "M0 0L-7 -5L-7 5Z", row.verdict))
    if row.delta is not None and scale.low <= row.delta <= scale.high:
        parts.append(f'<circle class="point v-{row.verdict}" cx="{scale(row.delta):.2f}%" cy="{middle}" r="5"/>')
    return f'<svg class="strip" width="100%" height="{HEIGHT}" role="img" aria-label="{name}">{"".join(parts)}</svg>'


def _arrow(at: float, path: str, verdict: str) -> str:
    return f'<svg x="{at:.2f}%" y="{HEIGHT / 2}" overflow="visible"><path class="arrow v-{verdict}" d="{path}"/></svg>'


def axis(block: Forest, scale: Scale) -> str:
    """Ticks and their labels below the strips."""
    values = ticks(scale.low, scale.high, most=8)
    parts = [_ground(block, scale).replace('height="100%"', 'height="5"').replace('y2="100%"', 'y2="5"')]
    for value, text in zip(values, tick_labels(values), strict=True):
        at = f"{scale(value):.2f}%"
        signed = "+" + text if value > 0 else text
        parts.append(f'<line class="axis" x1="{at}" x2="{at}" y1="0" y2="5"/>')
        parts.append(f'<text class="tick" x="{at}" y="18" text-anchor="middle">{escape(signed)}</text>')
    parts.append('<line class="axis" x1="0" x2="100%" y1="0.5" y2="0.5"/>')
    return f'<svg class="strip axis-strip" width="100%" height="22" aria-hidden="true">{"".join(parts)}</svg>'
