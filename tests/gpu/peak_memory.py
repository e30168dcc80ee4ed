"""The most memory that a preset takes of one NVIDIA GPU, beside what `rlforge plan` says.

    python tests/gpu/peak_memory.py qwen3-0.6b-full --model FOLDER [--cap 32] [--steps 2]

Prompts and completions are at their limits (give weights that are random: they do not stop), the process may use
``--cap`` GiB, rewards differ (so that there is a gradient), and the device is read a hundred times a second; use of
others before the start counts as context.
Exits with 1 if the prediction is off by more than a tenth.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import torch

from rlforge_cli.architecture import architecture_of
from rlforge_cli.experiment import Experiment
from rlforge_cli.memory import GIB, predict
from rlforge_cli.pretrained import load_tokenizer
from rlforge_cli.run_dir import RunDir
from rlforge_cli.settings import load

TEMPLATE = 80
"""Tokens left to the chat template and the preset's suffix."""


WORDS = ["apple", "river", "stone", "seven", "market", "train", "yellow", "paper", "window", "garden", "bottle"]


def write_problems(file: Path, tokenizer: Any, *, tokens: int) -> None:
    """Problems of about ``tokens`` tokens each."""
    chance = random.Random(0)
    sample = " ".join(WORDS * 50)
    count = tokens * 50 * len(WORDS) // len(tokenizer(sample)["input_ids"])
    with file.open("w", encoding="utf-8") as out:
        for number in range(800):
            text = f"{number}: {' '.join(chance.choices(WORDS, k=count))}"
            out.write(json.dumps({"prompt": text, "answer": str(number)}) + "\n")


class Watch:
    """The device's use by phase, in bytes."""

    def __init__(self) -> None:
        self.phase = "starting"
        self.most: dict[str, int] = {}
        threading.Thread(target=self.run, daemon=True).start()

    def run(self) -> None:
        while True:
            free, whole = torch.cuda.mem_get_info()
            self.most[self.phase] = max(self.most.get(self.phase, 0), whole - free)
            time.sleep(0.01)

    def during(self, phase: str, function: Any) -> Any:
        def run(*args: Any, **options: Any) -> Any:
            self.phase = phase
            return function(*args, **options)

        return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset")
    parser.add_argument("--model", required=True)
    parser.add_argument("--cap", type=float, default=32.0)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], help="further settings, key=value")
    options = parser.parse_args()
    whole = torch.cuda.get_device_properties(0).total_memory / GIB
    torch.cuda.set_per_process_memory_fraction(options.cap / whole)
    folder = Path(tempfile.mkdtemp())
    words = [
        f"model.path={options.model}", "data.task=jsonl", f"data.path={folder}/long.jsonl",
        f"reward.functions={Path(__file__).resolve().with_name('spread.py')}:spread", *options.set,
    ]  # fmt: skip
    config = load(options.preset, sets=words)
    write_problems(
        folder / "long.jsonl", load_tokenizer(options.model), tokens=config.rollout.max_prompt_tokens - TEMPLATE
    )
    shape = architecture_of(options.model)
    assert shape is not None
    predicted = predict(config, shape, gpu_gib=options.cap)
    watch = Watch()
    trainer: Any = Experiment(RunDir(folder / "run"), config).trainer
    trainer.engine.sync_weights(step=0)
    trainer.rollout = watch.during("generating", trainer.rollout)
    trainer.engine.sync_weights = watch.during("syncing", trainer.engine.sync_weights)
    trainer.updater.update = watch.during("training", trainer.updater.update)
    for step in range(1, options.steps + 1):
        record = trainer.train_step()
        peaks = ", ".join(f"{phase} {most / GIB:.2f}" for phase, most in watch.most.items())
        gradient = f"gradient {record.get('grad_norm', 0.0):.3g}, skipped {record['skipped']}"
        print(f"step {step}: {peaks} GiB; {record['seconds_total']:.1f} s, {gradient}", flush=True)
    peak = max(watch.most.values()) / GIB
    print(
        f"{options.preset} under {options.cap:g} GiB: measured {peak:.2f} GiB, predicted {predicted.peak_gib:.2f} "
        f"(training {predicted.training_gib:.2f}, generating {predicted.generating_gib:.2f})"
    )
    sys.stdout.flush()
    os._exit(int(abs(predicted.peak_gib / peak - 1) > 0.1))


if __name__ == "__main__":
    main()
