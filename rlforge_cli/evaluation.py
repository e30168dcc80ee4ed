"""Scoring an engine on problems: per-problem results, their summary, and how they lie on disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from rlforge_cli.distributed import ALONE, Ranks
from rlforge_cli.errors import UserError
from rlforge_cli.rollouts import Completion, RolloutEngine, SamplingParams
from rlforge_cli.seeding import derive

if TYPE_CHECKING:
    from rlforge_cli.prompts import PromptEncoder
    from rlforge_cli.tasks.base import Grade, Problem, Task


class Result(msgspec.Struct, frozen=True):
    """One graded completion of one problem: a line of ``evals/<name>.jsonl``."""

    id: str
    correct: bool
    correct_strict: bool
    prediction: str | None
    answer: str
    completion: str
    truncated: bool
    tokens: int
    format_ok: bool
    error: str | None = None


def result(problem: Problem, completion: Completion, grade: Grade) -> Result:
    return Result(
        id=problem.id, correct=grade.correct, correct_strict=grade.correct_strict, prediction=grade.prediction,
        answer=problem.answer, completion=completion.text, truncated=completion.truncated,
        tokens=len(completion.completion_ids), format_ok=grade.format_ok, error=grade.error,
    )  # fmt: skip


def evaluate(
    engine: RolloutEngine,
    *,
    task: Task,
    encoder: PromptEncoder,
    problems: Sequence[Problem],
    params: SamplingParams,
    samples: int = 1,
    seed: int = 0,
    chunk: int = 512,
    progress: Callable[[int], None] = lambda done: None,
    ranks: Ranks = ALONE,
) -> list[Result]:
    """``samples`` graded completions of each problem, problem by problem, in order; shared out among ``ranks``.

    The seed of a problem's samples does not depend on the training seed, so every run is asked the same.
    ``progress`` is told the number of problems done, every ``chunk`` problems.
    """
    results: list[Result] = []
    for start in range(0, len(problems), chunk):

        def scored(part: Sequence[Problem], places: Sequence[int], first: int = start) -> list[list[Result]]:
            groups = engine.generate(
                [encoder.encode(problem) for problem in part], n=samples, params=params,
                seed=derive(seed, "eval", first), places=places,
            )  # fmt: skip
            return [
                [result(problem, c, task.grade(c.text, problem)) for c in completions]
                for problem, completions in zip(part, groups, strict=True)
            ]

        for own in ranks.share_out(problems[start : start + chunk], scored):
            results += own
        progress(min(len(problems), start + chunk))
    return results


def accuracy(results: Sequence[Result]) -> float:
    return sum(r.correct for r in results) / len(results)


def summarize(results: Sequence[Result], *, k: Sequence[int] = (1,)) -> dict[str, Any]:
    """Accuracy (flexible and strict), its interval, and pass@k for every k that the samples allow.

    With one sample a problem the interval is Wilson's; with several, the standard error is over problems.

    Raises:
        UserError: no results, or problems with different numbers of samples.
    """
    from rlforge_cli.stats import clustered_interval, clustered_se, pass_at_k, wilson

    by_id: dict[str, list[Result]] = {}
    for item in results:
        by_id.setdefault(item.id, []).append(item)
    counts = {len(items) for items in by_id.values()}
    if len(counts) != 1:
        raise UserError(f"evaluation: {'no results' if not counts else 'problems have different numbers of samples'}")
    samples = counts.pop()
    right = {key: sum(r.correct for r in items) for key, items in by_id.items()}
    total = len(results)
    score = sum(right.values()) / total
    se: float | None
    if samples == 1:
        low, high = wilson(sum(right.values()), total)
        se = (score * (1 - score) / total) ** 0.5
    elif len(by_id) == 1:  # one problem says nothing about others
        low, high, se = 0.0, 1.0, None
    else:
        matrix = [[float(r.correct) for r in items] for items in by_id.values()]
        se = clustered_se(matrix)
        low, high = clustered_interval(matrix)
    return {
        "accuracy": score,
        "accuracy_strict": sum(r.correct_strict for r in results) / total,
        "ci95": [low, high],
        "se": se,
        "n": len(by_id),
        "samples": samples,
        "pass_at_k": {
            str(size): sum(pass_at_k(samples, c, size) for c in right.values()) / len(right)
            for size in k
            if size <= samples
        },
        "format_ok": sum(r.format_ok for r in results) / total,
        "truncated_fraction": sum(r.truncated for r in results) / total,
        "mean_tokens": sum(r.tokens for r in results) / total,
        "grader_errors": sum(r.error is not None for r in results),
    }
