"""What a run does differently from its control."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlforge_cli.comparison.entries import Head
from rlforge_cli.settings import not_ignored

SAME_BUDGET = 0.01
"""Relative difference of generated completions that counts as equal: one step of rounding."""


def same_budget(a: float | None, b: float | None) -> bool:
    """Whether two counts of generated completions are equal; unknown counts are not."""
    return a is not None and b is not None and abs(a - b) <= SAME_BUDGET * max(a, b)


def changes_between(control: Head, run: Head, *, controls: Sequence[str], equal_samples: bool) -> list[dict[str, Any]]:
    """``[{"key", "from", "to"}]``: as the run recorded them against this control, else from both configurations.

    ``controls`` are the ids of the control's arm. Steps are no change when they only keep the samples equal.
    """
    recorded = run.info.get("changes")
    if run.info.get("parent") in controls and isinstance(recorded, list):
        return [c for c in recorded if isinstance(c, dict) and "key" in c and not_ignored(str(c["key"]))]
    if not control.config or not run.config:
        return []
    derived = {"train.steps"} if equal_samples else set()
    total = "rollout.completions"
    if control.config.get(total) and control.config.get(total) == run.config.get(total):
        derived.add("rollout.prompts")
    keys = list(dict.fromkeys([*control.config, *run.config]))
    return [
        {"key": key, "from": control.config.get(key), "to": run.config.get(key)}
        for key in keys
        if control.config.get(key) != run.config.get(key) and key not in derived and not_ignored(key)
    ]
