"""How far the grader may favour one run over the other."""

from __future__ import annotations

import json
from typing import Any

from rlforge_cli.comparison.arms import Arm
from rlforge_cli.comparison.options import Options
from rlforge_cli.stats import bias_difference_bound

AUDIT_FILE = "audit.json"
"""In a run's folder. ``bias_pp``: graded minus true accuracy in points; ``bias_ci95_pp``: its interval [low, high]."""


def grader_error(control: Arm, arm: Arm, options: Options) -> float | None:
    """g in points: as given, else the upper bound from both runs' audits; None when nothing measured it."""
    if options.grader_error is not None:
        return options.grader_error
    biases = [_bias(control), _bias(arm)]
    if biases[0] is None or biases[1] is None:
        return None
    return bias_difference_bound(*biases[0], *biases[1])


def _bias(arm: Arm) -> tuple[float, tuple[float, float]] | None:
    run = arm.named.head.run
    path = run.path / AUDIT_FILE if run is not None else None
    if path is None or not path.is_file():
        return None
    try:
        audit: Any = json.loads(path.read_bytes())
        low, high = audit["bias_ci95_pp"]
        return float(audit["bias_pp"]), (float(low), float(high))
    except (OSError, ValueError, KeyError, TypeError):
        return None  # an audit that stopped half-way measured nothing
