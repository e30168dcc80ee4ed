"""Any JSONL of problems: ``{"prompt": ..., "answer": ...}`` (or ``question``), optionally with an ``id``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rlforge_cli.errors import UserError
from rlforge_cli.tasks.base import Grade, Problem, Split
from rlforge_cli.tasks.grading import GRADER_VERSION, grade_number
from rlforge_cli.tasks.splits import hold_out, rank

TEST_SHARE = 5
"""A single file gives every fifth problem (by rank) to test."""


class TextTask:
    """Problems given as splits, graded by the last number (or, for an answer that is no number, by its exact text)."""

    grader_version = GRADER_VERSION

    def __init__(self, name: str, splits: dict[Split, list[Problem]]) -> None:
        self.name = name
        self._splits = splits

    def problems(self, split: Split) -> list[Problem]:
        return self._splits[split]

    def grade(self, completion: str, problem: Problem) -> Grade:
        return grade_number(completion, problem.answer)


def jsonl_task(path: Path, *, validation: int) -> TextTask:
    """A folder of train.jsonl and test.jsonl (and validation.jsonl), or one file that is split by a fixed rank."""
    if path.is_dir():
        names = ("train", "test", "validation")
        files = {name: path / f"{name}.jsonl" for name in names}
        missing = [files[name].name for name in ("train", "test") if not files[name].is_file()]
        if missing:
            raise UserError(
                f"data.path = {path}: no {missing[0]} in it; a task folder holds train.jsonl and test.jsonl"
            )
        read = {name: read_problems(file, name) for name, file in files.items() if file.is_file()}
        given = read.get("validation", [])
        return TextTask(
            "jsonl", hold_out(read["train"], read["test"], validation=validation, task="jsonl", given=given)
        )
    problems = sorted(read_problems(path, path.stem), key=rank)
    test, train = problems[::TEST_SHARE], [p for i, p in enumerate(problems) if i % TEST_SHARE]
    return TextTask("jsonl", hold_out(train, test, validation=validation, task="jsonl"))


def read_problems(path: Path, label: str, *, answer: Callable[[str], str] = str.strip) -> list[Problem]:
    """The problems of one file; ``answer`` reduces a gold solution to what is compared.

    Raises:
        UserError: file and line of what is missing, empty, twice, or no JSON object; or a gold that ``answer`` refuses.
    """
    problems: dict[str, Problem] = {}
    for number, row in rows(path):
        where = f"{path}:{number}"
        prompt = row.get("prompt", row.get("question"))
        gold = row.get("answer")
        if isinstance(gold, (int, float)) and not isinstance(gold, bool):
            gold = str(gold)
        if not isinstance(prompt, str) or not prompt.strip():
            raise UserError(
                f"{where}: needs a text 'prompt' (or 'question'); it has {', '.join(map(repr, row)) or 'no keys'}"
            )
        if not isinstance(gold, str) or not gold.strip():
            raise UserError(f"{where}: needs a non-empty 'answer'")
        try:
            gold = answer(gold)
        except UserError as error:
            raise UserError(f"{where}: {error}") from None
        if half := next((c for c in f"{row.get('id')}{prompt}{gold}" if "\ud800" <= c <= "\udfff"), None):
            raise UserError(f"{where}: holds {half!a}, half of a surrogate pair and no character; mend the text")
        key = str(row.get("id", f"{label}-{hashlib.blake2b(f'{prompt}|{gold}'.encode(), digest_size=6).hexdigest()}"))
        if "id" in row and key in problems:
            raise UserError(f"{where}: id {key!r} stands twice; ids name problems across runs, so each is unique")
        problems[key] = Problem(id=key, prompt=prompt, answer=gold)
    if not problems:
        raise UserError(f"{path}: holds no problems")
    return list(problems.values())


def rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line numbers and objects; only ``\\n`` ends a line (U+2028 may stand inside a text)."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is not UTF-8 (byte {error.start}); convert it first") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise UserError(f"{path}:{number}: not valid JSON: {error}") from None
        except RecursionError:
            raise UserError(f"{path}:{number}: nested too deeply to be a problem") from None
        if not isinstance(row, dict):
            raise UserError(f"{path}:{number}: expected a JSON object with 'prompt' and 'answer'")
        yield number, row
