"""Seconds a step of rlforge on the embedded preset: one JSON object. Started by step_time.py."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path


def main() -> None:
    steps, threads, reference = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    import torch

    from rlforge_cli.experiment import Experiment
    from rlforge_cli.run_dir import RunDir
    from rlforge_cli.settings import load

    torch.set_num_threads(threads)
    config = load("tiny-arith", sets=[f"model.reference={reference}", f"steps={steps}"])
    with tempfile.TemporaryDirectory() as folder:
        trainer = Experiment(RunDir(Path(folder)), config).trainer
        records = [trainer.train_step() for _ in range(steps)]
    print(
        json.dumps(
            {
                "seconds": [r["seconds_total"] for r in records],
                "rollout": [r["seconds_rollout"] for r in records],
                "update": [r["seconds_train"] for r in records],
                "tokens": sum(r["tokens_generated"] for r in records),
            }
        )
    )


if __name__ == "__main__":
    main()
