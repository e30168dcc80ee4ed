"""How a step of rlforge grows on one GPU: completions a prompt, prompts, and tokens, one axis at a time.

    python tests/benchmarks/gpu_scale.py --model FOLDER --data GSM8K_FOLDER [--steps 3]

One engine, made for the largest point, serves all. Micro-batches hold as many tokens at every point. ``cost / tokens``
is how much more a step takes than at the base point, over how many more tokens it has: at most 1 where cost grows no
faster than the tokens. Give weights that are random: they run to the token limit.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import torch

BASE = (8, 8, 512)
"""Completions a prompt, prompts, tokens."""
POINTS = [
    BASE, (4, 8, 512), (16, 8, 512), (32, 8, 512), (64, 8, 512), (8, 4, 512), (8, 16, 512), (8, 32, 512),
    (8, 8, 256), (8, 8, 1024), (8, 8, 2048), (8, 8, 4096),
]  # fmt: skip
MICRO_BATCH_TOKENS = 16 * 640
PROMPT = 128
"""Tokens of a usual prompt."""


def sets(options: argparse.Namespace, point: tuple[int, int, int]) -> list[str]:
    group, prompts, tokens = point
    return [
        f"model.path={options.model}", f"data.path={options.data}", f"G={group}", f"P={prompts}",
        f"max_tokens={tokens}", f"micro_batch={max(1, MICRO_BATCH_TOKENS // (PROMPT + tokens))}",
        "gradient_checkpointing=false", "model.reference=false", "eval.batch_size=64", *options.set,
    ]  # fmt: skip


def measure(trainer: Any, config: Any, *, steps: int) -> dict[str, float]:
    trainer.config = config
    trainer.params = msgspec.structs.replace(trainer.params, max_tokens=config.rollout.max_tokens)
    torch.cuda.reset_peak_memory_stats()
    records = [trainer.train_step() for _ in range(steps + 1)][1:]
    return {
        "seconds": statistics.median(record["seconds_total"] for record in records),
        "rollout": statistics.median(record["seconds_rollout"] for record in records),
        "update": statistics.median(record["seconds_train"] for record in records),
        "tokens": statistics.median(record["tokens_generated"] for record in records),
        "gib": torch.cuda.max_memory_allocated() / 2**30,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], help="further settings, key=value")
    options = parser.parse_args()
    from rlforge_cli import output
    from rlforge_cli.experiment import Experiment
    from rlforge_cli.run_dir import RunDir
    from rlforge_cli.settings import load

    largest = tuple(max(point[axis] for point in POINTS) for axis in range(3))
    room = max(group * prompts for group, prompts, _ in POINTS)
    words = [*sets(options, (largest[0], room // largest[0], largest[2])), "memory_share=0.4"]
    rows: list[list[str]] = []
    base: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        trainer = Experiment(RunDir(Path(folder)), load("qwen3-0.6b-full", sets=words)).trainer
        trainer.engine.sync_weights(step=0)
        for point in POINTS:
            made = measure(trainer, load("qwen3-0.6b-full", sets=sets(options, point)), steps=options.steps)
            base = base or made
            growth = (made["seconds"] / base["seconds"]) / (made["tokens"] / base["tokens"])
            rows.append([
                *map(str, point), f"{made['seconds']:.2f}", f"{made['rollout']:.2f}", f"{made['update']:.2f}",
                f"{made['tokens'] / made['seconds']:.0f}", f"{made['gib']:.1f}", f"{growth:.2f}",
            ])  # fmt: skip
            print(" ".join(rows[-1]), flush=True)
        trainer.engine.close()
    columns = ["G", "prompts", "tokens", "s/step", "rollout", "update", "tokens/s", "GiB", "cost / tokens"]
    output.stdout().print(output.table(columns, rows, title="one axis at a time", right=tuple(range(9))))


if __name__ == "__main__":
    main()
