"""One notation for what models write: ASCII digits, signs and spaces, and LaTeX and Markdown dressing taken off.

Only spelling changes, never a value. Superscripts stay as they are, so that ``6²`` can never be read as 6 or 62
(Unicode's NFKC would make it 62). Every pattern is linear: single character classes with bounded repeats.
"""

from __future__ import annotations

import re
import unicodedata

_SAME = {
    "×": "✕✖⨯",
    "·": "⋅∙•",
    "/": "⁄∕",
    "-": "−‐‑‒–﹣˗➖",
    "'": "‘’ʼ",
    '"': "“”„«»",
    ":": "∶",
    ".": "。٫",
    ",": "٬",
    ";": "、",
    "¥": "￥",
    "£": "￡",
    "₩": "￦",
    "\n": "\u2028\u2029\x0b\x0c\x85",
}


class _Characters(dict[int, str]):
    """A ``str.translate`` table that works out a character when it is first met."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        category = unicodedata.category(char)
        if category == "Nd":
            result = str(unicodedata.decimal(char))
        elif category == "Zs":
            result = " "
        elif category in ("Cf", "Me") or code == 0xFE0F:  # zero-width and bidirectional marks, key caps of emoji
            result = ""
        elif 0xFF01 <= code <= 0xFF5E:  # full-width ASCII
            result = chr(code - 0xFEE0)
        else:
            result = char
        self[code] = result
        return result


_CHARACTERS = _Characters({ord(char): plain for plain, chars in _SAME.items() for char in chars})
_VULGAR = re.compile("[¼-¾⅐-⅞↉]")
_SPACING = re.compile(r"\\[,;: ()\[\]]|\\(?:left|right|displaystyle|Large|large|small|mathstrut)(?![A-Za-z])")
_SYMBOLS = re.compile(
    r"\\(quad|qquad|times|cdot|div|approx|simeq|sim|degree|Rightarrow|implies|therefore|to)(?![A-Za-z])"
)
_SYMBOL = {
    "quad": "  ",
    "qquad": "  ",
    "times": "×",
    "cdot": "·",
    "div": "÷",
    "approx": "≈",
    "simeq": "≈",
    "sim": "~",
    "degree": "°",
}
_WRAPPERS = re.compile(
    r"\\(?:text|textbf|textit|texttt|textrm|mathrm|mathbf|mathit|mathsf|mathbb|mbox|hbox|fbox|boxed|underline|emph"
    r"|boldsymbol|bm|operatorname) ?\{([^{}]{0,400})\}"
)
_FRACTION = re.compile(r"\\[dtc]?frac ?(?:\{ ?([-+]?)([\d.,' ]{1,99}?) ?\} ?\{ ?([\d.,' ]{1,99}?) ?\}|()(\d) ?(\d))")
_BOLD = re.compile(r"(?<![\w)*])(\*{1,3}|__?)(?=[^\s*_])([^*_\n]{1,300})(?<=\S)\1(?![\w*])")
_TAG = re.compile(r"</?[A-Za-z][A-Za-z0-9 =\"']{0,30}/?>")
_UNIT_POWER = re.compile(r"(?<=[A-Za-z]) ?\^ ?(?:([23])|\{([23])\})(?!\d)")


def plain(text: str) -> str:
    r"""``text`` in one notation; the number it states, if any, is the same.

    Example: ``plain("\\boxed{\\dfrac{3}{4} \\text{ m}}")`` -> ``"3/4  m"``; ``plain("４２ − ½")`` -> ``"42 - 1/2"``.
    """
    if not text.isascii():
        text = _VULGAR.sub(_vulgar, text).translate(_CHARACTERS)
    text = text.replace("{,}", ",")
    if "\\" in text:
        text = _latex(text)
    if "<" in text:
        text = _TAG.sub("  ", text)
    text = _BOLD.sub(r"\2", text)
    return _UNIT_POWER.sub(lambda m: "²" if "2" in m.group() else "³", text)


def _apart(match: re.Match[str], written: str) -> str:
    """Two spaces keep digits that only touch (``18\\boxed{20}``) from becoming one number; one could group them."""
    before, after = match.string[max(0, match.start() - 1) : match.start()], match.string[match.end() : match.end() + 1]
    left = "  " if written[:1].isdecimal() and (before.isdecimal() or before == "}") else ""
    return left + written + ("  " if written[-1:].isdecimal() and after.isdecimal() else "")


def _wrapped(match: re.Match[str]) -> str:
    return f" {match[1]}" if match[1][:1].isalpha() else _apart(match, match[1])


def _fraction(match: re.Match[str]) -> str:
    sign, numerator, denominator = match[1] or "", match[2] or match[5], match[3] or match[6]
    return _after_whole(match, f"{sign}{numerator}/{denominator}")


def _vulgar(match: re.Match[str]) -> str:
    return _after_whole(match, unicodedata.normalize("NFKC", match.group()))


def _after_whole(match: re.Match[str], written: str) -> str:
    """A fraction that touches a whole number makes a mixed one: ``2½`` -> ``2 1/2``."""
    touches = match.string[max(0, match.start() - 1) : match.start()].isdecimal()
    return f" {_apart(match, written).lstrip()}" if touches else _apart(match, written)


def _latex(text: str) -> str:
    text = text.replace("\\!", "").replace("\\\\", "\n").replace("\\%", "%").replace("\\$", "$").replace("~", " ")
    text = _SPACING.sub(" ", text)
    text = text.replace("^{\\circ}", "°").replace("^\\circ", "°")
    text = _SYMBOLS.sub(lambda match: _SYMBOL.get(match[1], " ; "), text)
    for _ in range(3):  # macros nest; a box around bold text is the deepest that is common
        text = _FRACTION.sub(_fraction, _WRAPPERS.sub(_wrapped, text))
    return text
