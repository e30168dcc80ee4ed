"""How often smoke and doctor are wrong when nothing is, and whether a real trend is found. Long: `make calibrate`.

Noise: each metric is an independent AR(1) series with coefficient 0.9 around a healthy level, 200 steps. The stated
slope: a metric that rises by 4.5 of its own standard deviations over the 200 steps, in the same noise.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

from rlforge_cli import lineage, settings
from rlforge_cli.checks import passed, run_gates
from rlforge_cli.checks.curves import Curves, direction
from rlforge_cli.checks.doctor_table import run_rules
from rlforge_cli.config import Config
from rlforge_cli.doctor import diagnose
from rlforge_cli.run_dir import RunDir
from rlforge_cli.stats import wilson

STEPS = 200
RHO = 0.9
SLOPE_SDS = 4.5
LEVELS = {
    "reward": (0.6, 0.08), "accuracy": (0.5, 0.06), "completion_length": (150.0, 12.0), "kl_ref": (0.15, 0.04),
    "entropy": (0.3, 0.05), "adv_std_generated": (0.9, 0.05), "zero_std_fraction": (0.15, 0.05),
    "clip_fraction": (0.02, 0.01), "truncated_fraction": (0.05, 0.02), "kl_sampling": (1e-4, 3e-5),
    "reward/format": (0.15, 0.02), "reward/correctness": (0.5, 0.06),
}  # fmt: skip
"""Healthy levels and standard deviations."""


def ar1(rng: np.random.Generator, steps: int = STEPS) -> np.ndarray:
    """Stationary, mean 0, standard deviation 1."""
    noise = rng.standard_normal(steps)
    values = np.empty(steps)
    values[0] = noise[0]
    for step in range(1, steps):
        values[step] = RHO * values[step - 1] + np.sqrt(1 - RHO**2) * noise[step]
    return values


def noise_run(rng: np.random.Generator) -> Curves:
    series = {name: level + sd * ar1(rng) for name, (level, sd) in LEVELS.items()}
    records = [
        {"step": step + 1, "groups_generated": 8}
        | {name: max(0.0, float(values[step])) for name, values in series.items()}
        for step in range(STEPS)
    ]
    return Curves(config=Config(), records=records)


def share(name: str, count: int, total: int) -> dict[str, object]:
    low, high = wilson(count, total)
    print(
        f"{name}: {count} of {total} ({100 * count / total:.1f} %, 95 % {100 * low:.1f} to {100 * high:.1f})",
        flush=True,
    )
    return {"count": count, "n": total, "ci95": [low, high]}


def noise(count: int) -> dict[str, object]:
    rng = np.random.default_rng(0)
    alarms = [direction(ar1(rng).tolist()) != 0 for _ in range(count)]
    ramp = SLOPE_SDS * np.linspace(0, 1, STEPS)
    found = [direction((ar1(rng) + ramp).tolist()) == 1 for _ in range(count)]
    rules: Counter[str] = Counter()
    runs = 0
    for _ in range(count):
        raised = [check.name for check in run_rules(noise_run(rng)) if check.status != "pass"]
        rules.update(raised)
        runs += bool(raised)
    result = {
        "trend on noise": share("a trend is seen in AR(1) noise", sum(alarms), count),
        "slope found": share(f"a slope of {SLOPE_SDS:g} SD over {STEPS} steps is found", sum(found), count),
        "doctor on noise": share("doctor raises anything on a run of AR(1) noise", runs, count),
        "by rule": dict(rules),
    }
    print(f"  by rule: {dict(rules)}")
    return result


def smokes(count: int, *, steps: int, first: int) -> dict[str, object]:
    from rlforge_cli.smoke import smoke

    failed = 0
    names: Counter[str] = Counter()
    for seed in range(first, first + count):
        config = settings.load("tiny-arith", sets=[f"seed={seed}"])
        checks = run_gates(smoke(config, steps=steps).evidence)
        failed += not passed(checks)
        names.update(f"{check.status} {check.name}" for check in checks if check.status in ("fail", "warn"))
        print(f"  smoke {seed}: {'passed' if passed(checks) else 'FAILED'}", file=sys.stderr, flush=True)
    print(f"  failures and warnings: {dict(names)}")
    return share(f"healthy smokes of {steps} steps that fail", failed, count) | {"by check": dict(names)}


def healthy_runs(count: int, *, steps: int, folder: Path, first: int) -> dict[str, object]:
    from rlforge_cli.lifecycle import execute

    alarms: list[str] = []
    for seed in range(first, first + count):
        plan = lineage.prepare(
            runs_dir=folder, preset="tiny-arith", sets=[f"steps={steps}", "eval.every=50"], seed=seed
        )
        run = lineage.start(plan, folder)
        execute(run, plan.config, quiet=True)
        found = diagnose(run)
        alarms += [f"{run.id} {alarm['name']}: {alarm['why']}" for alarm in found["alarms"]]
        print(f"  {run.id}: {found['status']}", file=sys.stderr, flush=True)
    for line in alarms:
        print(f"  {line}")
    return share(f"alarms of doctor on healthy runs of {steps} steps", min(count, len(alarms)), count) | {
        "alarms": alarms
    }


def judged(folder: Path) -> None:
    """Doctor on runs that exist already."""
    for run in RunDir.all(folder):
        found = diagnose(run)
        print(run.id, found["status"], [(alarm["name"], alarm["why"]) for alarm in found["alarms"]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--noise", type=int, default=2000, help="AR(1) series and runs")
    parser.add_argument("--smokes", type=int, default=100, help="healthy smokes")
    parser.add_argument("--smoke-steps", type=int, default=20)
    parser.add_argument("--runs", type=int, default=20, help="healthy runs for doctor")
    parser.add_argument("--run-steps", type=int, default=200)
    parser.add_argument("--first-seed", type=int, default=0, help="several processes can share the work")
    parser.add_argument("--judge", type=Path, help="only run doctor on the runs of this folder")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    if options.judge:
        judged(options.judge)
        return
    result: dict[str, object] = {}
    if options.noise:
        result["noise"] = noise(options.noise)
    if options.smokes:
        result["smokes"] = smokes(options.smokes, steps=options.smoke_steps, first=options.first_seed)
    if options.runs:
        with tempfile.TemporaryDirectory() as folder:
            result["runs"] = healthy_runs(
                options.runs, steps=options.run_steps, folder=Path(folder), first=options.first_seed
            )
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
