"""Numbers as the report writes them, everywhere alike: a missing one is a dash, one that is not finite is ``nan``."""

from __future__ import annotations

import math
from collections.abc import Sequence

ABSENT = "–"


def _text(value: float | None, spec: str, suffix: str = "") -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return ABSENT  # what a damaged file has in the place of a number
    if not math.isfinite(value):
        return "nan"
    text = format(value, spec)
    if text.startswith("-") and not text.strip("-0.,"):
        text = text[1:]  # minus zero
    return text.replace("-", "−") + suffix


def percent(value: float | None, *, unit: bool = True) -> str:
    """``0.579`` -> ``57.9 %``."""
    return _text(None if value is None else 100 * value, ".1f", " %" if unit else "")


def points(value: float | None) -> str:
    """``5.31`` -> ``+5.31``: a difference in points."""
    return _text(value, "+.2f")


def interval(ends: Sequence[float] | None, *, scale: float = 1.0, digits: int = 2) -> str:
    """``(-1.6, 7.67)`` -> ``[−1.60, 7.67]``."""
    return ABSENT if ends is None else "[" + ", ".join(_text(scale * end, f".{digits}f") for end in ends) + "]"


def count(value: float | None) -> str:
    """``12800`` -> ``12,800``."""
    return _text(value, ",.0f")


def plain(value: float | None) -> str:
    """Three significant digits, no exponent where a person would write none: ``0.0191``, ``152``, ``0.664``."""
    if value is None or not math.isfinite(value) or value == 0:
        return _text(value, ".3g")
    magnitude = math.floor(math.log10(abs(value)))
    return _text(value, ".2e") if not -5 < magnitude < 7 else _text(value, f".{max(0, 2 - magnitude)}f")


def p_value(value: float | None) -> str:
    return ABSENT if value is None else "< 0.0001" if value < 0.0001 else f"= {value:.4f}"


def seconds(value: float | None) -> str:
    """``75`` -> ``75 s``, ``3700`` -> ``1 h 02 min``."""
    if value is None or not math.isfinite(value):
        return _text(value, ".0f")
    if value < 120:
        return f"{value:.0f} s"
    minutes = round(value / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
