"""How a step of rlforge grows: completions a prompt, prompts, and tokens, one axis at a time, on one GPU and on two.

    python tests/benchmarks/gpu_scale.py --model FOLDER --data GSM8K_FOLDER [--steps 3]

vLLM, made for the largest point, serves all of one number of GPUs; with ``--set rollout.engine=hf`` each point has an
engine of its own, whose cache would otherwise grow to the most rows of one by the most tokens of another. Micro-batches
hold as many tokens at every point. ``cost / tokens`` is how much more a step takes than at the base point, over how
many more tokens it has: at most 1 where cost grows no faster than the tokens. It cannot stay there with longer
completions, for every token reads the keys and values of all before it; ``/ least`` is the step over the least that its
arithmetic and memory traffic take on one H200. ``speed-up`` is to the same point on one GPU. Give weights that are
random: they run to the token limit.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import torch
from gpu_step import SPREAD, floor

Point = tuple[int, int, int]
"""Completions a prompt, prompts, tokens."""
BASE: Point = (8, 8, 512)
POINTS: dict[int, list[Point]] = {
    1: [BASE, (4, 8, 512), (16, 8, 512), (64, 8, 512), (8, 4, 512), (8, 16, 512), (8, 32, 512), (8, 8, 256),
        (8, 8, 1024), (8, 8, 4096)],
    2: [BASE, (8, 32, 512)],
}  # fmt: skip
"""By number of GPUs."""
MICRO_BATCH_TOKENS = 16 * 640
PROMPT = 128
"""Tokens of a usual prompt."""


def sets(options: argparse.Namespace, point: Point) -> list[str]:
    group, prompts, tokens = point
    return [
        f"model.path={options.model}", f"data.path={options.data}", f"G={group}", f"P={prompts}",
        f"max_tokens={tokens}", f"micro_batch={max(1, MICRO_BATCH_TOKENS // (PROMPT + tokens))}",
        "gradient_checkpointing=false", "model.reference=false", f"eval.batch_size={group * prompts}",
        f"reward.functions={SPREAD}:spread", *options.set,
    ]  # fmt: skip


def measure(trainer: Any, config: Any, *, steps: int) -> dict[str, float]:
    from rlforge_cli.engines.choose import make_engine

    if config.rollout.engine == "hf":
        trainer.engine.close()
        trainer.engine = make_engine(config, trainer.policy)
    trainer.config = trainer.updater.config = config
    trainer.params = msgspec.structs.replace(trainer.params, max_tokens=config.rollout.max_tokens)
    torch.cuda.reset_peak_memory_stats()
    records = [trainer.train_step() for _ in range(steps + 1)][1:]
    keys = {"seconds": "seconds_total", "rollout": "seconds_rollout", "update": "seconds_train",
            "tokens": "tokens_generated"}  # fmt: skip
    medians = {name: statistics.median(record[key] for record in records) for name, key in keys.items()}
    return medians | {"gib": torch.cuda.max_memory_allocated() / 2**30}


def worker(options: argparse.Namespace) -> None:
    """All points of one number of GPUs; a JSON line each."""
    from rlforge_cli.distributed import joined
    from rlforge_cli.experiment import Experiment
    from rlforge_cli.run_dir import RunDir
    from rlforge_cli.settings import load

    points = POINTS[options.gpus]
    largest = [max(point[axis] for point in points) for axis in range(3)]
    room = max(group * prompts for group, prompts, _ in points)
    words = [*sets(options, (largest[0], room // largest[0], largest[2])), "memory_share=0.4"]
    with tempfile.TemporaryDirectory() as folder, joined() as ranks:
        trainer = Experiment(RunDir(Path(folder)), load("qwen3-0.6b-full", sets=words), ranks=ranks).trainer
        trainer.engine.sync_weights(step=0)
        for point in points:
            made = measure(trainer, load("qwen3-0.6b-full", sets=sets(options, point)), steps=options.steps)
            if ranks.first:
                print(json.dumps({"point": point, "gpus": options.gpus, **made}), flush=True)
        trainer.engine.close()


def started(gpus: int) -> list[dict[str, Any]]:
    """What the worker processes print; their other words go to stderr as they come."""
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(gpus)] if gpus > 1 else []
    command = [sys.executable, *launch, __file__, *sys.argv[1:], "--gpus", str(gpus)]
    found = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        for line in program.stdout or ():
            if line.startswith('{"point"'):
                print(line, end="", flush=True)
                found.append(json.loads(line))
    return found


def show(found: list[dict[str, Any]], model: str) -> None:
    from rlforge_cli import output

    alone = {tuple(made["point"]): made for made in found if made["gpus"] == 1}
    base = alone.get(BASE)
    rows = []
    for made in found:
        group, prompts, tokens = made["point"]
        same = alone.get((group, prompts, tokens))
        least = sum(floor(model, max_tokens=tokens, rows=group * prompts))
        cost = speed_up = "-"
        if made["gpus"] > 1:
            speed_up = f"{same['seconds'] / made['seconds']:.2f}" if same else "-"
        elif base:
            cost = f"{made['seconds'] / base['seconds'] / (made['tokens'] / base['tokens']):.2f}"
        rows.append([
            str(made["gpus"]), *map(str, made["point"]), f"{made['seconds']:.2f}", f"{made['rollout']:.2f}",
            f"{made['update']:.2f}", f"{made['tokens'] / made['seconds']:.0f}", f"{made['gib']:.1f}",
            cost, f"{made['seconds'] / least:.1f}", speed_up,
        ])  # fmt: skip
    columns = ["GPUs", "G", "prompts", "tokens", "s/step", "rollout", "update", "tokens/s", "GiB", "cost / tokens",
               "/ least", "speed-up"]  # fmt: skip
    output.stdout().print(output.table(columns, rows, title="one axis at a time", right=tuple(range(len(columns)))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], help="further settings, key=value")
    parser.add_argument("--gpus", type=int, help="measure the points of so many only, in this process")
    options = parser.parse_args()
    if options.gpus:
        worker(options)
        return
    here = torch.cuda.device_count()
    show([made for gpus in POINTS if gpus <= here for made in started(gpus)], options.model)


if __name__ == "__main__":
    main()
