"""Options that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RunsDir = Annotated[
    Path | None, typer.Option("--runs-dir", envvar="RLFORGE_RUNS", help="Folder of the runs.", show_default="runs")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else there.")]
Preset = Annotated[
    str | None,
    typer.Option(
        "--preset", "-p", help="A shipped preset or a .toml file.", show_default="tiny-arith, or rlforge.toml's"
    ),
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="KEY=VALUE", help="Change a key (full or short name); may be repeated."),
]


def runs_folder(given: Path | None) -> Path:
    """``--runs-dir``, RLFORGE_RUNS, the project file's ``runs_dir``, or ``runs``."""
    from rlforge_cli.settings import project

    return given or Path(project().get("runs_dir", "runs"))
