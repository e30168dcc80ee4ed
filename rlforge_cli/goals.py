"""The goals of a study: what each round asks for, from its hypothesis to the conclusion drawn, and what is done."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from rlforge_cli import seeds
from rlforge_cli.outcomes import outcomes, proposal
from rlforge_cli.rounds import PlannedArm, StudyPlan
from rlforge_cli.study import SHIPPED, RoundSpec, unstated

if TYPE_CHECKING:
    from rlforge_cli.comparison import Comparison

ENOUGH = 2
"""Fresh seeds of the winner and runs of the control that count as a confirmation (the reference asks for 2-3)."""


class Goal(msgspec.Struct, frozen=True):
    """Example: ``Goal("group size", "G16 trained", done=False, hint="rlforge rounds study.toml")``."""

    round: str
    """A round's name, or "control" or "end"."""
    goal: str
    done: bool
    hint: str
    """What to do about it."""


def goals(plan: StudyPlan, comparison: Comparison | None, *, file: str, again: str) -> list[Goal]:
    """Every goal in order. ``file`` is the study as it was named on the command line, ``again`` that command."""
    found = trained_and_scored("control", plan.control, again)
    judged = {arm.arm: arm for part in outcomes(plan, comparison) for arm in part.arms}
    for part in plan.study.rounds:
        found.append(stated(plan, part, file))
        for arm in plan.arms:
            if arm.part is part:
                found += trained_and_scored(part.name, arm, again)
                verdict = judged[arm.name].verdict
                done = verdict not in (None, "not_comparable")
                found.append(Goal(part.name, f"{arm.name} judged against the control", done, again))
        write = f'in {editable(file)} write what you conclude from round {part.name!r}: conclusion = "..."'
        found.append(Goal(part.name, "conclusion written", bool(part.conclusion.strip()), write))
    next_control = proposal(plan, comparison)
    written = [plan.report_file.with_suffix(end) for end in (".md", ".html")]
    found.append(Goal("end", "report written", all(path.is_file() for path in written), again))
    if next_control.command is None:
        found.append(Goal("end", "next control settled", comparison is not None and complete(plan), again))
    else:
        done = confirmed(plan, next_control.run or "")
        text = f"{next_control.arm} confirmed with fresh seeds"
        found.append(Goal("end", text, done, next_control.command))
    return found


def stated(plan: StudyPlan, part: RoundSpec, file: str) -> Goal:
    alone = msgspec.structs.replace(plan.study, rounds=(part,))
    missing = unstated(alone)
    text = f"in {editable(file)}: {missing[0]}" if missing else ""
    return Goal(part.name, "hypothesis and expectation stated", not missing, text)


def trained_and_scored(where: str, arm: PlannedArm, again: str) -> list[Goal]:
    return [
        Goal(where, f"{arm.name} trained", all(job.trained for job in arm.jobs), again),
        Goal(where, f"{arm.name} scored on test", all(job.done for job in arm.jobs), again),
    ]


def complete(plan: StudyPlan) -> bool:
    return all(job.done for job in plan.jobs)


def confirmed(plan: StudyPlan, winner: str) -> bool:
    """Whether the winner has fresh seeds, scored, and the control as many runs."""
    control = plan.control.run
    if control is None:
        return False
    needed = seeds.prepare(winner, n=ENOUGH, control=control.id, runs_dir=plan.runs_dir)
    return all(job.done for job in needed.jobs)


def editable(file: str) -> str:
    """Where to write: a shipped study is copied first (its runs are found by its name, so they stay)."""
    if file in SHIPPED and not Path(file).is_file():
        return f"a copy of the shipped study (`rlforge rounds {file} --copy {file}.toml`)"
    return file


def next_goal(found: Sequence[Goal]) -> Goal | None:
    return next((goal for goal in found if not goal.done), None)


def as_json(found: list[Goal], *, name: str) -> dict[str, Any]:
    """What `--goals --json` prints."""
    following = next_goal(found)
    return {
        "study": name,
        "done": sum(goal.done for goal in found),
        "total": len(found),
        "next": following,
        "goals": found,
    }
