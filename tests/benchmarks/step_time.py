"""rlforge against TRL on one CPU: the same embedded model, prompts x group, token limit and threads, alternating.

    python tests/benchmarks/step_time.py [--steps 30] [--repeats 5] [--threads 2] [--peer-python PYTHON]

Each program runs in a process of its own, one after the other, ``repeats`` times; the table shows the median over
the repeats of each run's mean step, and seconds per 1,000 generated tokens. TRL's configuration keeps no reference
model; rlforge is shown with its own (kl_ref logged, the default) and without.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def measure(python: str, script: str, *words: str) -> dict:
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": str(HERE.parents[1])}
    done = subprocess.run(
        [python, str(HERE / script), *words], capture_output=True, text=True, check=False, env=environment
    )
    if done.returncode:
        raise SystemExit(f"{script} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peer-python", default=sys.executable, help="an interpreter that has trl==1.16.0")
    options = parser.parse_args()
    words = (str(options.steps), str(options.threads))
    runs: dict[str, list[dict]] = {"rlforge": [], "rlforge, no reference": [], "trl 1.16": []}
    for _ in range(options.repeats):
        runs["rlforge"].append(measure(sys.executable, "own_step.py", *words, "true"))
        runs["trl 1.16"].append(measure(options.peer_python, "peer_step.py", *words))
        runs["rlforge, no reference"].append(measure(sys.executable, "own_step.py", *words, "false"))

    from rlforge_cli import output

    def median(name: str, value: str) -> float:
        return statistics.median(statistics.fmean(run[value]) for run in runs[name])

    def per_1000(name: str) -> float:
        return statistics.median(1000 * sum(run["seconds"]) / run["tokens"] for run in runs[name])

    peer = median("trl 1.16", "seconds")
    rows = []
    for name, made in runs.items():
        step = median(name, "seconds")
        parts = [f"{median(name, part):.3f}" if part in made[0] else "-" for part in ("rollout", "update")]
        rows.append([name, f"{step:.3f}", *parts, f"{per_1000(name):.4f}", f"{peer / step:.2f} x"])
    columns = ["program", "s a step", "rollout", "update", "s per 1,000 tokens", "faster than trl"]
    title = f"{options.steps} steps, {options.threads} threads, median of {options.repeats}"
    output.stdout().print(output.table(columns, rows, title=title, right=(1, 2, 3, 4, 5)))


if __name__ == "__main__":
    main()
