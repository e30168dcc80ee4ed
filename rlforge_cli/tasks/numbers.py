r"""Exact numbers out of what models write: ``fractions.Fraction``, never a float, never an exception.

:func:`parse_number` takes a text that should state one answer and refuses it when anything is left that could change
the value: an operator, a power, a second number, a variable. A refusal is None. Numbers in prose are read by
:mod:`rlforge_cli.tasks.prose` with the same grammar of a written number.

Policies where several are defensible:

- a comma before exactly two last digits is a decimal comma (``45,00`` is 45); before one digit (``0,7``, ``2,6``) it
  may be a pair, so it is no number; before three it groups thousands, and ``2,50,000`` is Indian grouping;
- one dot is always decimal (``2.345``), several dots group thousands, dot groups and a decimal comma are European;
- single spaces and apostrophes group thousands (``12 500``); ``5 6`` is two numbers;
- units do not convert: ``35%`` is 35, ``50¢`` is 50, ``3 dozen`` is 3; number words multiply: ``5 million``, ``45k``;
- a spaced minus is a sign where one answer is stated (``- 7``), and a dash or a bullet in prose.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

import msgspec

from rlforge_cli.tasks.notation import plain

MAX_DIGITS = 60
"""Numerator and denominator have at most so many digits; more is a digit loop, not an answer."""
MAX_RUN = 130
"""Characters of one written run of digits: the decimal form of any value within MAX_DIGITS fits."""
MAX_ANSWER = 400
"""Characters of a text that states one answer."""


class Number(msgspec.Struct, frozen=True):
    r"""A value as it was written. Example: ``\dfrac{6}{8}`` -> ``Number(Fraction(3, 4), ratio=True)``."""

    value: Fraction
    ratio: bool = False
    """Written as a fraction, so it is shown as one: ``3/4``, not ``0.75``."""

    @property
    def text(self) -> str:
        return canonical(self.value, ratio=self.ratio)


def canonical(value: Fraction, *, ratio: bool = False) -> str:
    """The one spelling of a value: ``-7``, ``81.5``, and ``3/4`` for a ratio or what no short decimal can say.

    ``parse_number(canonical(x)).value == x`` for every x within MAX_DIGITS.
    """
    top, bottom = value.numerator, value.denominator
    if bottom == 1:
        return str(top)
    places = next((n for n in range(1, MAX_DIGITS + 1) if 10**n % bottom == 0), None)
    if ratio or places is None:
        return f"{top}/{bottom}"
    digits = str(abs(top) * 10**places // bottom).rjust(places + 1, "0")
    return f"{'-' if top < 0 else ''}{digits[:-places]}.{digits[-places:]}"


_RUN = r"(?:\d{1,3}(?:[ ']\d{3}(?!\d))+(?:[.,]\d+)?|\d+(?:[.,]\d+)*|(?<![\w.])\.\d+)"
_TIMES_TEN = (
    r" ?[×*·x] ?10 ?(?:(?:\^|\*\*) ?(?:\{ ?(?P<e1>[-+]?\d{1,6}) ?\}|(?P<e2>[-+]?\d{1,6}))|(?P<e3>[⁻⁺]?[⁰¹²³⁴-⁹]{1,6}))"
)
WRITTEN = re.compile(
    rf"(?P<run>{_RUN})(?:(?: and)? (?P<top>\d+)/(?P<bottom>\d+)| ?/ ?(?P<over>{_RUN})"
    rf"|[eE](?P<e0>[-+]?\d{{1,6}})(?!\w)|{_TIMES_TEN}(?!\d))?"
)
"""An unsigned number: a run of digits, and a denominator, a mixed fraction or a power of ten after it."""
CURRENCY = (
    r"(?:(?:\b(?:US|CA|AU|HK|NZ|A|C|S|R))?\$|[€£¥₹₩₽¢฿₫₱₦₴₪]|\b(?:USD|EUR|GBP|INR|CAD|AUD|CNY|RMB|JPY|CHF|Rs)\b\.?)"
)

_SPELLINGS = [
    re.compile(pattern)
    for pattern in (
        r"(\d+)(?:\.(\d+))?",
        r"()\.(\d+)",
        r"([1-9]\d{0,2}(?:,\d{3})+)(?:\.(\d+))?",
        r"([1-9]\d?(?:,\d{2})+,\d{3})(?:\.(\d+))?",
        r"([1-9]\d{0,2}(?:[ ']\d{3})+)(?:[.,](\d+))?",
        r"([1-9]\d{0,2}(?:\.\d{3}){2,})()",
        r"([1-9]\d{0,2}(?:\.\d{3})+),(\d+)",
        r"(\d+),(\d\d)",
    )
]
"""Whole part and decimals of a run: plain, without a zero, Western, Indian, spaced, dotted, European, decimal comma."""


def _decimal(run: str) -> Fraction | None:
    if len(run) > MAX_RUN:
        return None
    for spelling in _SPELLINGS:
        if match := spelling.fullmatch(run):
            whole, decimals = re.sub(r"\D", "", match[1]), match[2] or ""
            return Fraction(int(whole + decimals), 10 ** len(decimals))
    return None


_SUPERSCRIPT = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_SCALE = re.compile(r"[ -]?(hundred|thousand|million|billion|trillion|lakh|crore)\b|([kK])(?!\w)|([万亿])")
_SCALES = {
    "hundred": 10**2,
    "thousand": 10**3,
    "k": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
    "lakh": 10**5,
    "crore": 10**7,
    "万": 10**4,
    "亿": 10**8,
}


def evaluate(match: re.Match[str], *, tail: str) -> Number | None:
    """The number of a :data:`WRITTEN` match; ``tail`` is the text after it, where a number word may multiply it."""
    value, ratio = _decimal(match["run"]), False
    exponent = match["e0"] or match["e1"] or match["e2"] or (match["e3"] or "").translate(_SUPERSCRIPT)
    if value is None:
        return None
    if match["top"]:
        top, bottom = _decimal(match["top"]), _decimal(match["bottom"])
        if top is None or bottom is None or top >= bottom or not match["run"].isdecimal():
            return None  # 5 6/2 is two numbers
        value, ratio = value + top / bottom, True
    elif match["over"]:
        over = _decimal(match["over"])
        if not over:
            return None
        value, ratio = value / over, True
    elif exponent:
        if abs(int(exponent)) > MAX_DIGITS:
            return None
        value *= Fraction(10) ** int(exponent)
    if scale := _SCALE.match(tail):
        value *= _SCALES[(scale[1] or scale[2] or scale[3]).lower()]
    limit = 10**MAX_DIGITS
    if value.numerator >= limit or value.denominator >= limit:
        return None
    return Number(value, ratio and value.denominator > 1)


_SIGN = r"[-+]|\bminus\b|\bnegative\b"
_LEAD = re.compile(rf"([^\d<>!≠±√^/\\|+*]{{0,160}}?)({_SIGN})? ?{CURRENCY}? ?([-+])? ?")
_LABEL = re.compile(
    r"(?:.*(?:[:=≈~]|\b(?:is|are|was|were|equals|makes)\b))?\s*"
    r"(?:about|around|approximately|approx\.?|roughly|exactly|only|just|a total of)?\s*",
    re.DOTALL | re.IGNORECASE,
)
_TAIL = re.compile(r"[^\d+*^=<>√±~|\\×·÷⁰¹⁴-⁹₀-₉#@&‰π∞]{0,300}")
_SPOILED_TAIL = re.compile(
    r"^[!²³百千十]|^-(?![^\W\d_])|^ ?/(?!-| ?[^\W\d_])|^[.):]\s*[^\W\d_]|(?<![A-Za-z])[²³]|\band (?:a|one|two|three)\b"
)
_GLUED = re.compile(
    r"(?:[gmhslL]|[mck]m|[mk]g|m[lL]|kWh|lbs?|oz|ft|in|mph|kph|hrs?|mins?|secs?|[ap]m|[AP]M|USD|EUR|GBP|INR|percent"
    r"|st|nd|rd|th|degrees|dollars?|cents?|years?|months?|weeks?|days?|hours?|minutes?|points?|people|miles?)(?![A-Za-z])"
)
_WORD = re.compile(r"[^\W\d_]+(?:'[a-z]+)?")
_CHANGES_VALUE = {
    *("pi", "sqrt", "squared", "cubed", "factorial", "plus", "minus", "times", "divided", "over", "mod", "modulo"),
    *("or", "not", "never", "no", "nor", "isn't", "wasn't", "than", "least", "most", "half", "halves"),
}
_DEGREES = re.compile(r"^ ?°[CFK]?(?![A-Za-z])")
_UNIT_LETTERS = "aAgmhslLpP"
_CHAINED = re.compile(r"[,;] |;|\n|\b(?:and|or|not)\b|[<>!≠±≈]")
_DRESSING = "*_`\"' \t\r\n"


def parse_number(text: str) -> Number | None:
    """The number that ``text`` as a whole states, or None.

    Accepts one number with a label (``x = 3``, ``Total: $18``), a currency, a percent sign or unit words around it.

    Example: ``parse_number("$1,234.50 per month")`` -> 1234.5; ``parse_number("3y")``, ``parse_number("2 or 3")``,
    ``parse_number("6²")`` and ``parse_number("3 * 4")`` -> None.
    """
    return None if len(text) > MAX_ANSWER else _parse(text)


@lru_cache(maxsize=4096)  # a grade reads an answer twice and a gold once, and a group's completions say much the same
def _parse(text: str) -> Number | None:
    text = _undressed(plain(text))
    if "=" in text:
        left, _, text = text.rpartition("=")
        if _CHAINED.search(left):
            return None
        text = _undressed(text)
    matches = list(WRITTEN.finditer(text))
    if len(matches) != 1:
        return None
    lead, tail = _LEAD.fullmatch(text[: matches[0].start()]), text[matches[0].end() :]
    if not lead or (lead[2] and lead[3]) or not _is_label(lead[1]) or not _is_unit(tail):
        return None
    number = evaluate(matches[0], tail=tail)
    if number and (lead[2] or lead[3] or "+") != "+":
        return Number(-number.value, number.ratio)
    return number


def is_bare(text: str) -> bool:
    """Whether ``text`` is a number and no more: no label, unit, LaTeX or markup; ``$``, ``%`` and ``.`` may stay."""
    return (
        not set(text) & set("\\*<>`_=")
        and bool(_BARE.fullmatch(plain(text).strip()))
        and parse_number(text) is not None
    )


_BARE = re.compile(rf"[-+]?{CURRENCY}?[-+]?{WRITTEN.pattern} ?(?:%|{CURRENCY})?\.?")


def _undressed(text: str) -> str:
    text = text.strip(_DRESSING)
    while len(text) > 1 and text[0] + text[-1] in ("()", "[]", "{}"):
        text = text[1:-1].strip(_DRESSING)
    return text


def _is_label(text: str) -> bool:
    return bool(_LABEL.fullmatch(text)) and not any(word.lower() in _CHANGES_VALUE for word in _WORD.findall(text))


def _is_unit(tail: str) -> bool:
    if not _TAIL.fullmatch(tail) or _SPOILED_TAIL.search(tail):
        return False
    tail = _DEGREES.sub("", tail)
    if scale := _SCALE.match(tail):
        tail = tail[scale.end() :]
    if tail[:1].isascii() and tail[:1].isalpha() and not is_glued_unit(tail):
        return False
    return not any(
        word.lower() in _CHANGES_VALUE or (len(word) == 1 and word.isascii() and word not in _UNIT_LETTERS)
        for word in _WORD.findall(tail)
    )


def is_glued_unit(tail: str) -> bool:
    """Whether letters that touch a number are a unit (``5kg``, ``8am``) and no variable (``3y``)."""
    return bool(_GLUED.match(tail))
