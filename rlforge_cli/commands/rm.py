"""rlforge rm"""

from __future__ import annotations

from typing import Annotated

import typer

from rlforge_cli.commands.common import Json, RunsDir, runs_folder


def rm(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run, by id or path.")],
    checkpoints: Annotated[bool, typer.Option("--checkpoints", help="Remove weights only; keep results.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    runs_dir: RunsDir = None,
    as_json: Json = False,
) -> None:
    """Remove a run, or only its checkpoints (best/ and final/ stay, so that it can still be scored)."""
    import shutil

    from rlforge_cli import output
    from rlforge_cli.errors import RunFailed, UserError
    from rlforge_cli.run_dir import RunDir

    found = RunDir.find(run, runs_folder(runs_dir))
    if found.is_locked():
        raise UserError(f"{found.id} is being written by pid {found.info().get('pid')}; stop it first")
    target = found.checkpoints if checkpoints else found.path
    size = (
        sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
        if target.exists() and not target.is_symlink()
        else 0
    )
    try:
        agreed = yes or typer.confirm(f"remove {target} ({size / 2**20:.1f} MiB)?", err=True)
    except typer.Abort:
        raise UserError("rm asks before it removes, and there was no answer: add --yes") from None
    if not agreed:
        raise typer.Exit(1)
    try:
        if target.is_symlink():  # what it leads to is another's
            target.unlink()
        else:
            shutil.rmtree(target, ignore_errors=checkpoints)
    except OSError as error:
        raise RunFailed(f"{error.filename or target}: could not be removed: {error.strerror or error}") from None
    if as_json:
        output.print_json({"run": found.id, "removed": str(target), "bytes": size})
    else:
        output.note(f"removed {target}")
