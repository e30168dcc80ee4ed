"""The number that a sentence gives as its result: the last one, read exactly or not at all.

A candidate that is part of a larger expression (``3 * 4``, ``2:30``, ``6²``, ``3y``, ``0,7``) makes the answer
unreadable; it is not skipped in favour of an earlier number. Names, list numbers and ordinals (``x2``, ``1. Add``,
``3rd``) are no candidates.
"""

from __future__ import annotations

import re

from rlforge_cli.tasks.notation import plain
from rlforge_cli.tasks.numbers import CURRENCY, WRITTEN, Number, evaluate, is_glued_unit

WINDOW = 2000
"""Characters at the end of a text in which a result is looked for."""
_BEFORE, _AFTER = 24, 48

_NAME = re.compile(r"[A-Za-z_]-?\Z|_\{\Z")
_CURRENCY_NAME = re.compile(CURRENCY + r"\Z")
_LIST_NUMBER = re.compile(r"[.)] +[^\W\d_]")
_ORDINAL = re.compile(r"(?:st|nd|rd|th)(?![A-Za-z])")
_JOINED_BEFORE = re.compile(
    rf"(?:[\w)}}%]{CURRENCY}? ?[*×·÷+/^] ?|[\d)}}]\*\* ?|[\d)}}%] ?- ?"
    rf"|\d[:.,\u0300-\u036f]|[±√^{{]|\^\{{?-?|\d or ){CURRENCY}?\Z"
)
_JOINED_AFTER = re.compile(
    r" ?\^| ?\*\*\d|[⁰¹²³⁴-⁹₀-₉π√∞‰百千十]| ?[×·÷+] ?[\w(\\]|\*[\w(]| \* [\w(]|/[\d(]"
    r"|[:_]\d| or [$€£]?\d| ?\\(?:pi|sqrt)"
)
_NEGATIVE = re.compile(rf"(?:(?:^|[\s(=:\"'*\[,;≈~$]){CURRENCY}?-|[=:≈] ?- ?|\b(?:negative|minus) ){CURRENCY}?\Z")


def last_number(text: str) -> Number | None:
    """The last number of ``text``, or None when there is none or it cannot be read.

    Example: ``last_number("April gave 48 and May 24, which makes 72 boxes, altogether.")`` -> 72.
    """
    if len(text) > WINDOW:
        text = text[-WINDOW:]
        text = text[re.search(r"\s|$", text).start() :]  # type: ignore[union-attr]
    text = plain(text)
    for match in reversed(list(WRITTEN.finditer(text))):
        if _is_candidate(text, match):
            return _read(text, match)
    return None


def answer_number(text: str) -> Number | None:
    """The number that a sentence after "the answer is" gives: the one it begins with, else its last.

    Example: ``"$20 was my first guess of 3"`` -> 20; ``"3+4=7"`` and ``"he has 3, then 7"`` -> 7; ``"3 and 4"`` none.
    """
    text = text[:WINDOW]
    begins = plain(text).lstrip(" \t\r\n*_`\"'([{:")
    match = WRITTEN.search(begins)
    if not match or not _BEGIN.fullmatch(begins[: match.start()]):
        return last_number(text)
    if number := _read(begins, match):
        return None if _LISTED.match(begins, match.end()) else number
    return last_number(text) if "=" in text else None


_LISTED = re.compile(r",? (?:and|&) [$€£]?\d")
_BEGIN = re.compile(
    rf"(?:(?:therefore|thus|then|hence|simply|indeed|clearly|actually|exactly|about|approximately|only|just),? ){{0,2}}"
    rf"(?:negative |minus )?-?{CURRENCY}? ?-?",
    re.IGNORECASE,
)


def _around(text: str, match: re.Match[str]) -> tuple[str, str]:
    return text[max(0, match.start() - _BEFORE) : match.start()], text[match.end() : match.end() + _AFTER]


def _is_candidate(text: str, match: re.Match[str]) -> bool:
    before, after = _around(text, match)
    if _NAME.search(before) and not _CURRENCY_NAME.search(before):
        return False
    starts_line = not before.rpartition("\n")[2].strip() and (match.start() < _BEFORE or "\n" in before)
    return not _ORDINAL.match(after) and not (starts_line and _LIST_NUMBER.match(after))


def _read(text: str, match: re.Match[str]) -> Number | None:
    before, after = _around(text, match)
    if _JOINED_BEFORE.search(before) or _JOINED_AFTER.match(after):
        return None
    number = evaluate(match, tail=after)
    if after[:1].isascii() and after[:1].isalpha() and not is_glued_unit(after) and not re.match(r"[kK](?!\w)", after):
        return None
    if number and _NEGATIVE.search(before):
        return Number(-number.value, number.ratio)
    return number
