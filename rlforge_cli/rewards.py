"""Rewards as named components, each logged alone; the total is their sum.

- ``correctness``: for a right answer; ``format``: for the asked format;
- ``truncation``: added, never in place of the others, when the completion ran into max_tokens;
- ``length`` (with ``length_coef`` > 0): 0 up to ``length_threshold`` tokens, then linear down to ``-length_coef`` at
  max_tokens: the soft overlong punishment of DAPO (arXiv 2503.14476, eq. 13), scaled;
- one for each user function.

A completion that the grader or a user function could not score has no total: it is left out, not scored 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from rlforge_cli.errors import UserError
from rlforge_cli.reward_functions import LARGEST, call_function, function_name, load_function
from rlforge_cli.tasks.base import Grade, Problem

if TYPE_CHECKING:
    from rlforge_cli.config import RewardConfig

BUILT_IN = ("correctness", "format", "truncation", "length")


class Scored(msgspec.Struct, frozen=True):
    """Example: ``Scored({"correctness": 1.0, "format": 0.2, "truncation": 0.0}, 1.2)``."""

    components: dict[str, float | None]
    """None where a component does not score this completion; the keys are the same for all completions of a run."""
    total: float | None
    """Their sum, or None when one of them is None."""


def overlong(length: int, *, threshold: int, max_tokens: int) -> float:
    """The length penalty before its coefficient, in [-1, 0]: linear from ``threshold`` to ``max_tokens`` tokens.

    Example: threshold 384, max_tokens 512: 0 at 384, -1/128 at 385, -1 at 512 and beyond.
    """
    return -max(0, min(length, max_tokens) - threshold) / (max_tokens - threshold) or 0.0


def components(
    grade: Grade, *, truncated: bool, length: int, config: RewardConfig, max_tokens: int
) -> dict[str, float | None]:
    """The built-in components of one completion; ``length`` in tokens, the end token included."""
    failed = grade.error is not None
    parts: dict[str, float | None] = {
        "correctness": None if failed else config.correctness if grade.correct else 0.0,
        "format": None if failed else config.format if grade.format_ok else 0.0,
        "truncation": config.truncation if truncated else 0.0,
    }
    if config.length_coef:
        shape = overlong(length, threshold=config.length_threshold, max_tokens=max_tokens)
        parts["length"] = config.length_coef * shape or 0.0
    return parts


def score(
    texts: Sequence[str],
    *,
    problems: Sequence[Problem],
    grades: Sequence[Grade],
    truncated: Sequence[bool],
    lengths: Sequence[int],
    config: RewardConfig,
    max_tokens: int,
) -> list[Scored]:
    """The reward of each completion; all sequences have one entry a completion, ``lengths`` are in tokens.

    Raises:
        UserError: a user function cannot be found, fails, or returns what is no reward.
    """
    own = {function_name(spec): call_function(spec, texts, problems) for spec in config.functions}
    scored = []
    for index, (grade, cut, length) in enumerate(zip(grades, truncated, lengths, strict=True)):
        parts = components(grade, truncated=cut, length=length, config=config, max_tokens=max_tokens)
        parts |= {name: values[index] for name, values in own.items()}
        known = [value for value in parts.values() if value is not None]
        scored.append(Scored(parts, math.fsum(known) if len(known) == len(parts) else None))
    return scored


def component_means(scored: Sequence[Scored]) -> dict[str, float]:
    """The mean of each component over the completions that have a total: they add up to the mean total.

    Empty when none has one.
    """
    counted = [one.components for one in scored if one.total is not None]
    return {name: math.fsum(parts[name] or 0.0 for parts in counted) / len(counted) for name in (counted or [{}])[0]}


def largest_length_coef(config: RewardConfig) -> float:
    """The length coefficient must stay below this, or a right answer could earn less than a wrong one.

    The worst right answers, each at max_tokens, against the short wrong one with format (``format``): one without the
    format (``correctness - coef``), and one with it that was truncated (``correctness + format + truncation - coef``).
    The defaults give min(0.8, 0.5) = 0.5.
    """
    return min(config.correctness - max(config.format, 0.0), config.correctness + config.truncation)


def check_reward(config: RewardConfig, max_tokens: int) -> None:
    """Refuse a reward that cannot be meant, and load the user functions.

    Raises:
        UserError: naming the key, its value and valid ones.
    """
    for name in ("correctness", "format", "truncation", "length_coef"):
        if not abs(value := getattr(config, name)) <= LARGEST:
            raise UserError(f"reward.{name} = {value}: use a finite number, at most {LARGEST:g} in size")
    if config.truncation > 0:
        raise UserError(
            f"reward.truncation = {config.truncation:g} would pay for running too long: use 0 or less, such as -0.5"
        )
    if config.length_coef < 0:
        raise UserError(
            f"reward.length_coef = {config.length_coef:g}: give the penalty's size as a positive number, or 0 (off)"
        )
    if config.length_coef:
        _check_length(config, max_tokens)
    names = [function_name(spec) for spec in config.functions]
    for index, (spec, name) in enumerate(zip(config.functions, names, strict=True)):
        load_function(spec)
        if name in BUILT_IN or name in names[:index]:
            raise UserError(
                f"reward function {spec!r}: there is a component {name!r} already, and each is logged under its name; "
                "rename the function"
            )


def _check_length(config: RewardConfig, max_tokens: int) -> None:
    largest = largest_length_coef(config)
    if config.length_coef >= largest:
        allowed = f"use less than {largest:g}" if largest > 0 else "use 0, or raise reward.correctness"
        raise UserError(
            f"reward.length_coef = {config.length_coef:g} could rank a right long answer below a wrong short one "
            f"(correctness {config.correctness:g}, format {config.format:g}, truncation {config.truncation:g}): "
            f"{allowed}"
        )
    if not 0 <= config.length_threshold < max_tokens:
        raise UserError(
            f"reward.length_threshold = {config.length_threshold}: with max_tokens {max_tokens} the length penalty "
            f"would never apply; use 0 to {max_tokens - 1} tokens"
        )
