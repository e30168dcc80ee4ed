r"""What a completion answers, and whether that is right. The asked format is a last line ``#### <answer>``.

The answer is looked for in this order, outside thinking and before an invented next question, and the first place
that exists decides: when what stands there cannot be read there is no answer, and the reasoning is not searched.

1. the last ``####`` that says something (a Markdown heading, ``#### Step 1`` with text below it, is none);
2. the last ``\boxed{...}`` that is not empty;
3. the last "Answer:" or "the answer is";
4. the last number of the text.

Thinking that is never closed holds no answer. Text after an end token is not part of the completion.
``format_ok`` wants more than 1: exactly one ``####`` in the text, at the start of the last line, a space, a bare
number, and nothing after; at most one thinking block, closed, before it. ``####333`` is read but has not the format.

A gold that is no number (``Monday``, ``3:4``) is compared as text, with case, spacing and markup evened out, and only
to what places 1 and 2 say: two answers that both fail to be numbers are never equal for that reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from rlforge_cli.errors import UserError
from rlforge_cli.tasks.base import Grade
from rlforge_cli.tasks.notation import plain
from rlforge_cli.tasks.numbers import Number, is_bare, parse_number
from rlforge_cli.tasks.prose import answer_number, last_number
from rlforge_cli.tasks.visible import cut_at_stop_strings, outside_thinking, without_special_tokens

GRADER_VERSION = "number-1"
"""Changes whenever a grade could."""

LONGEST_ANSWER = 400
"""Characters of a stated answer that is read; a longer one is none."""
LATEST = 50
"""Markers, boxes and mentions of the word "answer", from the end, that are looked at: a bound on time."""


class Extraction(NamedTuple):
    """What a completion answers. Example: ``Extraction(Number(18), "18", "marker", asked=True)`` for ``#### 18``."""

    number: Number | None = None
    text: str | None = None
    """What stands after the marker or in the box, as written."""
    source: str = "nothing"
    """Where it was found: marker, boxed, phrase, prose or nothing."""
    asked: bool = False
    """Exactly one marker, on the last line, with something after it and nothing below."""


def extract(completion: str) -> Extraction:
    """The answer of a completion, by the order in this module's description."""
    completion = without_special_tokens(completion)
    visible = outside_thinking(completion)
    if visible is None:
        return Extraction()
    asked = visible.tidy and len(_MARKER.findall(visible.text)) == 1 and bool(_asked_line(visible.last))
    text = cut_at_stop_strings(visible.text)
    places = (_marked, _boxed, _phrased, _in_prose)
    found = next((found for place in places if (found := place(text))), Extraction(text=_heading(text)))
    return found._replace(asked=asked and found.source == "marker")


def grade_number(completion: str, answer: str) -> Grade:
    """Judge a completion against a gold answer (a number, a worked GSM8K solution, or a text).

    Example: ``grade_number("48+24=72\\n#### 72", "72")`` -> correct, strictly too. Never raises: a defect of the grader
    is reported in ``error``, to be counted and shown.
    """
    try:
        return _grade(completion, answer)
    except Exception as error:  # one sample of a run of hours; it is counted, shown and left unscored
        return Grade(False, False, False, None, error=f"{type(error).__name__}: {error}")


def _grade(completion: str, answer: str) -> Grade:
    found = extract(completion)
    gold = _gold_text(answer)
    number = parse_number(gold)
    if number is None:
        said = _even(found.text or "")
        correct = bool(said) and said == _even(gold)
        return Grade(correct, correct and found.asked, found.asked, found.text)
    correct = found.number is not None and found.number.value == number.value
    format_ok = found.asked and found.text is not None and is_bare(found.text)
    return Grade(correct, correct and format_ok, format_ok, found.number.text if found.number else None)


def gold_answer(text: str) -> str:
    """The canonical number of a gold: of a worked solution what follows its last ``####``, else of the whole text.

    Example: ``gold_answer("48+24=<<48+24=72>>72\\n#### 1,072")`` -> ``"1072"``.

    Raises:
        UserError: there is no number; the message shows the text.
    """
    number = parse_number(_gold_text(text))
    if number is None:
        shown = text if len(text) <= 80 else "..." + text[-80:]
        raise UserError(f"answer {shown!r} states no number; write one, alone or after a last '#### '")
    return number.text


def final_answer_text(completion: str) -> tuple[str | None, bool]:
    """The answer as text (after the last marker, or in the last box), and whether the asked format was followed."""
    found = extract(completion)
    return found.text, found.asked


_CALCULATOR = re.compile(r"<<[^<>\n]{0,200}>>")


def _gold_text(text: str) -> str:
    if "####" in text:
        return text.rpartition("####")[2].strip().partition("\n")[0].strip()
    return _CALCULATOR.sub("", text).strip()


def _even(text: str) -> str:
    return " ".join(plain(text).strip(" \t\r\n*_`\"'$.!").split()).casefold()


_MARKER = re.compile(r"#{4,}")
_ASKED_LINE = re.compile(r"[ \t]*####[ \t]+(\S.*)")
_HEADING = re.compile(r"\s*(?:[*_]{0,3}[^\W\d_]|\d{1,2}[.):])")


def _asked_line(text: str) -> re.Match[str] | None:
    return _ASKED_LINE.fullmatch(text.rstrip().rpartition("\n")[2])


def _markers(text: str) -> Iterator[tuple[str, int]]:
    """What each ``####`` says, to the end of its line or the next marker, and where that ends; last one first."""
    stop = len(text)
    for marker in reversed(list(_MARKER.finditer(text))[-LATEST:]):
        line = text[marker.end() : stop].partition("\n")[0]
        yield line.strip(), marker.end() + len(line)
        stop = marker.start()


def _marked(text: str) -> Extraction | None:
    nothing: Extraction | None = None
    end = len(text.rstrip())
    for said, stop in _markers(text):
        if not said.strip("*_:"):
            if nothing is None:
                below = text[stop : stop + LONGEST_ANSWER + 1].partition("####")[0].strip()
                if number := parse_number(below):
                    return Extraction(number, below, "marker")
            nothing = Extraction(source="marker")  # an empty marker takes back nothing that was said before it
            continue
        number = parse_number(said)
        if number is None and stop < end and _HEADING.match(said):
            continue
        return Extraction(number, said if len(said) <= LONGEST_ANSWER else None, "marker")
    return nothing


def _heading(text: str) -> str | None:
    """The last heading, where no marker or box states more: the answer of a text gold may look like one."""
    said, _ = next(_markers(text), ("", 0))
    return said if 0 < len(said) <= LONGEST_ANSWER else None


_BOX = re.compile(r"\\f?boxed ?(\{)?")
_UNBRACED = re.compile(r"-?[\d.,]{1,40}")


def _boxed(text: str) -> Extraction | None:
    nothing: Extraction | None = None
    for box in reversed(list(_BOX.finditer(text))[-LATEST:]):
        said = _balanced(text, box.end()) if box[1] else (m[0] if (m := _UNBRACED.match(text, box.end())) else "")
        if said is None:
            return Extraction(source="boxed")
        if said.strip():
            return Extraction(parse_number(said), said.strip(), "boxed")
        nothing = Extraction(source="boxed")
    return nothing


def _balanced(text: str, start: int) -> str | None:
    depth = 1
    for index in range(start, min(len(text), start + LONGEST_ANSWER)):
        if text[index] == "{":
            depth += 1
        elif text[index] == "}":
            depth -= 1
            if depth == 0:
                return text[start:index]
    return None


_ANSWER = re.compile(r"\banswers?\b|答案", re.IGNORECASE)
_SAYS = re.compile(r"[^\n:=.?!\d]{0,60}?(?:\b(?:is|are|was)\b|[:=：是为])[ \t:*_]*(.*)", re.IGNORECASE)
_DENIED = re.compile(r"not\b|n't\b|unknown\b|unclear\b", re.IGNORECASE)


def _phrased(text: str) -> Extraction | None:
    for mention in reversed(list(_ANSWER.finditer(text))[-LATEST:]):
        says = _SAYS.match(text, mention.end())
        if not says:
            continue
        said = says[1].strip()
        if not said:
            said = text[says.end() : says.end() + LONGEST_ANSWER].strip().partition("\n")[0]
        if _DENIED.match(said):
            return Extraction(source="phrase")
        has_digit = any(char.isdecimal() for char in said)
        number = parse_number(said) or answer_number(said) if has_digit else last_number(text[says.end() :])
        return Extraction(number, _heading(text), "phrase")
    return None


def _in_prose(text: str) -> Extraction | None:
    number = last_number(text)
    return Extraction(number, _heading(text), "prose") if number else None
