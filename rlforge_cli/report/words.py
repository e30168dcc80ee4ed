"""Sentences by key in the languages of the report; a foreign value inside one can neither format nor script."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping, Sequence

from rlforge_cli.errors import UserError, nearest
from rlforge_cli.report.text import CODE, END_CODE, END_STRONG, STRONG, Marked, one_line

LANGUAGES = ("en", "zh")


def mark(template: str) -> str:
    """Backticks and double stars of our own sentences as marks."""
    template = re.sub(r"`([^`]+)`", CODE + r"\1" + END_CODE, template)
    return re.sub(r"\*\*([^*]+)\*\*", STRONG + r"\1" + END_STRONG, template)


class Words:
    """Example: ``Words.load("en")("ev_end", value="9.1 %")``."""

    def __init__(self, lang: str, table: Mapping[str, str], translate: Callable[[str], str]) -> None:
        self.lang = lang
        self._table = {key: mark(text) for key, text in table.items()}
        self._translate = translate

    @classmethod
    def load(cls, lang: str) -> Words:
        """Raises:
        UserError: there is no such language.
        """
        if lang not in LANGUAGES:
            raise UserError(f"--lang {lang}: no such language{nearest(lang, LANGUAGES)}")
        module = importlib.import_module(f"rlforge_cli.report.words_{lang}")
        return cls(lang, module.TABLE, module.translate)

    def __call__(self, key: str, /, **values: object) -> Marked:
        return Marked(self._table[key].format_map({name: one_line(value) for name, value in values.items()}))

    def knows(self, key: str) -> bool:
        return key in self._table

    def raw(self, key: str) -> str:
        """A template that is not for a sentence: the first text of the explanation."""
        return self._table[key]

    def sentence(self, text: str) -> Marked:
        """A sentence of ``compare``, which speaks English, in this language; its commands set as code."""
        plain = one_line(self._translate(text))
        return Marked(re.sub(r"`((?:rlforge|--)[^`]*)`", CODE + r"\1" + END_CODE, plain))

    def join(self, items: Sequence[str]) -> Marked:
        return Marked(self._table["comma"].join(map(one_line, items)))
