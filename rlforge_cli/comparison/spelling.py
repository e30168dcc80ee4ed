"""The signs of a table in encodings that lack them: spelled out, never a question mark, never an error."""

from __future__ import annotations

from collections.abc import Callable

from rlforge_cli.output import SIGNS

Speller = Callable[[str], str]


def speller(encoding: str) -> Speller:
    """How to write this package's own signs in an encoding: as they are when it has all of them, else in ASCII."""
    try:
        "".join(SIGNS).encode(encoding)
    except UnicodeEncodeError:
        spelled = str.maketrans(SIGNS)
        return lambda text: text.translate(spelled)
    return lambda text: text
