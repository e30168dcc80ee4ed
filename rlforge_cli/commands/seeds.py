"""rlforge seeds"""

from __future__ import annotations

from typing import Annotated

import typer

from rlforge_cli.commands.common import Json, RunsDir, runs_folder


def seeds(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run to confirm, by id or path.")],
    n: Annotated[int, typer.Option("--n", min=1, help="Seeds that each arm ends with.")] = 3,
    control: Annotated[
        str | None, typer.Option(help="The run to compare with; default: the control that RUN recorded.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the cost and stop.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    runs_dir: RunsDir = None,
    as_json: Json = False,
) -> None:
    """Train and score fresh seeds of a run and of its control, then say whether the recipe is better."""
    from rlforge_cli import output, seeds, seeds_view, series
    from rlforge_cli.distributed import ALONE

    folder = runs_folder(runs_dir)
    plan = seeds.prepare(run, n=n, control=control, runs_dir=folder)
    if dry_run:
        cost = seeds.cost(plan)
        if as_json:
            names = {"run": plan.run.id, "control": plan.control.id if plan.control else None, "n": n}
            output.print_json({**names, "plan": cost})
        else:
            seeds_view.plan(plan, cost)
        return
    with ALONE.stoppable():
        try:
            result = seeds.confirm(plan, tools=series.tools(quiet=quiet), runs_dir=folder)
        except KeyboardInterrupt:
            output.note("interrupted: finished seeds are kept, and the same command continues")
            raise
    if as_json:
        output.print_json(result)
    else:
        seeds_view.result(result, plan)
    if result.failed:
        raise typer.Exit(1)
