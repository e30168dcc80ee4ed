"""What a person or a program reads from a command: tables and lines on stdout, notes on stderr, or one JSON object.

Text that comes from a model, a file or a user is never read as markup, and nothing is cut or coloured in a pipe.
"""

from __future__ import annotations

import codecs
import io
import math
import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

MESSAGE_LENGTH = 1500
"""Of an error's line; a longer one repeats a text that somebody gave."""
PIPE_WIDTH = 100_000
"""A table takes the width of its content, so in a pipe the console only has to be wider than any row."""
SIGNS = {
    "Δ": "diff",
    "±": "+/-",
    "→": "->",
    "·": "-",
    "×": "x",
    "α": "alpha",
    "━": "-",
    "┿": "+",
    "●": "o",
    "│": "|",
    "┊": ":",
    "◀": "<",
    "▶": ">",
}
"""What rlforge itself writes beyond ASCII, and how it is spelled in an encoding that lacks it."""


def spelled(error: UnicodeError) -> tuple[str, int]:
    """What an encoding lacks: one of :data:`SIGNS` in ASCII, anything else as a question mark."""
    assert isinstance(error, UnicodeEncodeError)
    return "".join(SIGNS.get(sign, "?") for sign in error.object[error.start : error.end]), error.end


codecs.register_error("rlforge", spelled)


def make_console(stream: TextIO) -> Console:
    """A console on ``stream``: no markup, no emoji, no highlighting; plain, uncut unless ``stream`` is a terminal."""
    from rich.console import Console

    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="rlforge")  # a cp1252 pipe loses a glyph, never the command
    common: dict[str, Any] = {"file": stream, "markup": False, "emoji": False, "highlight": False, "soft_wrap": False}
    if stream.isatty():
        # rich assumes 80 columns on a dumb terminal whatever COLUMNS says
        columns = os.environ.get("COLUMNS", "")
        return Console(**common, width=int(columns) if columns.isdigit() and int(columns) > 0 else None)
    return Console(**common, width=PIPE_WIDTH, force_terminal=False, no_color=True, color_system=None)


def stdout() -> Console:
    return make_console(sys.stdout)


def note(message: str) -> None:
    """One line on stderr: progress, a warning, where something was written."""
    make_console(sys.stderr).print(message, soft_wrap=True)


def cell(value: object, style: str = "") -> Text:
    """A table cell that shows ``value`` verbatim, whatever brackets, emoji codes or control characters it holds."""
    from rich.text import Text

    return Text(printable(str(value)), style=style, overflow="fold")


def printable(text: str) -> str:
    """``text`` with control characters spelled out: ``"a\\x1b[31m"`` -> ``"a\\\\x1b[31m"``."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" if ord(c) < 256 else f"\\u{ord(c):04x}" for c in text)


def cropped(text: str, most: int) -> str:
    """At most ``most`` characters, the first of them and an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def one_line(message: object) -> str:
    """An error as one line that a terminal shows as it is, whatever a user's text in it holds."""
    return cropped(printable(" ".join(str(message).split())), MESSAGE_LENGTH)


def table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None, right: Sequence[int] = ()
) -> Table:
    """A table of verbatim cells; columns whose index is in ``right`` are right-aligned."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    result = Table(title=cell(title) if title else None, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for index, name in enumerate(columns):
        result.add_column(cell(name), justify="right" if index in right else "left", overflow="fold")
    for row in rows:
        result.add_row(*(value if isinstance(value, Text) else cell(value) for value in row))
    return result


def strict(value: Any) -> Any:
    """``value`` with plain containers and numbers only; NaN and infinities become None (JSON has no name for them)."""
    import msgspec

    if isinstance(value, msgspec.Struct):
        value = msgspec.to_builtins(value)
    if isinstance(value, dict):
        return {str(key): strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [strict(item) for item in value]
    if hasattr(value, "item") and not isinstance(value, (str, bytes)):  # numpy and torch scalars
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def print_json(value: Any) -> None:
    """Exactly one strict JSON object on stdout (ASCII, so that any encoding carries it)."""
    import json

    sys.stdout.write(json.dumps(strict(value), allow_nan=False, indent=2) + "\n")
