"""A file of per-problem results as counts of right answers: rlforge's, any JSONL of id and correct, lm-eval logs."""

from __future__ import annotations

import math
import reprlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from rlforge_cli.errors import UserError
from rlforge_cli.jsonl import read_records


class Sample(NamedTuple):
    """One graded answer. Example: ``Sample(id="17", correct=True, strict=False, gold="18", prompt=None)``."""

    id: str
    correct: bool
    strict: bool | None
    """By the asked format only, where the file says."""
    gold: str | None
    prompt: str | None
    """The prompt's hash, where the file says."""


class Scores(msgspec.Struct, frozen=True):
    """How often each problem was answered rightly. Example: two problems, one sample each: ``right = [1, 0]``."""

    ids: tuple[str, ...]
    right: NDArray[np.int64]
    """[items] right answers among ``samples``."""
    samples: int
    """Answers a problem, the same for all."""
    strict: NDArray[np.int64] | None
    """[items] the same under the asked format, where the file says."""
    golds: tuple[str | None, ...]
    prompts: tuple[str | None, ...]
    incomplete: int = 0
    """Lines that were no complete record."""

    @property
    def accuracy(self) -> float:
        return int(self.right.sum()) / (len(self.ids) * self.samples)

    def reordered(self, ids: tuple[str, ...]) -> Scores:
        """The same results in the order of ``ids``, which hold the same items."""
        if ids == self.ids:
            return self
        position = {item: index for index, item in enumerate(self.ids)}
        order = [position[item] for item in ids]
        return Scores(
            ids=ids,
            right=self.right[order],
            samples=self.samples,
            strict=None if self.strict is None else self.strict[order],
            golds=tuple(self.golds[i] for i in order),
            prompts=tuple(self.prompts[i] for i in order),
            incomplete=self.incomplete,
        )


def normal_id(value: object) -> str | None:
    """One spelling of an id: 7, 7.0 and "7" are the same item; None when it is no id."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value) if math.isfinite(value) else None
    return str(value) if isinstance(value, (int, str)) else None


def binary(value: object) -> bool | None:
    """True for true, 1 and 1.0, False for false, 0 and 0.0; None for what is neither right nor wrong."""
    return bool(value) if isinstance(value, (bool, int, float)) and value in (0, 1) else None


def read_scores(path: Path, *, filter: str | None = None) -> Scores:
    """Read a file of results, telling its format from its first record.

    Raises:
        UserError: unreadable, empty, not a known format, or ids that repeat unequally often: neither one answer a
            problem nor k samples of each.
    """
    from rlforge_cli.comparison import lm_eval

    try:
        records, incomplete = read_records(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    if not records:
        none = f": none of its {incomplete:,} lines is a JSON object" if incomplete else ""
        raise UserError(f'{path}: holds no results{none}; expected lines such as {{"id": 1, "correct": true}}')
    if lm_eval.is_log(records[0]):
        samples = lm_eval.read(records, filter=filter, path=path)
    else:
        samples = [_plain(record, number, path) for number, record in enumerate(records, start=1)]
    return _gather(samples, incomplete=incomplete, path=path)


def _plain(record: dict[str, Any], number: int, path: Path) -> Sample:
    item, correct = normal_id(record.get("id")), binary(record.get("correct"))
    if item is None or correct is None:
        key, wanted = ("id", "a text or a whole number") if item is None else ("correct", "true or false")
        found = reprlib.repr(record[key]) if key in record else "missing"
        raise UserError(f"{path}: record {number}: {key!r} is {found}, expected {wanted}")
    gold = record.get("answer")
    return Sample(
        id=item,
        correct=correct,
        strict=binary(record.get("correct_strict")),
        gold=None if gold is None else str(gold),
        prompt=None if record.get("prompt_hash") is None else str(record["prompt_hash"]),
    )


def _gather(samples: Sequence[Sample], *, incomplete: int, path: Path) -> Scores:
    counts = Counter(sample.id for sample in samples)
    each = max(counts.values())
    short = [item for item, count in counts.items() if count != each]
    if short:
        message = (
            f"{path}: id {short[0]!r} has {counts[short[0]]} results where others have {each}: repeated ids must be "
            "equally many samples of every problem"
        )
        raise UserError(f"{message} ({incomplete} incomplete lines)" if incomplete else message)
    position = {item: index for index, item in enumerate(counts)}
    right = np.zeros(len(counts), dtype=np.int64)
    strict = np.zeros(len(counts), dtype=np.int64)
    golds: list[str | None] = [None] * len(counts)
    prompts: list[str | None] = [None] * len(counts)
    for sample in samples:
        index = position[sample.id]
        right[index] += sample.correct
        strict[index] += bool(sample.strict)
        golds[index], prompts[index] = sample.gold, sample.prompt
    return Scores(
        ids=tuple(counts),
        right=right,
        samples=each,
        strict=strict if all(sample.strict is not None for sample in samples) else None,
        golds=tuple(golds),
        prompts=tuple(prompts),
        incomplete=incomplete,
    )
