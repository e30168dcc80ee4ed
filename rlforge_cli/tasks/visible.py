"""The part of a completion that can hold its answer: no special tokens, no thinking, no invented next question."""

from __future__ import annotations

import re
from typing import NamedTuple

STOP_STRINGS = (
    *("\nQuestion:", "\nProblem:", "\nQ:", "\nUser:", "\nHuman:", "\nInstruction:", "\nExercise:"),
    *("\nQuestion ", "\nProblem ", "\nNext question", "\nNext problem", "\n### Question", "\n### Problem"),
    *("\n### Instruction", "\n**Question", "\n**Problem"),
)
"""Texts with which a model that has answered begins a next question of its own."""

_SPECIAL = re.compile(
    r"<\|[^|<>\s]{1,40}\|>|<｜[^｜<>\s]{1,40}｜>|</?s>"
    r"|<(?:eos|bos|pad|unk|start_of_turn|end_of_turn|endoftext)>|\[(?:PAD|EOS|BOS|UNK)\]"
)
_LEADING = re.compile(rf"(?:\s*(?:{_SPECIAL.pattern})(?:assistant\b)?)+")
_END = re.compile(
    r"<\|(?:im_end|im_start|end|endoftext|end_of_text|end_of_turn|eot_id|eom_id|eos|return|user|pad)\|>"
    r"|<｜end[^｜<>\s]{1,40}｜>|</s>|<(?:eos|end_of_turn|start_of_turn|endoftext|pad)>|\[(?:PAD|EOS)\]"
)
_THINK = re.compile(r"<(/?)(?:think(?:ing)?|thought|reasoning)>", re.IGNORECASE)


def without_special_tokens(text: str) -> str:
    """``text`` up to its first end token, without other special tokens.

    Example: ``"#### 64<|im_end|><|endoftext|>"`` -> ``"#### 64"``.
    """
    if leading := _LEADING.match(text):
        text = text[leading.end() :]
    if end := _END.search(text):
        text = text[: end.start()]
    return _SPECIAL.sub("  ", text)


class Visible(NamedTuple):
    """A completion outside its thinking."""

    text: str
    last: str
    """What follows the last tag."""
    tidy: bool
    """At most one thinking block, and no stray tag."""


def outside_thinking(text: str) -> Visible | None:
    """``text`` without its thinking blocks, or None when the last one is never closed.

    A closing tag before any opening one ends thinking that the prompt began; other stray closing tags are ignored.
    """
    kept: list[str] = []
    start = opened = closed = 0
    thinking = False
    for tag in _THINK.finditer(text):
        if not tag[1]:
            opened += 1
            if not thinking:
                kept.append(text[start : tag.start()])
            thinking = True
            continue
        closed += 1
        if not thinking and not (opened == 0 and closed == 1):
            kept.append(text[start : tag.start()])
        thinking = False
        start = tag.end()
    if thinking:
        return None
    last = text[start:]
    return Visible("\n".join([*kept, last]), last, opened <= 1 and closed <= 1 and opened <= closed)


def cut_at_stop_strings(text: str) -> str:
    """``text`` before an invented next question; one with which the text itself begins is no invention.

    Thinking that is marked as such may speak of questions.

    Example: ``"#### 14\\n\\nQuestion: What ..."`` -> ``"#### 14\\n"``.
    """
    tags = list(_THINK.finditer(text))
    if tags and not tags[-1][1]:
        return text
    start = tags[-1].end() if tags else 0
    start += len(text[start:]) - len(text[start:].lstrip())
    places = [place for stop in STOP_STRINGS if (place := text.find(stop, start)) >= 0]
    return text[: min(places, default=len(text))]
