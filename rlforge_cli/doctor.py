"""`rlforge doctor`: what a run's curves say is wrong, with the evidence and what to do. Silent where nothing is."""

from __future__ import annotations

from typing import Any

import msgspec

from rlforge_cli.checks.check import Check
from rlforge_cli.checks.curves import Curves
from rlforge_cli.checks.doctor_table import false_alarms, run_rules
from rlforge_cli.jsonl import read_records
from rlforge_cli.lineage import run_config
from rlforge_cli.run_dir import RunDir

ENOUGH = 40
"""Steps that trends need: two blocks of 20."""
ENDED = "ended"


def curves(run: RunDir) -> Curves:
    """What the rules look at, from a run's files.

    Raises:
        UserError: the run is damaged, or has logged nothing to judge.
    """
    config = run_config(run)
    records = run.metrics()
    sampled = read_records(run.rollouts_file)[0] if run.rollouts_file.is_file() else []
    return Curves(
        config=config,
        records=run.steps(records),
        validations=[
            (r["step"], r["val_accuracy"]) for r in records if isinstance(r.get("val_accuracy"), (int, float))
        ],
        validation_problems=min(config.eval.problems or config.data.validation, config.data.validation),
        completions=[
            (r["step"], str(r.get("id")), r["completion"])
            for r in sampled
            if isinstance(r.get("step"), int) and isinstance(r.get("completion"), str)
        ],
    )


def ended(run: RunDir, info: dict[str, Any]) -> list[Check]:
    """An alarm for a run that did not end as planned."""
    if info.get("status") not in ("failed", "crashed"):
        return []
    gone = "its process is gone without a word: killed, or out of memory"
    return [
        Check(
            name=ENDED, status="warn", value=info["status"], threshold="completed",
            why=f"{info['status']}: {info.get('reason') or gone}",
            fix=f"mend the cause; `rlforge train --resume {run.id}` continues from the last checkpoint",
        )
    ]  # fmt: skip


def diagnose(run: RunDir) -> dict[str, Any]:
    """``{"run", "status": healthy|alarms|lost, "steps", "alarms": [check, ...], "rules", "note"}``.

    Raises:
        UserError: a damaged run, or one that logged nothing to judge.
    """
    info = run.info()  # a damaged run.json is an error, not a healthy run
    found = curves(run)
    checks = run_rules(found)
    alarms = [check for check in checks if check.status in ("warn", "fail")]
    if not any(check.status == "fail" for check in alarms):  # that says why it ended
        alarms += ended(run, info)
    status = "lost" if any(c.status == "fail" for c in alarms) else "alarms" if alarms else "healthy"
    steps = len(found.records)
    rows = [
        msgspec.to_builtins(check)
        | {"false_alarms": "none: run.json says so" if check.name == ENDED else false_alarms(check.name)}
        for check in alarms
    ]
    damaged = read_records(run.metrics_file)[1] if run.metrics_file.is_file() else 0
    notes = [f"only {steps} step{'s' * (steps > 1)}: trends need {ENOUGH}"] if steps < ENOUGH else []
    notes += [f"{damaged} incomplete line(s) of {run.metrics_file} were left out"] if damaged else []
    return {
        "run": run.id, "status": status, "steps": steps, "alarms": rows, "rules": len(checks),
        "note": "; ".join(notes) or None,
    }  # fmt: skip
