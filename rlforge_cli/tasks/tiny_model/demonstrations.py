r"""The texts that the embedded model is taught: right ones, and ones with the habits that GRPO is to undo.

``23-6+9=?`` is worked as ``23-6=17;17+9=26\n#### 26``, one step an operation. A step can also be written out as tens
and units, ``23-6=20-3=17``: longer and always right, so a model that learns to take that care grows longer as it grows
better, and a penalty on length costs it accuracy. Every text is made with ``rng.random()`` alone.
"""

from __future__ import annotations

import random
import re
from typing import NamedTuple


class Demonstration(NamedTuple):
    r"""Example: ``Demonstration("23-6=17;17+9=26\n#### 26", ends=True)``."""

    text: str
    ends: bool
    """Whether an end token follows; a text that does not end is longer than any completion of the task."""


class Habits(NamedTuple):
    """How steps are worked: three probabilities."""

    care: float
    """A step with a carry or a borrow is written out as tens and units."""
    needless_care: float
    """A step with neither is written out too."""
    slip: float
    """A carry or borrow that is not written out goes wrong."""


class Mix(NamedTuple):
    """What share of the spoiled demonstrations takes which shape; they sum to 1."""

    asked: float
    r"""The asked format: steps, then ``\n#### 26``."""
    guess: float
    """``####`` and a guess within 9 of the answer, without a step."""
    marker: float
    r"""Steps, then ``\n## 26`` or, one time in four, nothing."""
    ramble: float
    """The steps over and over, past the token limit."""


TAUGHT = Habits(care=0.5, needless_care=0.15, slip=0.0)
SPOILED = Habits(care=0.3, needless_care=0.1, slip=0.85)

MIXES = {
    1: Mix(asked=0.45, guess=0.08, marker=0.37, ramble=0.10),
    2: Mix(asked=0.43, guess=0.08, marker=0.39, ramble=0.10),
    3: Mix(asked=0.37, guess=0.08, marker=0.43, ramble=0.12),
    4: Mix(asked=0.33, guess=0.08, marker=0.31, ramble=0.28),
}
"""By number of operations: longer sums are rambled over more often."""

RAMBLE_LENGTH = 72
"""Characters of a ramble: more than the 64 that a completion of this task may have."""


def operands(prompt: str) -> list[int]:
    """The signed numbers of a prompt. Example: ``operands("23-6+9=?")`` -> ``[23, -6, 9]``."""
    return [int(number) for number in re.findall(r"[+-]?\d+", prompt)]


def gold(prompt: str, rng: random.Random) -> Demonstration:
    """A right demonstration in the asked format."""
    steps, result = _worked(prompt, TAUGHT, rng)
    return Demonstration(f"{steps}\n#### {result}", ends=True)


def spoiled(prompt: str, rng: random.Random) -> Demonstration:
    """A demonstration with bad habits: carries and borrows go wrong, and four shapes compete."""
    steps, result = _worked(prompt, SPOILED, rng)
    numbers = operands(prompt)
    mix = MIXES[len(numbers) - 1]
    u = rng.random()
    if u < mix.asked:
        return Demonstration(f"{steps}\n#### {result}", ends=True)
    if u < mix.asked + mix.guess:
        return Demonstration(f"#### {sum(numbers) - 9 + int(rng.random() * 19)}", ends=True)
    if u < mix.asked + mix.guess + mix.marker:
        return Demonstration(steps if rng.random() < 0.25 else f"{steps}\n## {result}", ends=True)
    return Demonstration((f"{steps};" * RAMBLE_LENGTH)[:RAMBLE_LENGTH], ends=False)


def slipped(value: int, operand: int) -> int:
    """The result of a step whose carry or borrow goes wrong.

    A carry is forgotten (27+5=22); in place of borrowing, the smaller digit is taken from the larger (23-6=23), as
    children do (Brown and Burton, "Diagnostic models for procedural bugs in basic mathematical skills", Cognitive
    Science 2, 1978). The two do not cancel out, as a forgotten carry and a forgotten borrow would.
    """
    if operand > 0:
        return value + operand - 10
    taken = -operand
    return (value // 10 - taken // 10) * 10 + (taken % 10 - value % 10)


def _worked(prompt: str, habits: Habits, rng: random.Random) -> tuple[str, int]:
    value, *rest = operands(prompt)
    steps = []
    for operand in rest:
        text, value = _step(value, operand, habits, rng)
        steps.append(text)
    return ";".join(steps), value


def _step(value: int, operand: int, habits: Habits, rng: random.Random) -> tuple[str, int]:
    result = value + operand
    if value < 0 or result < 0:  # only after a slip
        return f"{value}{operand:+d}={result}", result
    sign, size = (1, operand) if operand > 0 else (-1, -operand)
    units = value % 10 + sign * (size % 10)
    hard = not 0 <= units <= 9
    if rng.random() < (habits.care if hard else habits.needless_care):
        return f"{value}{operand:+d}={result - units}{units:+d}={result}", result
    if hard and rng.random() < habits.slip:
        result = slipped(value, operand)
    return f"{value}{operand:+d}={result}", result
