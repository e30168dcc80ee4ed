"""rlforge doctor"""

from __future__ import annotations

from typing import Annotated

import typer

from rlforge_cli.commands.common import Json, RunsDir, runs_folder


def doctor(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run, by id or path; it may still be training.")],
    runs_dir: RunsDir = None,
    as_json: Json = False,
) -> None:
    """Say what a run's curves show to be wrong, with the evidence and what to do; exit code 1 when it is lost."""
    from rlforge_cli import output, smoke_view
    from rlforge_cli.doctor import diagnose
    from rlforge_cli.run_dir import RunDir

    found = diagnose(RunDir.find(run, runs_folder(runs_dir)))
    if as_json:
        output.print_json(found)
    else:
        for alarm in found["alarms"]:
            word = "lost" if alarm["status"] == "fail" else "alarm"
            smoke_view.paragraph(f"{word} {alarm['name']}: {alarm['why']}", style=smoke_view.COLOURS[alarm["status"]])
            smoke_view.paragraph(f"do: {alarm['fix']}", indent=2)
            smoke_view.paragraph(f"false alarms of this rule: {alarm['false_alarms']}", indent=2, style="dim")
        if found["note"]:
            smoke_view.paragraph(f"note: {found['note']}")
        counted = f"{len(found['alarms'])} of {found['rules']} rules" if found["alarms"] else "nothing to report"
        steps = f"{found['steps']} step{'s' * (found['steps'] > 1)}"
        output.stdout().print(output.cell(f"{found['run']}: {found['status']}, {steps}; {counted}", "bold"))
    if found["status"] == "lost":
        raise typer.Exit(1)
