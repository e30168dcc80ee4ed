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
    from rlforge_cli.jsonl import regular
    from rlforge_cli.run_dir import RunDir

    found = RunDir.find(run, runs_folder(runs_dir))
    info, records = found.info(), found.metrics()
    evals = {}
    for path in sorted(found.evals.glob("*.json")):
        try:
            summary = json.loads(regular(path).read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            output.note(f"warning: {path}: unreadable and left out ({error})")
            continue
        if isinstance(summary, dict):
            evals[path.stem] = summary
        else:
            output.note(f"warning: {path} is not a JSON object; left out")
    if as_json:
        output.print_json(
            {"run": info, "config": found.config(), "last": records[-1] if records else None, "evals": evals}
        )
        return
    shown = {
        key: value for key, value in info.items() if key not in ("changes", "versions", "budget", "best", "command")
    }
    shown["changes"] = tables.change_text(info.get("changes")) or "none"
    for name, prefix in (("best", "best "), ("budget", "")):
        part = info.get(name)
        shown |= {prefix + key: value for key, value in part.items()} if isinstance(part, dict) else {}
    tables.pairs([(key, value) for key, value in shown.items() if value not in (None, "")], title=found.id)
    if records:
        last = {key: value for key, value in records[-1].items() if value is not None}
        if lost := last.pop("_nonfinite", None):
            last["not finite"] = ", ".join(lost)
        tables.pairs(
            [(key, f"{value:.4g}" if isinstance(value, float) else value) for key, value in last.items()],
            title="last step",
        )
    for name, summary in evals.items():
        tables.pairs([("accuracy", tables.interval(summary)), ("problems", summary.get("n"))], title=f"eval {name}")
