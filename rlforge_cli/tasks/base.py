"""What a task is: problems in three disjoint splits, and a grader."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Literal, Protocol

import msgspec

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")


class Problem(msgspec.Struct, frozen=True):
    """One problem, as the task states it (before the prompt template and the chat template).

    Example: ``Problem(id="gsm8k-test-0001", prompt="Janet's ducks lay 16 eggs ...", answer="18")``.
    """

    id: str
    """Stable across machines and sessions; unique within the task."""
    prompt: str
    answer: str
    """The gold answer, already reduced to what the grader compares with."""


class Grade(msgspec.Struct, frozen=True):
    """What the grader says about one completion.

    Example: ``Grade(correct=True, correct_strict=True, format_ok=True, prediction="18")``.
    """

    correct: bool
    """Flexible extraction: the last answer that the text states, in whatever form."""
    correct_strict: bool
    """The asked format only."""
    format_ok: bool
    """The asked format was followed: exactly one final answer, stated as asked."""
    prediction: str | None
    """The extracted answer in canonical form, or None."""
    error: str | None = None
    """An internal error of the grader: counted and shown, never silently a wrong answer."""


class Task(Protocol):
    """A source of problems and the grader that judges completions of them."""

    @property
    def name(self) -> str: ...

    @property
    def grader_version(self) -> str:
        """Changes whenever a grade could; evaluations with different versions are not compared."""
        ...

    def problems(self, split: Split) -> list[Problem]:
        """The problems of a split, in a fixed order. The three splits are disjoint."""
        ...

    def grade(self, completion: str, problem: Problem) -> Grade:
        """Judge one completion; never raises, bounded in time, the same in any thread."""
        ...


def problems_hash(problems: Iterable[Problem]) -> str:
    """SHA-256 (16 hex digits) of ids, prompts and answers in order: equal exactly when the data is."""
    digest = hashlib.sha256()
    for problem in problems:
        digest.update(msgspec.json.encode([problem.id, problem.prompt, problem.answer]))
        digest.update(b"\n")
    return digest.hexdigest()[:16]
