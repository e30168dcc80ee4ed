"""What happened inside the runs: the gauges that explain a difference.

A gauge is the mean over the last tenth of the steps that logged it: where training ended, not how it began.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from rlforge_cli.comparison.entries import Head
from rlforge_cli.jsonl import number, read_steps

GAUGES = ("zero_std_fraction", "completion_length", "adv_std", "kl_ref", "clip_fraction")
WINDOW = 0.1
"""Share of the steps, at the end, that a gauge averages."""


class Mechanism(msgspec.Struct, frozen=True, kw_only=True):
    """Gauges of an arm, averaged over its runs. None: not logged; NaN: logged, but not finite.

    Example: ``Mechanism(zero_std_fraction=0.091, completion_length=152.0, adv_std=0.664, completions=12800)``.
    """

    zero_std_fraction: float | None = None
    completion_length: float | None = None
    adv_std: float | None = None
    kl_ref: float | None = None
    clip_fraction: float | None = None
    wall_s: float | None = None
    """Seconds of training."""
    completions: float | None = None
    """Generated in training, dropped ones included."""


class Curves(msgspec.Struct, frozen=True):
    """One run's metrics: a record a step, in order of steps, and how many lines were torn."""

    steps: list[dict[str, Any]]
    incomplete: int = 0
    problem: str | None = None
    """Why there is nothing where a file is."""


def read_curves(head: Head) -> Curves:
    """The metrics of a run; a file that cannot be read becomes a sentence."""
    if head.run is None:
        return Curves(steps=[])
    try:
        steps, incomplete = read_steps(head.run.metrics_file)
    except FileNotFoundError:
        return Curves(steps=[])
    except OSError as error:
        return Curves(steps=[], problem=f"{head.run.metrics_file}: cannot be read: {error.strerror}")
    return Curves(steps=steps, incomplete=incomplete)


def _value(record: dict[str, Any], key: str) -> float | None:
    value = record.get(key)
    if value is None:
        lost = record.get("_nonfinite")
        return math.nan if isinstance(lost, list) and key in lost else None
    return number(value)


def gauge(steps: Sequence[dict[str, Any]], key: str) -> float | None:
    """Mean of a metric over the last tenth of the steps that logged it; NaN when one of them is not finite."""
    values = [value for record in steps if (value := _value(record, key)) is not None]
    if not values:
        return None
    last = values[-math.ceil(WINDOW * len(values)) :]
    return _mean(last)


def _mean(values: Sequence[float]) -> float:
    """NaN also where finite values add up beyond any float."""
    mean = sum(values) / len(values)
    return mean if math.isfinite(mean) else math.nan


def _wall_seconds(head: Head, steps: Sequence[dict[str, Any]]) -> float | None:
    seconds = [value for record in steps if (value := _value(record, "seconds_total")) is not None]
    if seconds:
        return sum(seconds)
    started, finished = _instant(head.info.get("started")), _instant(head.info.get("finished"))
    return finished - started if started is not None and finished is not None else None


def _instant(value: Any) -> float | None:
    if not isinstance(value, str):
        return number(value)
    try:
        return datetime.fromisoformat(value.replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError, OSError):  # no date, or one that has no timestamp here
        return None


def completions_generated(head: Head, steps: Sequence[dict[str, Any]]) -> float | None:
    """From the run's budget, else the last count that a step logged."""
    budget = head.info.get("budget")
    if isinstance(budget, dict) and (counted := number(budget.get("completions_generated"))) is not None:
        return counted
    values = [value for record in steps if (value := _value(record, "completions_generated")) is not None]
    return values[-1] if values else None


def mechanism_of(head: Head, curves: Curves) -> Mechanism:
    gauges = {key: gauge(curves.steps, key) for key in GAUGES}
    return Mechanism(
        **gauges, wall_s=_wall_seconds(head, curves.steps), completions=completions_generated(head, curves.steps)
    )


def average(parts: Sequence[Mechanism]) -> Mechanism:
    """Mean over an arm's runs, of those that logged the metric."""
    if len(parts) == 1:
        return parts[0]
    columns = {name: [getattr(part, name) for part in parts] for name in Mechanism.__struct_fields__}
    known = {name: [value for value in values if value is not None] for name, values in columns.items()}
    return Mechanism(**{name: _mean(values) if values else None for name, values in known.items()})
