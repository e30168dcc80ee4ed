"""rlforge report"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlforge_cli.commands.common import Json, RunsDir, runs_folder


def report(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN]...", help="Runs, the control first; default: every run, with the first control in front."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Where to write; .md and .html are made from it.", show_default="RUNS/report.md"),
    ] = None,
    lang: Annotated[str, typer.Option(help="Language of the report: en or zh.")] = "en",
    runs_dir: RunsDir = None,
    as_json: Json = False,
) -> None:
    """Write the report of an experiment: Markdown and one self-contained HTML file."""
    from rlforge_cli import output
    from rlforge_cli.report import control_first, write_report
    from rlforge_cli.run_dir import RunDir

    folder = runs_folder(runs_dir)
    found = [RunDir.find(name, folder) for name in runs] if runs else control_first(RunDir.all(folder), folder)
    markdown, html = write_report(found, runs_dir=folder, out=out or folder / "report.md", lang=lang)
    if as_json:
        output.print_json(
            {"markdown": str(markdown), "html": str(html), "runs": [run.id for run in found], "lang": lang}
        )
        return
    for path in (markdown, html):
        output.stdout().print(output.cell(path))
