"""rlforge diff"""

from __future__ import annotations

from typing import Annotated

import typer

from rlforge_cli.commands.common import Json, RunsDir, runs_folder


def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="A run, or a preset.")],
    b: Annotated[str, typer.Argument(metavar="B", help="A run, or a preset.")],
    runs_dir: RunsDir = None,
    as_json: Json = False,
) -> None:
    """Show every key in which two configurations differ."""
    from rlforge_cli import output, settings
    from rlforge_cli.lineage import run_config
    from rlforge_cli.run_dir import RunDir

    folder = runs_folder(runs_dir)
    first, second = (
        settings.flatten(
            settings.load(name) if name in settings.preset_names() else run_config(RunDir.find(name, folder))
        )
        for name in (a, b)
    )
    rows = [{"key": key, "a": first[key], "b": second[key]} for key in first if first[key] != second[key]]
    if as_json:
        output.print_json({"a": a, "b": b, "differences": rows})
    elif rows:
        output.stdout().print(output.table(["key", a, b], [[row["key"], row["a"], row["b"]] for row in rows]))
    else:
        output.stdout().print("the configurations are equal")
