"""What audits on disk say about a comparison: how far the grader may favour one run, and which wins are disputed."""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec

from rlforge_cli.comparison.arms import Arm
from rlforge_cli.comparison.options import Options
from rlforge_cli.stats import bias_difference_bound

AUDIT_FILE = "audit.json"
"""In a run's folder. ``bias_pp``: graded minus true accuracy in points; ``bias_ci95_pp``: its interval [low, high];
``second_grader``: where an independent grader says otherwise."""


class Disputed(msgspec.Struct, frozen=True):
    """Exclusive wins on which the two graders disagree. ``Disputed(wins=3, grader="math-verify", runs=["run-02"])``."""

    wins: int
    grader: str
    runs: list[str]
    """Those of the two that the second grader has read."""


def grader_error(control: Arm, arm: Arm, options: Options) -> float | None:
    """g in points: as given, else the upper bound from both runs' audits; None when nothing measured it."""
    if options.grader_error is not None:
        return options.grader_error
    biases = [_bias(control, options), _bias(arm, options)]
    if biases[0] is None or biases[1] is None:
        return None
    return bias_difference_bound(*biases[0], *biases[1])


def audit_file(folder: Path, evaluation: str) -> Path:
    return folder / (AUDIT_FILE if evaluation == "test" else f"audit-{evaluation}.json")


def _read(arm: Arm, evaluation: str) -> dict[str, Any]:
    """The audit of an arm's named run; empty where there is none that can be read."""
    run = arm.named.head.run
    try:
        value = json.loads(audit_file(run.path, evaluation).read_bytes()) if run is not None else {}
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _bias(arm: Arm, options: Options) -> tuple[float, tuple[float, float]] | None:
    """Of this evaluation's audit, else of the test's: the same grader on the same model's texts."""
    for evaluation in (options.evaluation, "test"):
        audit = _read(arm, evaluation)
        try:
            low, high = audit["bias_ci95_pp"]
            found = float(audit["bias_pp"]), (float(low), float(high))
        except (ValueError, KeyError, TypeError, OverflowError):
            continue  # an audit that stopped half-way measured nothing
        if all(map(math.isfinite, (found[0], *found[1]))):
            return found
    return None


def disputed(winner: Arm, loser: Arm, wins: Collection[str], options: Options) -> Disputed | None:
    """How many of ``wins`` (ids) the second grader doubts: it calls the winner's answer wrong or the loser's right.

    None where it has read neither run's answers to these items.
    """
    doubted: set[str] = set()
    readers: dict[str, str] = {}
    for arm, kind in ((winner, "only_grader"), (loser, "only_second")):
        second = _read(arm, options.evaluation).get("second_grader")
        scores = arm.named.scores
        if not isinstance(second, dict) or scores is None or second.get("n") != len(scores.ids) * scores.samples:
            continue  # not asked, or about other results
        keys = second.get("keys")
        known = keys.get(kind) if isinstance(keys, dict) else None
        if not isinstance(known, list):
            continue
        doubted.update(key for key in known if isinstance(key, str))
        readers[arm.named.head.name] = str(second.get("name"))
    if not readers:
        return None
    return Disputed(wins=len(doubted & set(wins)), grader=next(iter(readers.values())), runs=list(readers))
