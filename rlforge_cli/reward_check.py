"""What the reward pays: fixed probes and the model's own samples, without training.

A shortcut in the reward cannot be repaired by any other knob, so this comes before every experiment. The probes are
what a policy finds first: nothing, the format alone, the format again and again, the question, a flood of numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rlforge_cli.checks.evidence import ComponentUse, Earning, GoldProbe
from rlforge_cli.rewards import Scored, score

if TYPE_CHECKING:
    from rlforge_cli.config import Config
    from rlforge_cli.rollouts import RolloutGroup
    from rlforge_cli.tasks.base import Grade, Problem, Task

PROBLEMS = 24
"""Problems that every probe is tried on: a tenth of them right by chance is two."""
GOLDS = 2000
"""Golds that are graded against themselves; of a larger task an even sample."""
REPEATS = 8
Length = Callable[[str], int]


class Try(NamedTuple):
    """A completion to be paid. ``full``: it is as long as max_tokens."""

    name: str
    text: str
    problem: Problem
    wanted: bool | None
    truncated: bool = False
    full: bool = False


def gold_text(problem: Problem) -> str:
    """The gold in the asked format: a worked solution as it is, else behind the marker."""
    return problem.answer if "####" in problem.answer else f"#### {problem.answer}"


def final_answer(problem: Problem) -> str:
    return problem.answer.rpartition("####")[2].strip()


def gold_probe(task: Task, problems: Sequence[Problem]) -> GoldProbe:
    """Every gold (of at most :data:`GOLDS` problems) graded against itself."""
    step = max(1, -(-len(problems) // GOLDS))
    chosen = problems[::step]
    wrong = [p for p in chosen if not task.grade(gold_text(p), p).correct]
    return GoldProbe(len(chosen), [f"{p.id} {p.answer[:40]!r}" for p in wrong[:3]], len(wrong))


def tries(problems: Sequence[Problem]) -> list[Try]:
    """The probes of each problem; a wrong answer is another problem's right one, so that it has the same kind."""
    made: list[Try] = []
    for index, problem in enumerate(problems):
        gold = final_answer(problem)
        others = (final_answer(p) for p in (*problems[index + 1 :], *problems[:index]))
        wrong = next((answer for answer in others if answer != gold), "none of these")
        numbers = re.findall(r"\d+", problem.prompt)
        last = numbers[-1] if numbers else problem.prompt.split()[-1]
        flood = " ".join(map(str, range(100)))
        made += [
            Try("gold", gold_text(problem), problem, True),
            Try("gold at the limit", gold_text(problem), problem, True, full=True),
            Try("gold without format", f"The answer is {gold}", problem, None),
            Try("gold, truncated", gold_text(problem), problem, None, truncated=True, full=True),
            Try("wrong", f"#### {wrong}", problem, False),
            Try("wrong without format", f"The answer is {wrong}", problem, False),
            Try("wrong, truncated", f"#### {wrong}", problem, False, truncated=True, full=True),
            Try("empty", "", problem, False),
            Try("format only", "#### ", problem, False),
            Try("repeated marker", f"#### {wrong}\n" * REPEATS, problem, False),
            Try("echoed prompt", problem.prompt, problem, None),
            Try("copied question", f"{problem.prompt}\n#### {last}", problem, None),
            Try("digits flood", flood, problem, False),
            Try("digits behind the marker", f"#### {flood}", problem, False),
            Try("ramble, truncated", "so then we add and " * 20, problem, False, truncated=True, full=True),
        ]
    return made


def earnings(task: Task, problems: Sequence[Problem], *, config: Config, length: Length) -> list[Earning]:
    """What each probe is paid over ``problems``; ``length(text)`` counts tokens.

    Raises:
        UserError: a reward function failed.
    """
    made = tries(problems)
    limit = config.rollout.max_tokens
    grades = [task.grade(one.text, one.problem) for one in made]
    scored = score(
        [one.text for one in made], problems=[one.problem for one in made], grades=grades,
        truncated=[one.truncated for one in made],
        lengths=[limit if one.full else min(limit, length(one.text)) for one in made],
        config=config.reward, max_tokens=limit,
    )  # fmt: skip
    rows = list(zip(made, grades, scored, strict=True))
    names = list(dict.fromkeys(one.name for one in made))
    return [earning([row for row in rows if row[0].name == name]) for name in names]


def earning(rows: Sequence[tuple[Try, Grade, Scored]]) -> Earning:
    first = rows[0][0]
    holds_gold = first.name.startswith("gold")  # a gold that the grader does not find is no wrong answer
    wrong = [(s.total, t, s) for t, g, s in rows if not g.correct and s.total is not None and not holds_gold]
    right = [(s.total, t, s) for t, g, s in rows if g.correct and s.total is not None]
    most = max(wrong, key=lambda row: row[0], default=None)
    least = min(right, key=lambda row: row[0], default=None)
    example = most or least
    astray = next((t for t, g, _ in rows if first.wanted is not None and g.correct != first.wanted), None)
    return Earning(
        name=first.name, n=len(rows), right=sum(g.correct for _, g, _ in rows), most_wrong=most[0] if most else None,
        least_right=least[0] if least else None, truncated=first.truncated, wanted=first.wanted,
        components=example[2].components if example else {},
        text=(astray or (example[1] if example else first)).text,
    )  # fmt: skip


def sampled_earnings(groups: Sequence[RolloutGroup]) -> list[Earning]:
    """What the model's own completions were paid, right and wrong, truncated and not, apart."""
    made: dict[str, list[tuple[Try, Grade, Scored]]] = {}
    for group in groups:
        for completion, grade, scored in zip(group.completions, group.grades, group.scores, strict=True):
            name = f"sampled {'right' if grade.correct else 'wrong'}{', truncated' if completion.truncated else ''}"
            one = Try(name, completion.text, group.problem, None, completion.truncated)
            made.setdefault(name, []).append((one, grade, scored))
    return [earning(rows) for _, rows in sorted(made.items())]


def component_uses(groups: Sequence[RolloutGroup]) -> list[ComponentUse]:
    """Success rate x value of every component over the sampled completions, most often earned first."""
    scored = [s for group in groups for s in group.scores if s.total is not None]
    uses = []
    for name in scored[0].components if scored else ():
        values = [s.components[name] or 0.0 for s in scored]
        paid = [value for value in values if value]
        value = sum(paid) / len(paid) if paid else 0.0
        uses.append(ComponentUse(name, len(paid) / len(values), value, sum(values) / len(values)))
    return sorted(uses, key=lambda use: -use.success)


def sampled_levels(groups: Sequence[RolloutGroup]) -> tuple[int, float]:
    """How many different totals the samples earn, and the share of them that has none."""
    totals = [s.total for group in groups for s in group.scores]
    known = {round(total, 9) for total in totals if total is not None}
    return len(known), sum(total is None for total in totals) / len(totals)
