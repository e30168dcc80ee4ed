"""rlforge ls"""

from __future__ import annotations

from rlforge_cli.commands.common import Json, RunsDir, runs_folder


def ls(runs_dir: RunsDir = None, as_json: Json = False) -> None:
    """List the runs: status, change, validation and test score."""
    from rlforge_cli import show
    from rlforge_cli.run_dir import RunDir

    show.listing(RunDir.all(runs_folder(runs_dir)), as_json=as_json)
