from __future__ import annotations

import io
import json

import numpy as np
import pytest
from rich.console import Console

from rlforge_cli import output

CELLS = ["[/think] 42", "a[red]b", "x [bold] y", "see [link] \\boxed{3}", ":smile: run", "trailing backslash \\"]


def shown(cells: list[str], *, width: int | None = None, encoding: str = "utf-8") -> str:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = output.make_console(stream)
    if width:
        console.width = width
    console.print(output.table(["name", "value"], [[text, 1] for text in cells]))
    stream.flush()
    return stream.buffer.getvalue().decode(encoding)


@pytest.mark.parametrize("text", CELLS)
def test_model_text_is_shown_verbatim(text):
    assert text in shown(CELLS, width=120)


def test_own_signs_are_spelled_where_an_encoding_lacks_them():
    text = shown(["group_size 8→16 ± 0.3", "漢"], encoding="ascii")
    assert "group_size 8->16 +/- 0.3" in text
    assert "?" in text


def test_control_characters_and_escapes_are_made_visible():
    text = shown(["\x1b[31mred\x1b[0m", "a\u202eb", "tab\there", "line\nbreak"])
    assert "\x1b" not in text
    assert "\\x1b[31mred" in text
    assert "a\\u202eb" in text


def test_a_pipe_is_neither_cut_nor_coloured(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("FORCE_COLOR", "0")
    monkeypatch.setenv("TERM", "dumb")
    long = "x" * 500
    text = shown([long])
    assert long in text
    assert "\x1b" not in text


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "latin-1"])
def test_an_encoding_without_glyphs_loses_glyphs_only(encoding):
    text = shown(["run-01 答案 ✓ 63.2"], encoding=encoding)
    assert "run-01" in text
    assert "63.2" in text


def test_a_narrow_terminal_folds_and_keeps_every_character():
    stream = io.StringIO()
    console = Console(file=stream, width=30, force_terminal=True, color_system=None, markup=False)
    console.print(output.table(["run"], [["run-0123456789-" * 4]]))
    assert "run-0123456789-" * 4 in "".join(stream.getvalue().split())
    assert max(len(line) for line in stream.getvalue().splitlines()) <= 30


def test_json_is_strict_and_ascii(capsys):
    output.print_json({"a": float("nan"), "b": np.float32(0.5), "c": (1, float("inf")), "d": "é\u2028", 3: None})
    text = capsys.readouterr().out
    assert text.isascii()

    def refuse(token: str) -> None:
        raise AssertionError(token)

    assert json.loads(text, parse_constant=refuse) == {"a": None, "b": 0.5, "c": [1, None], "d": "é\u2028", "3": None}
