"""When a run is lost: nothing that follows can be used. Doctor says so, and ``train --stop-on-collapse`` ends it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

import msgspec

from rlforge_cli.config import Config

WINDOW = 10
"""Steps over which a run must have been lost."""
BAD_IN_A_ROW = 3
KL_SUSPECT = 0.5
"""Nats a token from which a state is not surely good any more."""
KL_LOST = 3.0
"""Nats a token: the policy gives its own tokens e^3 = 20 times the start's probability. Healthy runs stay below 1."""
ACCURACY_KEPT = 0.25
"""Of its best level; what is left below that is lost."""
LEAST_ACCURACY = 0.08
"""A level that was never above this cannot be lost."""
LEAST_DROP_Z = 4.0
SILENT_STEPS, SILENT_GROUPS = 20, 100
"""At least so many steps, and groups, are looked at: where nine groups in ten are dead, all of 100 are by 1 chance in
37,000."""
NEARLY_ALL, ENTROPY_LEFT = 0.95, 0.2
"""Of the groups dead, and of the start's entropy left: together as sure."""
TOO_EASY = 0.5
"""From this accuracy equal rewards say that the problems are too easy, not that the policy is lost."""


class Lost(msgspec.Struct, frozen=True):
    """Example: ``Lost("kl_runaway", 31, "kl_ref 8.2 ...", "lower optimizer.lr")``."""

    rule: str
    since: int
    """The step from which the run is lost, as near as can be told."""
    evidence: str
    action: str


def lost(records: Sequence[dict[str, Any]], config: Config) -> Lost | None:
    """The first rule that calls the run lost, or None; ``records`` are steps from 1 on, in order."""
    for rule in (nonfinite, kl_runaway, collapse, no_signal):
        if found := rule(records, config):
            return found
    return None


def trouble_since(records: Sequence[dict[str, Any]], config: Config) -> int | None:
    """The first step of the unbroken stretch up to now in which the run was not surely good; None when it is now.

    Not surely good: no finite loss, a kl_ref above :data:`KL_SUSPECT`, or an accuracy below half of its best level.
    """
    accuracy = [r["accuracy"] for r in records if isinstance(r.get("accuracy"), (int, float))]
    size = min(WINDOW, max(1, len(accuracy) // 2))
    best = max((statistics.fmean(accuracy[i : i + size]) for i in range(len(accuracy) - size + 1)), default=0.0)
    since = None
    for record in reversed(records):
        low = best >= LEAST_ACCURACY and (record.get("accuracy") or 0.0) < best / 2
        if not (not_finite(record) or (record.get("kl_ref") or 0.0) > KL_SUSPECT or low):
            break
        since = record["step"]
    return since


def nonfinite(records: Sequence[dict[str, Any]], config: Config) -> Lost | None:
    """Several steps in a row whose loss or gradient is no number: one alone is skipped and forgotten."""
    last = records[-BAD_IN_A_ROW:]
    if len(last) < BAD_IN_A_ROW or not all(not_finite(record) for record in last):
        return None
    names = ", ".join(not_finite(last[-1]))
    return Lost(
        "nonfinite", trouble_since(records, config) or last[0]["step"],
        f"{names} not finite in {BAD_IN_A_ROW} steps in a row",
        "lower optimizer.lr, or model.dtype=float32",
    )  # fmt: skip


def not_finite(record: dict[str, Any]) -> list[str]:
    """Names of what is NaN or infinite, as written in a file or in memory."""
    named = [name for name in record.get("_nonfinite", []) if name in ("loss", "grad_norm", "kl_ref", "reward")]
    return named or [
        name
        for name in ("loss", "grad_norm")
        if isinstance(record.get(name), float) and not math.isfinite(record[name])
    ]


def kl_runaway(records: Sequence[dict[str, Any]], config: Config) -> Lost | None:
    """The policy has left the reference for good."""
    values = [r["kl_ref"] for r in records[-WINDOW:] if isinstance(r.get("kl_ref"), (int, float))]
    if len(values) < WINDOW // 2 or not statistics.median(values) > KL_LOST:
        return None
    return Lost(
        "kl_runaway", trouble_since(records, config) or records[-1]["step"],
        f"median kl_ref of the last {len(values)} steps is {statistics.median(values):.3g} nats a token",
        "lower optimizer.lr by 3 to 10, or hold the policy with grpo.kl_coef",
    )  # fmt: skip


def collapse(records: Sequence[dict[str, Any]], config: Config) -> Lost | None:
    """Accuracy of the last ten steps is a small part of what it was, far beyond the noise of sampling."""
    scored = [r for r in records if isinstance(r.get("accuracy"), (int, float))]
    if len(scored) < WINDOW + 2:
        return None
    accuracy = [r["accuracy"] for r in scored]
    now = statistics.fmean(accuracy[-WINDOW:])
    earlier = accuracy[:-WINDOW]
    size = min(WINDOW, len(earlier))
    levels = [statistics.fmean(earlier[i : i + size]) for i in range(len(earlier) - size + 1)]
    best = max(levels)
    drawn = size * (config.rollout.prompts * config.rollout.group_size)
    # completions of one prompt succeed together: G of them count as two
    deviation = math.sqrt(best * (1 - best) / drawn * config.rollout.group_size / 2) or math.inf
    if best < LEAST_ACCURACY or now > ACCURACY_KEPT * best or best - now < LEAST_DROP_Z * deviation:
        return None
    place = levels.index(best) + size - 1
    length = [r.get("completion_length", math.nan) for r in scored]
    return Lost(
        "collapse", trouble_since(records, config) or scored[-WINDOW]["step"],
        f"accuracy fell from {best:.2f} to {now:.3f} (last {WINDOW} steps), completion length {length[place]:.0f} -> "
        f"{length[-1]:.0f}, entropy {scored[place].get('entropy') or 0:.2g} -> {scored[-1].get('entropy') or 0:.2g}",
        "start again from the last good checkpoint with a lower optimizer.lr; rollouts.jsonl shows what it writes",
    )  # fmt: skip


def no_signal(records: Sequence[dict[str, Any]], config: Config) -> Lost | None:
    """In every group of many steps all rewards were equal, or in nearly every one and the entropy is gone."""
    window: list[dict[str, Any]] = []
    groups = dead = 0.0
    for record in reversed(records):
        if len(window) >= SILENT_STEPS and groups >= SILENT_GROUPS:
            break
        made = record.get("groups_generated") or 0
        window.append(record)
        groups += made
        dead += made * (record.get("zero_std_fraction") or 0.0)
    if len(window) < SILENT_STEPS or groups < SILENT_GROUPS:
        return None
    before = mean_of(records[:WINDOW], "entropy")
    now = mean_of(window[:WINDOW], "entropy")
    gone = before is not None and now is not None and now < ENTROPY_LEFT * before
    accuracy = mean_of(window, "accuracy") or 0.0
    if dead < (NEARLY_ALL if gone else 1.0) * groups or accuracy >= TOO_EASY:
        return None
    return Lost(
        "no_signal", trouble_since(records, config) or window[-1]["step"],
        f"{dead:.0f} of {groups:.0f} groups in the last {len(window)} steps had no spread of rewards; accuracy "
        f"{accuracy:.3f}, entropy {before or 0:.2g} -> {now or 0:.2g}",
        "from an earlier checkpoint a lower optimizer.lr and other reward weights (`rlforge smoke --rewards`); if it "
        "was so from the start, easier problems or a larger G",
    )  # fmt: skip


def mean_of(records: Sequence[dict[str, Any]], name: str) -> float | None:
    values = [record[name] for record in records if isinstance(record.get(name), (int, float))]
    return statistics.fmean(values) if values else None
