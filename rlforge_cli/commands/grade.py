"""``rlforge grade``: judge completions from a file, as training and evaluation would."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from rlforge_cli import output
from rlforge_cli.commands.common import Json
from rlforge_cli.errors import UserError, nearest

TASKS = ("gsm8k", "arithmetic", "jsonl")
"""The golds of the first two are numbers; those of jsonl may be any text."""


def grade(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE.jsonl", help='Lines {"completion", "answer"[, "finish_reason"]}; - reads stdin.'),
    ],
    task: Annotated[str, typer.Option(help="gsm8k, arithmetic, or jsonl (an answer may be any text).")] = "gsm8k",
    as_json: Json = False,
) -> None:
    """Grade completions and show what reward each would get."""
    rows = [_checked(row, where=where, task=task) for where, row in _rows(file, task)]
    result = _graded(rows)
    if as_json:
        output.print_json(result)
        return
    columns = ("#", "right", "prediction", "answer", "format", "reward")
    cells = (
        (
            number,
            "error" if item["error"] else "yes" if item["correct"] else "no",
            "-" if item["prediction"] is None else item["prediction"],
            row["answer"],
            "yes" if item["format_ok"] else "no",
            "-" if item["reward"] is None else f"{item['reward']:.2f}",
        )
        for number, (row, item) in enumerate(zip(rows, result["items"], strict=True), 1)
    )
    console = output.stdout()
    console.print(output.table(columns, cells, right=(0, 5)))
    right = sum(item["correct"] for item in result["items"])
    errors = f", {result['grader_errors']} grader errors" if result["grader_errors"] else ""
    console.print(
        f"{right} of {result['n']} right: accuracy {result['accuracy']:.2%}, "
        f"asked format only {result['accuracy_strict']:.2%}{errors}"
    )


def _graded(rows: list[dict[str, Any]]) -> dict[str, Any]:
    from rlforge_cli.config import RewardConfig
    from rlforge_cli.rewards import score
    from rlforge_cli.tasks.base import Problem
    from rlforge_cli.tasks.grading import GRADER_VERSION, grade_number

    grades = [grade_number(row["completion"], row["answer"]) for row in rows]
    scored = score(
        [row["completion"] for row in rows],
        problems=[Problem(id=str(number), prompt="", answer=row["answer"]) for number, row in enumerate(rows, 1)],
        grades=grades,
        truncated=[row.get("finish_reason") == "length" for row in rows],
        lengths=[0] * len(rows),  # tokens are unknown here, and the default reward has no length penalty
        config=RewardConfig(),
        max_tokens=1,
    )
    items = [
        {
            "correct": judged.correct,
            "correct_strict": judged.correct_strict,
            "prediction": judged.prediction,
            "format_ok": judged.format_ok,
            "components": rewarded.components,
            "reward": rewarded.total,
            "error": judged.error,
        }
        for judged, rewarded in zip(grades, scored, strict=True)
    ]
    return {
        "n": len(rows),
        "accuracy": sum(judged.correct for judged in grades) / len(rows),
        "accuracy_strict": sum(judged.correct_strict for judged in grades) / len(rows),
        "grader_errors": sum(judged.error is not None for judged in grades),
        "grader": GRADER_VERSION,
        "items": items,
    }


def _rows(file: str, task: str) -> list[tuple[str, dict[str, Any]]]:
    if task not in TASKS:
        raise UserError(f"--task {task!r}: no such grader{nearest(task, TASKS)}; give one of {', '.join(TASKS)}")
    name = "stdin" if file == "-" else file
    try:
        text = (sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()).decode("utf-8-sig")
    except OSError as error:
        raise UserError(
            f"{name}: cannot be read: {error.strerror}; give a file of JSON lines, or - for stdin"
        ) from None
    except UnicodeDecodeError as error:
        raise UserError(f"{name}: is not UTF-8 (byte {error.start}); convert it first") from None
    rows = []
    for number, line in enumerate(text.split("\n"), 1):  # U+2028 may stand inside a text
        if not line.strip():
            continue
        where = f"{name}:{number}"
        try:
            row = json.loads(line, parse_float=str, parse_int=str)  # a number keeps the digits it was written with
        except (ValueError, RecursionError) as error:
            raise UserError(f"{where}: not valid JSON: {error}") from None
        if not isinstance(row, dict):
            raise UserError(f"{where}: expected a JSON object with 'completion' and 'answer'")
        rows.append((where, row))
    if not rows:
        raise UserError(f'{name}: holds no lines; each is {{"completion": ..., "answer": ...}}')
    return rows


def _checked(row: dict[str, Any], *, where: str, task: str) -> dict[str, Any]:
    from rlforge_cli.tasks.grading import gold_answer

    for key in ("completion", "answer"):
        if not isinstance(row.get(key), str) or (key == "answer" and not row[key].strip()):
            has = f"it is {row[key]!r}" if key in row else f"it has {', '.join(map(repr, row)) or 'no keys'}"
            raise UserError(f"{where}: needs a text {key!r}; {has}")
    if task != "jsonl":
        try:
            return row | {"answer": gold_answer(row["answer"])}
        except UserError as error:
            raise UserError(f"{where}: {error}; --task jsonl compares other answers as text") from None
    return row
