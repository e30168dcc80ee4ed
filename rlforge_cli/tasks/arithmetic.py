"""The embedded task: left-to-right sums such as ``23-6+9=?``, made by a seeded procedure; no file, no network.

A problem has one to four additions or subtractions, and every intermediate result stays in 0..99. The split of a
problem is decided by the CRC-32 of its prompt, so the three splits are disjoint whatever their sizes, and so is any
other program that draws from ``stream`` (the warm start of the embedded model draws from ``train`` only).
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from itertools import islice

from rlforge_cli.errors import UserError
from rlforge_cli.tasks.base import SPLITS, Grade, Problem, Split

LARGEST = 99
"""No operand and no intermediate result is larger, and none is negative."""

SEEDS: dict[Split, int] = {"train": 1, "validation": 2, "test": 3}
CAPACITY: dict[Split, int] = {"train": 100_000, "validation": 20_000, "test": 20_000}
"""The most problems a split may be asked for: well under what the procedure can make, so that it stays quick."""


def split_of(prompt: str) -> Split:
    """The split that owns a prompt: 70 % of all prompts are train, 10 % validation, 20 % test."""
    bucket = zlib.crc32(prompt.encode()) % 10
    if bucket < 2:
        return "test"
    return "validation" if bucket == 2 else "train"


def stream(split: Split, rng: random.Random) -> Iterator[tuple[str, str]]:
    """Endless ``(prompt, answer)`` pairs of one split, repeats included.

    The number of operations is 1, 2, 3 or 4 with probability .10, .25, .35, .30; the first value is 1..99; an operand
    is 1..9, or 10..60 in 15 % of cases; a sign that would leave 0..99 is turned round, and an operand that fits
    neither way is drawn again. Only ``rng.random()`` is used: the one method whose sequence Python promises to keep.
    """
    draw = rng.random
    while True:
        u = draw()
        operations = 1 if u < 0.10 else 2 if u < 0.35 else 3 if u < 0.70 else 4
        value = 1 + int(draw() * LARGEST)
        text = str(value)
        for _ in range(operations):
            while True:
                operand = 10 + int(draw() * 51) if draw() < 0.15 else 1 + int(draw() * 9)
                if draw() < 0.5:
                    operand = -operand
                if not 0 <= value + operand <= LARGEST:
                    operand = -operand
                if 0 <= value + operand <= LARGEST:
                    break
            value += operand
            text += f"{operand:+d}"
        prompt = text + "=?"
        if split_of(prompt) == split:
            yield prompt, str(value)


class Arithmetic:
    """The task ``arithmetic``. The first n problems of a split do not depend on its size."""

    name = "arithmetic"

    def __init__(self, *, train: int = 8000, validation: int = 500, test: int = 1000) -> None:
        self._sizes: dict[Split, int] = {"train": train, "validation": validation, "test": test}
        for split, size in self._sizes.items():
            if not 1 <= size <= CAPACITY[split]:
                raise UserError(f"arithmetic: {split} = {size} problems is out of range: give 1 to {CAPACITY[split]}")
        self._problems: dict[Split, list[Problem]] = {}

    @property
    def grader_version(self) -> str:
        from rlforge_cli.tasks.grading import GRADER_VERSION

        return GRADER_VERSION

    def problems(self, split: Split) -> list[Problem]:
        """Distinct problems, in a fixed order, with ids such as ``arith-test-0001``."""
        if split not in SPLITS:
            raise UserError(f"arithmetic has no split {split!r}: use {', '.join(SPLITS)}")
        if split not in self._problems:
            answers: dict[str, str] = {}
            pairs = stream(split, random.Random(SEEDS[split]))
            while len(answers) < self._sizes[split]:
                answers.update(islice(pairs, self._sizes[split] - len(answers)))
            self._problems[split] = [
                Problem(id=f"arith-{split}-{number:04d}", prompt=prompt, answer=answer)
                for number, (prompt, answer) in enumerate(answers.items(), start=1)
            ]
        return self._problems[split].copy()

    def grade(self, completion: str, problem: Problem) -> Grade:
        """Grade like any number: the asked format is a last line ``#### 26``."""
        from rlforge_cli.tasks.grading import grade_number

        return grade_number(completion, problem.answer)
