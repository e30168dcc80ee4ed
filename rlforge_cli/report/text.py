"""Text that nobody vouches for, made harmless: what a model, a file or a user wrote must neither format nor script.

Own sentences mark code and stress with four control characters. :func:`visible` leaves none in foreign text, so a
foreign text cannot make marks, and renderers may turn marks into tags after they have escaped everything.
"""

from __future__ import annotations

import unicodedata

CODE, END_CODE, STRONG, END_STRONG = "\x02", "\x03", "\x04", "\x05"
INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
"""Unicode categories that are spelled out: controls, bidi and zero-width signs, lone surrogates, private use, line and
paragraph separators."""


class Marked(str):
    """A text whose marks are ours, to be put into a sentence as it stands."""


def visible(text: str) -> str:
    r"""``text`` with every invisible character spelled out; newlines and tabs stay.

    Example: ``"a\x1b[31m\u202eb"`` -> ``r"a\x1b[31m\u202eb"``.
    """
    text = text.replace("\r\n", "\n")
    return "".join(c if c in "\n\t" or unicodedata.category(c) not in INVISIBLE else spelled(c) for c in text)


def spelled(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def one_line(value: object) -> str:
    """A foreign value inside a sentence or a cell."""
    return value if isinstance(value, Marked) else " ".join(visible(str(value)).split())


def code(value: object) -> Marked:
    return Marked(CODE + one_line(value) + END_CODE)


def strong(value: object) -> Marked:
    return Marked(STRONG + one_line(value) + END_STRONG)


def shortened(text: str, notice: str, *, limit: int = 3000) -> str:
    """The beginning and the end of a long text around ``notice``, whose ``{count}`` is how much is left out."""
    if len(text) <= limit:
        return text
    head = 2 * limit // 3
    tail = limit - head
    return text[:head] + "\n" + notice.format(count=f"{len(text) - limit:,}") + "\n" + text[-tail:]
