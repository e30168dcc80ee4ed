"""Run directories with curves and texts, for the tests of the report."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from comparison_files import paired, write_run

PARTS = ("reward/correctness", "reward/format", "reward/truncation")


def curves(
    *, steps: int = 120, per_step: int = 64, end: float = 0.6, seed: int = 0, change: Mapping[str, float] | None = None
) -> list[dict[str, Any]]:
    """Metrics of a run that learns; ``change`` shifts the end of some."""
    rng = random.Random(seed)
    records: list[dict[str, Any]] = [{"step": 0, "val_accuracy": 0.21}]
    for step in range(1, steps + 1):
        done = 1 - math.exp(-3 * step / steps)

        def value(start: float, stop: float, noise: float, name: str, done: float = done) -> float:
            stop += (change or {}).get(name, 0.0)
            return start + (stop - start) * done + rng.gauss(0, noise)

        accuracy = min(1.0, max(0.0, value(0.2, end, 0.05, "accuracy")))
        record = {
            "step": step,
            "reward/correctness": accuracy,
            "reward/format": min(0.2, value(0.05, 0.19, 0.01, "reward/format")),
            "reward/truncation": -abs(value(0.1, 0.01, 0.02, "reward/truncation")),
            "accuracy": accuracy,
            "completion_length": value(90, 152, 8, "completion_length"),
            "truncated_fraction": abs(value(0.2, 0.02, 0.02, "truncated_fraction")),
            "adv_std": value(1.0, 0.664, 0.03, "adv_std"),
            "adv_std_generated": value(1.0, 0.664, 0.03, "adv_std_generated"),
            "zero_std_fraction": max(0.0, value(0.02, 0.091, 0.04, "zero_std_fraction")),
            "kl_ref": abs(value(0.0, 0.02, 0.002, "kl_ref")),
            "entropy": value(0.5, 0.2, 0.02, "entropy"),
            "clip_fraction": 0.0,
            "completions_generated": step * per_step,
            "seconds_total": 45.0,
        }
        record["reward"] = sum(record[key] for key in PARTS)
        if step % 25 == 0:
            record["val_accuracy"] = value(0.2, end, 0.02, "accuracy")
        records.append(record)
    return records


def jsonl(records: Sequence[Mapping[str, Any]]) -> str:
    text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    return re.sub("[\ud800-\udfff]", lambda match: f"\\u{ord(match[0]):04x}", text)  # has no UTF-8


def write_texts(
    run: Path, right: Sequence[int], *, text: Callable[[int], str] | None = None, name: str = "test"
) -> None:
    """Replace a run's results by ones with completions."""
    records = [
        {
            "id": f"q{index}",
            "correct": bool(value),
            "correct_strict": bool(value),
            "prediction": str(index if value else index + 1),
            "answer": str(index),
            "completion": text(index) if text else f"It is {index if value else index + 1}.\n#### {index}",
            "truncated": False,
            "tokens": 20,
        }
        for index, value in enumerate(right)
    ]
    (run / "evals" / f"{name}.jsonl").write_text(jsonl(records), encoding="utf-8")


def write_full_run(
    runs: Path,
    name: str,
    right: Sequence[int],
    *,
    records: Sequence[Mapping[str, Any]] | None = None,
    text: Callable[[int], str] | None = None,
    config: dict[str, Any] | None = None,
    info: dict[str, Any] | None = None,
    seed: int = 0,
) -> Path:
    """A completed run with curves, per-problem texts and, where it is no control, its parent and change."""
    logged = curves() if records is None else records
    last = logged[-1] if logged else {}
    budget = {"budget": {"completions_generated": last.get("completions_generated", 0)}}
    facts = {"device": "NVIDIA H200", "steps": last.get("step", 0)} | budget | (info or {})
    path = write_run(runs, name, right, seed=seed, config=config, info=facts, metrics=jsonl(logged))
    tables = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(tables | {"model": {"path": "Qwen/Qwen3-0.6B"}}))
    write_texts(path, right, text=text)
    return path


def small_experiment(runs: Path) -> None:
    """A control and three arms: better, worse, inconclusive; and the untrained model's score."""
    control, better = paired(40, 160, n=1000, right_a=500)
    _, worse = paired(150, 40, n=1000, right_a=500)
    _, same = paired(60, 70, n=1000, right_a=500)
    path = write_full_run(runs, "run-01", control)
    (path / "evals" / "test-base.json").write_text(
        json.dumps({"accuracy": 0.2085, "ci95": [0.1874, 0.2312], "n": 1000})
    )
    arms = (
        ("run-02", better, "rollout.oversample", 0.0, 1.5, curves(end=0.7, seed=2, change={"adv_std": 0.4})),
        ("run-03", worse, "grpo.kl_coef", 0.0, 0.01, curves(end=0.45, seed=3, change={"completion_length": -44})),
        ("run-04", same, "reward.format", 0.2, 0.05, curves(end=0.6, seed=4, change={"reward/format": -0.14})),
    )
    for name, right, key, before, after, records in arms:
        change = {"key": key, "from": before, "to": after}
        info = {"parent": "run-01", "changes": [change]}
        write_full_run(runs, name, right, records=records, config={key: after}, info=info)
