"""rlforge show"""

from __future__ import annotations

from typing import Annotated

import typer

from rlforge_cli.commands.common import Json, RunsDir, runs_folder


def show(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run, by id or path.")],
    runs_dir: RunsDir = None,
    as_json: Json = False,
) -> None:
    """Show one run: where it comes from, how it ended, its last metrics and its evaluations."""
    import json

    from rlforge_cli import output
    from rlforge_cli import show as tables
    from rlforge_cli.run_dir import RunDir

    found = RunDir.find(run, runs_folder(runs_dir))
    info, records = found.info(), found.metrics()
    evals = {}
    for path in sorted(found.evals.glob("*.json")):
        try:
            evals[path.stem] = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            output.note(f"warning: {path} is not valid JSON; left out")
    if as_json:
        output.print_json(
            {"run": info, "config": found.config(), "last": records[-1] if records else None, "evals": evals}
        )
        return
    shown = {
        key: value for key, value in info.items() if key not in ("changes", "versions", "budget", "best", "command")
    }
    shown["changes"] = tables.change_text(info.get("changes")) or "none"
    shown |= {f"best {key}": value for key, value in (info.get("best") or {}).items()}
    shown |= dict(info.get("budget") or {})
    tables.pairs([(key, value) for key, value in shown.items() if value not in (None, "")], title=found.id)
    if records:
        last = {key: value for key, value in records[-1].items() if value is not None}
        tables.pairs(
            [(key, f"{value:.4g}" if isinstance(value, float) else value) for key, value in last.items()],
            title="last step",
        )
    for name, summary in evals.items():
        tables.pairs([("accuracy", tables.interval(summary)), ("problems", summary.get("n"))], title=f"eval {name}")
