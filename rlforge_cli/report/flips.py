"""Problems that one of two runs solved and the other did not, with their texts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from rlforge_cli.comparison.samples import binary, normal_id
from rlforge_cli.jsonl import read_records
from rlforge_cli.report.facts import EVALUATION, Subject

SHOWN = 5
"""Problems shown each way."""


class Answer(msgspec.Struct, frozen=True):
    """What one run said. ``prediction`` is None when no answer was found in the completion."""

    prediction: str | None
    completion: str


class Flip(msgspec.Struct, frozen=True):
    """One problem. ``prompt`` is None when the problems that were asked are not at hand."""

    id: str
    gold: str
    prompt: str | None
    control: Answer
    arm: Answer


class Flips(msgspec.Struct, frozen=True):
    """``lost``: the control right, the arm wrong; ``won``: the reverse. The counts are of all, the lists a draw."""

    lost: list[Flip]
    won: list[Flip]
    lost_count: int
    won_count: int


def find_flips(control: Subject, arm: Subject, *, prompts: Mapping[str, str]) -> Flips | None:
    """Compare two runs' answers problem by problem; None unless both hold one answer a problem."""
    first, second = _answers(control), _answers(arm)
    if first is None or second is None:
        return None
    shared = [item for item in first if item in second]
    right = {item: (binary(first[item].get("correct")), binary(second[item].get("correct"))) for item in shared}
    lost = _draw([item for item in shared if right[item] == (True, False)])
    won = _draw([item for item in shared if right[item] == (False, True)])

    def flips(ids: Sequence[str]) -> list[Flip]:
        return [_flip(item, first[item], second[item], prompts) for item in ids[:SHOWN]]

    return Flips(lost=flips(lost), won=flips(won), lost_count=len(lost), won_count=len(won))


def _answers(subject: Subject) -> dict[str, dict[str, Any]] | None:
    path = subject.run.evals / f"{EVALUATION}.jsonl"
    if subject.row.accuracy is None or not path.is_file():
        return None
    records, _ = read_records(path)
    by_id = {item: record for record in records if (item := normal_id(record.get("id"))) is not None}
    return by_id if len(by_id) == len(records) else None


def _draw(ids: Sequence[str]) -> list[str]:
    """In the order of a hash of the ids: nobody chose the examples, and the same problems come up every time."""
    return sorted(ids, key=lambda item: hashlib.sha256(item.encode("utf-8", "surrogatepass")).digest())


def _flip(item: str, first: Mapping[str, Any], second: Mapping[str, Any], prompts: Mapping[str, str]) -> Flip:
    stored = first.get("prompt", second.get("prompt"))
    return Flip(
        id=item,
        gold=_string(first.get("answer", second.get("answer"))),
        prompt=stored if isinstance(stored, str) else prompts.get(item),
        control=_answer(first),
        arm=_answer(second),
    )


def _answer(record: Mapping[str, Any]) -> Answer:
    prediction = record.get("prediction")
    return Answer(
        prediction=None if prediction is None else _string(prediction), completion=_string(record.get("completion"))
    )


def _string(value: object) -> str:
    return "" if value is None else str(value)
