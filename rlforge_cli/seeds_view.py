"""What `rlforge seeds` shows a person: the cost beforehand, then the spread of each arm and the verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlforge_cli import output, show
from rlforge_cli.progress import duration

if TYPE_CHECKING:
    from rlforge_cli.seeds import ArmResult, SeedsPlan, SeedsResult


def heading(plan: SeedsPlan) -> str:
    against = f" against {plan.control.id}" if plan.control else ""
    change = show.change_text(plan.run.info().get("changes"))
    return f"{plan.run.id}{f' ({change})' if change else ''}{against}: {plan.n} seed{'s' * (plan.n > 1)} an arm"


def plan(plan: SeedsPlan, cost: dict[str, Any]) -> None:
    """The cost, before anything starts."""
    console = output.stdout()
    console.print(output.cell(f"{heading(plan)} (nothing was started)", "bold"))
    todo(cost)
    if plan.control is None:
        console.print(output.cell("no control: the spread alone (--control RUN adds a verdict)"))


def todo(cost: dict[str, Any]) -> None:
    """The runs that would be trained, and what they cost together."""
    console = output.stdout()
    if cost["train"]:
        cells = [
            [
                f"{row['run']} (continued)" if row["run"] else "new",
                row["what"],
                f"{row['steps']:,}",
                f"{row['completions']:,}",
                "?" if row["seconds"] is None else duration(row["seconds"]),
            ]
            for row in cost["train"]
        ]
        columns = ["run", "what", "steps", "completions", "training time"]
        console.print(output.table(columns, cells, right=(2, 3, 4)))
    time = "unknown: no run has logged its seconds" if cost["seconds"] is None else f"about {duration(cost['seconds'])}"
    text = f"to train: {len(cost['train'])} runs, {cost['completions']:,} completions, {time}; validation comes on top"
    console.print(output.cell(text if cost["train"] else "nothing to train"))
    if cost["peak_gib"] is not None:
        console.print(output.cell(f"memory: up to {cost['peak_gib']:.1f} GiB, predicted for {cost['peak_on']}"))
    console.print(output.cell(f"to score on test: {cost['score']} runs"))


def result(result: SeedsResult, plan: SeedsPlan) -> None:
    """Spread and verdict."""
    console = output.stdout()
    console.print(output.cell(heading(plan), "bold"))
    cells = [
        [
            arm.run + (" control" if arm.role == "control" else ""),
            ", ".join(map(str, arm.seeds)) or "-",
            ", ".join(f"{100 * value:.1f}" for value in arm.accuracies) or "-",
            "-" if arm.mean is None else f"{100 * arm.mean:.2f}",
            "-" if arm.sd is None else f"{100 * arm.sd:.2f}",
        ]
        for arm in result.arms
    ]
    console.print(output.table(["arm", "seeds", "test %", "mean", "SD pp"], cells, right=(3, 4)))
    for line in notes(result, plan):
        console.print(output.cell(line))
    if result.comparison is not None:
        from rlforge_cli.comparison.view import show as show_comparison

        console.print()
        show_comparison(result.comparison, console)


def notes(result: SeedsResult, plan: SeedsPlan) -> list[str]:
    """What the numbers rest on, and how far the spread may be trusted."""
    from rlforge_cli import series

    lines = []
    own = series.accuracy(plan.run)
    score = "" if own is None else f" ({100 * own:.1f} %)"
    lines.append(f"{plan.run.id} itself{score} is left out: a run that was chosen looks better than its recipe is")
    lines += [text for arm in result.arms if (text := trust(arm))]
    if result.comparison is not None:
        pooled = f"{result.comparison.seed_sd_pp:.2f} pp ({result.comparison.seed_sd_source})"
        lines.append(f"seed SD of this task from now on, where an arm has one seed: {pooled}")
    else:
        missing = [arm.run for arm in result.arms if not arm.accuracies]
        why = f"no scored seed of {', '.join(missing)}" if missing else "no control (--control RUN)"
        lines.append(f"no verdict: {why}")
    lines += [f"{failure['run']} failed ({failure['what']}): {failure['reason']}" for failure in result.failed]
    if result.failed:
        lines.append("a failed seed is not replaced by another, which would keep only survivors; again continues it")
    return lines


def trust(arm: ArmResult) -> str:
    from rlforge_cli.stats import sd_factors

    n = len(arm.accuracies)
    if n == 0:
        return ""
    if arm.sd is None:
        return f"{arm.run}: one seed shows no spread"
    low, high = sd_factors(n)
    text = f"{arm.run}: {n} seeds pin the SD only to a factor of {low:.2f} to {high:.2g}"
    return f"{text}: it may be {100 * low * arm.sd:.2f} to {100 * high * arm.sd:.2f} pp"
