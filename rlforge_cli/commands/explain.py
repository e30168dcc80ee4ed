"""rlforge explain"""

from __future__ import annotations

from typing import Annotated

import typer

from rlforge_cli.commands.common import Json


def explain(
    name: Annotated[
        str | None, typer.Argument(metavar="[METRIC|CHECK|VERDICT|ESTIMATE|KNOB]", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Explain a metric, verdict, estimate or knob; without a name, list them."""
    from rlforge_cli import explanations, output

    if name is None or name in explanations.KINDS:
        entries = [entry for entry in explanations.entries() if name is None or entry.kind == explanations.KINDS[name]]
        if as_json:
            output.print_json({"entries": entries})
        else:
            output.stdout().print(
                output.table(["name", "kind", "meaning"], [[e.name, e.kind, e.meaning] for e in entries])
            )
        return
    entry = explanations.find(name)
    if as_json:
        output.print_json(entry)
        return
    console = output.stdout()
    console.print(output.cell(f"{entry.name} ({entry.kind})", "bold"))
    for text in (entry.meaning, *entry.details):
        console.print(output.cell(f"  {text}"))
