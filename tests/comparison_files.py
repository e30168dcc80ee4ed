"""Run directories and result files as the other commands write them, small enough to read in a test."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlforge_cli.comparison import Comparison, Options, Row, compare

CONFIG: dict[str, dict[str, Any]] = {
    "run": {"name": "", "note": ""},
    "data": {"task": "gsm8k"},
    "rollout": {"group_size": 8, "prompts": 8, "completions": 0},
    "reward": {"format": 0.2},
    "grpo": {"kl_coef": 0.0},
    "optimizer": {"lr": 1e-6},
    "train": {"steps": 200, "seed": 0},
    "log": {"sinks": []},
}
SUMMARY: dict[str, Any] = {
    "split": "test",
    "decoding": {"temperature": 0.0, "top_p": 1.0, "top_k": 0, "max_tokens": 512, "samples": 1, "seed": 0},
    "grader": "1",
    "task": "gsm8k",
    "task_hash": "t0",
    "prompt_hash": "p0",
    "chosen_on": "validation",
}


def bits(text: str) -> list[int]:
    """``"1101"`` -> ``[1, 1, 0, 1]``."""
    return [int(character) for character in text]


def paired(only_a: int, only_b: int, *, n: int = 1319, right_a: int = 950) -> tuple[list[int], list[int]]:
    """Two right/wrong vectors with those counts of exclusive wins."""
    both, neither = right_a - only_a, n - right_a - only_b
    a = [1] * both + [1] * only_a + [0] * only_b + [0] * neither
    b = [1] * both + [0] * only_a + [1] * only_b + [0] * neither
    return a, b


def lines(right: Sequence[int], *, strict: Sequence[int] | None = None) -> str:
    """Per-problem results, ids in order."""
    records = []
    for index, value in enumerate(right):
        record: dict[str, Any] = {"id": f"q{index}", "correct": bool(value)}
        record["correct_strict"] = bool(value if strict is None else strict[index])
        records.append(json.dumps(record | {"answer": str(index)}))
    return "\n".join(records) + "\n"


def write_results(path: Path, right: Sequence[int]) -> Path:
    """A bare file of ids and verdicts."""
    path.write_text("".join(json.dumps({"id": i, "correct": bool(v)}) + "\n" for i, v in enumerate(right)))
    return path


def write_run(
    runs: Path,
    name: str,
    right: Sequence[int] | None,
    *,
    seed: int = 0,
    config: dict[str, Any] | None = None,
    info: dict[str, Any] | None = None,
    summary: dict[str, Any] | None = None,
    metrics: str | None = None,
    strict: Sequence[int] | None = None,
) -> Path:
    """A run with the given results; ``config`` holds flat keys that differ from the control's."""
    path = runs / name
    (path / "evals").mkdir(parents=True)
    tables = {section: dict(values) for section, values in CONFIG.items()}
    for key, value in ({"train.seed": seed} | (config or {})).items():
        section, field = key.split(".")
        tables[section][field] = value
    (path / "config.json").write_text(json.dumps(tables))
    state = {"id": name, "status": "completed", "seed": seed, "parent": None, "changes": [], "task": "gsm8k"}
    (path / "run.json").write_text(json.dumps(state | (info or {})))
    if metrics is not None:
        (path / "metrics.jsonl").write_text(metrics)
    if right is not None:
        (path / "evals" / "test.jsonl").write_text(lines(right, strict=strict))
        accuracy = sum(right) / len(right)
        (path / "evals" / "test.json").write_text(
            json.dumps(SUMMARY | {"accuracy": accuracy, "n": len(right)} | (summary or {}))
        )
    return path


def versus(runs: Path, *names: str, **options: Any) -> Comparison:
    """Compare by name in a folder of runs."""
    return compare(names, options=Options(runs_dir=runs, **options))


def only_row(runs: Path, *names: str, **options: Any) -> Row:
    """The one row beside the control's."""
    (row,) = versus(runs, *names, **options).rows[1:]
    return row


def jsonl(path: Path, *records: dict[str, Any]) -> str:
    """Write records as lines; returns the path as a name to compare."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)
