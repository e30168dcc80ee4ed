"""Holding problems out: disjoint splits that depend on the problems alone, not on their order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from rlforge_cli.errors import UserError
from rlforge_cli.tasks.base import Problem, Split


def wording(problem: Problem) -> str:
    """The prompt as a reader sees it: problems that differ in white space alone are one."""
    return " ".join(problem.prompt.split())


def rank(problem: Problem) -> str:
    """A fixed pseudo-random key of a problem's prompt: sorting by it is a shuffle that never changes."""
    return hashlib.blake2b(problem.prompt.encode(), digest_size=8).hexdigest()


def hold_out(
    train: Sequence[Problem], test: Sequence[Problem], *, validation: int, task: str, given: Sequence[Problem] = ()
) -> dict[Split, list[Problem]]:
    """The three splits: ``validation`` problems of ``given`` or else taken out of train; each prompt in one split only.

    A prompt that stands in test is left out of train and validation, one in validation out of train.

    Raises:
        UserError: a split would be empty.
    """
    tested = {wording(problem) for problem in test}
    pool = sorted((p for p in (given or train) if wording(p) not in tested), key=rank)
    held = unique(pool)[:validation]
    taken = tested | {wording(problem) for problem in held}
    rest = unique(problem for problem in train if wording(problem) not in taken)
    for name, problems in (("validation", held), ("train", rest), ("test", test)):
        if not problems:
            raise UserError(
                f"task {task}: no {name} problems ({len(train)} train and {len(test)} test problems were given, "
                f"{validation} held out); give more, or set data.validation lower"
            )
    return {"train": rest, "validation": held, "test": list(test)}


def unique(problems: Iterable[Problem]) -> list[Problem]:
    """The first problem of every prompt, in order."""
    seen: dict[str, Problem] = {}
    for problem in problems:
        seen.setdefault(wording(problem), problem)
    return list(seen.values())
