"""What `rlforge rounds` shows a person: the plan, the goals, and at the end hypothesis by hypothesis what came out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlforge_cli import output, seeds_view, show
from rlforge_cli.comparison import cells
from rlforge_cli.comparison.spelling import speller
from rlforge_cli.goals import Goal, next_goal
from rlforge_cli.outcomes import ArmOutcome, Proposal, RoundOutcome

if TYPE_CHECKING:
    from rich.console import Console

    from rlforge_cli.rounds import Conducted, StudyPlan

EXPECTED = {None: "nothing stated"} | cells.WORDS


class Printer:
    """Indented lines that wrap under themselves, in whatever encoding the console has."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.spell = speller(console.encoding)

    def line(self, text: str, *, indent: int = 0, style: str = "") -> None:
        from rich.padding import Padding

        self.console.print(Padding(output.cell(self.spell(text), style), (0, 0, 0, indent), expand=False))

    def command(self, text: str) -> None:
        """A line to paste, never wrapped."""
        self.console.print(output.cell("  " + text), soft_wrap=True)


def plan(plan: StudyPlan, cost: dict[str, Any]) -> None:
    """The cost and the arms, before anything starts."""
    printer = Printer(output.stdout())
    printer.line(f"study {plan.study.name} (nothing was started)", style="bold")
    seeds_view.todo(cost)
    for part in plan.study.rounds:
        printer.line(f"round {part.name}: {part.hypothesis or 'no hypothesis stated'}")
        for arm in part.arms:
            printer.line(f"{arm.name}: {', '.join(arm.set)}; expected: {EXPECTED[arm.expect]}", indent=2)


def goals(found: Sequence[Goal], *, name: str) -> None:
    """Every goal with its mark, under its round."""
    printer = Printer(output.stdout())
    printer.line(counted(found, name=name), style="bold")
    before = None
    for goal in found:
        if goal.round != before:
            titles = {"control": "the control", "end": "at the end"}
            printer.line(titles.get(goal.round, f"round {goal.round}"))
        before = goal.round
        printer.line(f"[{'x' if goal.done else ' '}] {goal.goal}", indent=2, style="" if goal.done else "yellow")


def counted(found: Sequence[Goal], *, name: str) -> str:
    return f"{name}: {sum(goal.done for goal in found)} of {len(found)} goals done"


def hint(found: Sequence[Goal]) -> None:
    """The next thing to do."""
    printer = Printer(output.stdout())
    goal = next_goal(found)
    if goal is None:
        printer.line("nothing left to do: every goal is done")
        return
    printer.line(f"next: {goal.goal}" + (f" (round {goal.round})" if goal.round not in ("control", "end") else ""))
    if goal.hint.startswith("rlforge "):
        printer.command(goal.hint)
    else:
        printer.line(goal.hint, indent=2)


def result(done: Conducted, rounds: Sequence[RoundOutcome], proposal: Proposal, found: Sequence[Goal]) -> None:
    """The end of `rlforge rounds`."""
    console = output.stdout()
    printer = Printer(console)
    if done.comparison is not None:
        from rlforge_cli.comparison.view import show as show_comparison

        show_comparison(done.comparison, console)
        console.print()
    printer.line("hypothesis → outcome", style="bold")
    for part in rounds:
        printer.line(f"{part.round}: {part.hypothesis}")
        for arm in part.arms:
            printer.line(arm_line(arm), indent=2, style=cells.STYLES[arm.verdict])
        printer.line(f"→ {part.sentence}", indent=2)
        if part.conclusion.strip():
            printer.line(f"concluded: {part.conclusion.strip()}", indent=2)
    console.print()
    printer.line(proposal.sentence, style="bold")
    if proposal.command:
        printer.command(proposal.command)
    for failure in done.failed:
        printer.line(f"{failure['run']} failed ({failure['what']}): {failure['reason']}; the same command continues it")
    if done.report is not None:
        printer.line("report: " + ", ".join(map(str, done.report)))
    printer.line(counted(found, name=done.plan.study.name))


def arm_line(arm: ArmOutcome) -> str:
    change = show.change_text(arm.changes)
    head = f"{arm.arm}{f' ({change})' if change else ''}: expected {EXPECTED[arm.expect]}, "
    if arm.verdict is None:
        return head + "not run"
    came = cells.WORDS[arm.verdict]
    if arm.delta_pp is not None and arm.delta_ci95_pp is not None:
        low, high = arm.delta_ci95_pp
        came += f" at {arm.delta_pp:+.1f} pp [{low:.1f}, {high:.1f}]"
    return f"{head}came {came} → {arm.outcome}{f' ({arm.note})' if arm.note else ''}"
