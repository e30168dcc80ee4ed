"""rlforge rounds"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlforge_cli.commands.common import Json, Preset, RunsDir, Sets, runs_folder


def rounds(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A study (.toml), or the shipped three-rounds.")],
    goals: Annotated[bool, typer.Option("--goals", help="Show the goals, done and not, and stop.")] = False,
    hint: Annotated[bool, typer.Option("--hint", help="Name the next thing to do and stop.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and its cost and stop.")] = False,
    copy: Annotated[Path | None, typer.Option(help="Copy the study to this file, to edit it, and stop.")] = None,
    preset: Preset = None,
    sets: Sets = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    runs_dir: RunsDir = None,
    as_json: Json = False,
) -> None:
    """Run a study: every arm that is missing, then compare all, hypothesis by hypothesis, and write the report."""
    import shlex

    from rlforge_cli import goals as ladder
    from rlforge_cli import output, rounds, rounds_view, series, study
    from rlforge_cli.distributed import ALONE
    from rlforge_cli.outcomes import outcomes, proposal

    if copy is not None:
        study.copy_study(file, copy)
        if as_json:
            output.print_json({"study": file, "copied": str(copy)})
        else:
            output.note(f"wrote {copy}")
        return
    folder = runs_folder(runs_dir)
    loaded = study.load_study(file, preset=preset, sets=sets or [])
    plan = rounds.prepare(loaded, runs_dir=folder)
    words = ["rlforge", "rounds", file, *(["--preset", preset] if preset else [])]
    words += [word for text in sets or [] for word in ("--set", text)]
    again = shlex.join([*words, *(["--runs-dir", str(runs_dir)] if runs_dir else [])])
    if dry_run:
        cost = rounds.cost(plan)
        if as_json:
            output.print_json({"study": loaded.name, "plan": cost})
        else:
            rounds_view.plan(plan, cost)
        return
    if goals or hint:
        found = ladder.goals(plan, rounds.judged(plan), file=file, again=again)
        if as_json:
            output.print_json(ladder.as_json(found, name=loaded.name))
            return
        if goals:
            rounds_view.goals(found, name=loaded.name)
        if hint:
            rounds_view.hint(found)
        return
    with ALONE.stoppable():
        try:
            done = rounds.conduct(loaded, runs_dir=folder, tools=series.tools(quiet=quiet), report=rounds.write_report)
        except KeyboardInterrupt:
            output.note("interrupted: what is finished is kept, and the same command continues")
            raise
    found = ladder.goals(done.plan, done.comparison, file=file, again=again)
    results, chosen = outcomes(done.plan, done.comparison), proposal(done.plan, done.comparison)
    if as_json:
        output.print_json(rounds.as_json(done, results, chosen) | {"goals": ladder.as_json(found, name=loaded.name)})
    else:
        rounds_view.result(done, results, chosen, found)
    if done.failed:
        raise typer.Exit(1)
