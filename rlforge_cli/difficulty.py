"""Training on a band of difficulty: problems whose measured pass rate lies between two bounds.

A problem that is always or never solved has no spread in its group and teaches nothing. The rates come from an earlier
evaluation of the model on the training split: ``rlforge eval RUN --split train --samples 8``, then
``--set data.difficulty=0.1-0.9 --set data.difficulty_from=runs/run-01/evals/train-x8.jsonl``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlforge_cli.errors import UserError
from rlforge_cli.jsonl import read_records

if TYPE_CHECKING:
    from rlforge_cli.config import DataConfig
    from rlforge_cli.tasks.base import Problem

HOW = "measure it with `rlforge eval RUN --split train --samples 8`"


def band(text: str) -> tuple[float, float]:
    """``"0.1-0.9"`` -> ``(0.1, 0.9)``, both included.

    Raises:
        UserError: not two numbers in 0..1, the lower first.
    """
    match = re.fullmatch(r"\s*(\d*\.?\d+)\s*-\s*(\d*\.?\d+)\s*", text)
    low, high = (float(match[1]), float(match[2])) if match else (1.0, 0.0)
    if not 0 <= low <= high <= 1:
        raise UserError(f"data.difficulty = {text!r}: give the lowest and highest pass rate, such as 0.1-0.9")
    return low, high


def pass_rates(path: Path, *, problems: Sequence[Problem] = ()) -> dict[str, float]:
    """The share of right completions of each problem of an evaluation's per-problem results.

    Raises:
        UserError: no such file, no results in it, or results of other problems than ``problems`` under their ids.
    """
    answers = {problem.id: problem.answer for problem in problems}
    if not path.is_file():
        raise UserError(f"data.difficulty_from = {str(path)!r}: no such file; {HOW} and give its .jsonl")
    right: dict[str, list[bool]] = {}
    for record in read_records(path)[0]:
        if isinstance(record.get("id"), str) and isinstance(record.get("correct"), bool):
            right.setdefault(record["id"], []).append(record["correct"])
            known, logged = answers.get(record["id"]), record.get("answer")
            if known is not None and isinstance(logged, str) and logged != known:
                raise UserError(
                    f"data.difficulty_from = {str(path)!r}: measured on other problems: there the answer of "
                    f"{record['id']} is {logged[:40]!r}, here {known[:40]!r}; {HOW}"
                )
    if not right:
        raise UserError(f"data.difficulty_from = {str(path)!r}: no line with id and correct; {HOW} and give its .jsonl")
    return {key: sum(values) / len(values) for key, values in right.items()}


def chosen(problems: Sequence[Problem], config: DataConfig) -> list[Problem]:
    """The problems in the band of ``data.difficulty``, in order; all of them without one. Unmeasured ones are left out.

    Raises:
        UserError: a band that cannot be read, no results, or no problem in the band.
    """
    if not config.difficulty:
        return list(problems)
    low, high = band(config.difficulty)
    rates = pass_rates(Path(config.difficulty_from), problems=problems)
    known = [problem for problem in problems if problem.id in rates]
    inside = [problem for problem in known if low <= rates[problem.id] <= high]
    if not inside:
        reason = (
            f"{len(known)} of {len(problems)} train problems were measured and none lies in it"
            if known
            else "it holds none of this task's train problems"
        )
        raise UserError(
            f"data.difficulty = {config.difficulty!r} with {config.difficulty_from}: {reason}; widen the band, or {HOW}"
        )
    return inside
