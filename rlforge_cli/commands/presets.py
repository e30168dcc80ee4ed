"""rlforge presets"""

from __future__ import annotations

from typing import Annotated

import typer

from rlforge_cli.commands.common import Json


def presets(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Show this one.", show_default=False)] = None,
    as_json: Json = False,
) -> None:
    """List the presets, or show every key of one."""
    import msgspec

    from rlforge_cli import output, settings, show

    if name is not None:
        config = settings.load(name)
        if as_json:
            output.print_json({"preset": name, "config": msgspec.to_builtins(config)})
        else:
            show.pairs([(key, value) for key, value in settings.flatten(config).items() if value != ""], title=name)
        return
    rows = [{"preset": preset, "about": settings.about(preset), "default": preset == settings.default_preset()}
            for preset in settings.preset_names()]  # fmt: skip
    if as_json:
        output.print_json({"presets": rows})
        return
    output.stdout().print(
        output.table(
            ["preset", "about"], [[f"{row['preset']}{' *' if row['default'] else ''}", row["about"]] for row in rows]
        )
    )
    output.stdout().print("* = the default here")
