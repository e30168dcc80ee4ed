"""The Markdown as a CommonMark reader sees it: nothing that a model or a file wrote becomes markup."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hostile import TEXTS
from markdown_it import MarkdownIt
from markdown_it.token import Token
from report_files import curves, small_experiment, write_full_run

from rlforge_cli.report import write_report
from rlforge_cli.report.explanation import BEGIN, END
from rlforge_cli.report.markdown import fenced, inline, spark, table
from rlforge_cli.report.series import Series
from rlforge_cli.report.text import code, strong, visible
from rlforge_cli.report.words import Words
from rlforge_cli.run_dir import RunDir

READER = MarkdownIt("gfm-like", {"html": True, "linkify": False}).disable("linkify")
MARKUP = (
    "html_block",
    "html_inline",
    "link_open",
    "image",
    "em_open",
    "s_open",
    "heading_open",
    "hr",
    "blockquote_open",
)


def tokens(text: str) -> Iterator[Token]:
    for token in READER.parse(text):
        yield token
        yield from token.children or ()


def kinds(text: str) -> set[str]:
    return {token.type for token in tokens(text)}


def shown(text: str) -> str:
    """The text of a paragraph, without any markup."""
    return "".join(token.content for token in tokens(text) if token.type in ("text", "code_inline", "text_special"))


@pytest.mark.parametrize("text", TEXTS)
def test_a_sentence_shows_foreign_text_and_nothing_of_it_formats(text: str) -> None:
    line = inline(text)
    assert not kinds(line) & {*MARKUP, "strong_open", "bullet_list_open", "fence", "table_open"}
    assert shown(line) == " ".join(visible(text).split())


def test_no_viewer_makes_links_of_foreign_addresses() -> None:
    line = inline("see https://a.example/x, WWW.b.example and c@d.example, but pass@1 and 3:4")
    assert line == "see https:&#47;&#47;a.example/x, WWW&#46;b.example and c&#64;d.example, but pass@1 and 3:4"


@pytest.mark.parametrize(
    "text", ["# no heading", "- no item", "1. no number", "> no quote", "=== no rule", "[x]: http://x"]
)
def test_a_line_does_not_begin_a_block(text: str) -> None:
    assert kinds(inline(text)) <= {"paragraph_open", "inline", "text", "text_special", "paragraph_close"}
    assert shown(inline(text)) == text


@pytest.mark.parametrize("text", TEXTS)
def test_a_cell_keeps_foreign_text_in_its_place(text: str) -> None:
    drawn = table(["a", "b"], [[text, str(code(text))], ["1", "2"]])
    cells = [token for token in READER.parse(drawn) if token.type == "inline"]
    assert len(cells) == 6
    assert not {child.type for cell in cells for child in cell.children or ()} & {*MARKUP, "strong_open"}


def test_our_own_marks_format() -> None:
    assert inline(code("a_b")) == "`a_b`"
    assert inline(code("a`b")) == "``a`b``"
    assert inline(code("`a")) == "`` `a ``"
    assert inline(strong("a*b")) == "**a\\*b**"
    say = Words.load("en")
    assert inline(say("headline", before="1 %", after="**2**", run=code("r"))).startswith(
        "**1 % → \\*\\*2\\*\\***, from"
    )


@pytest.mark.parametrize("text", [*TEXTS, "", "\n\n", "`" * 50, "a\n" + "`" * 7 + "\nb"])
def test_a_fence_is_longer_than_any_inside_and_holds_everything(text: str) -> None:
    block = fenced(text)
    (token,) = READER.parse(block)
    assert token.type == "fence"
    assert token.content.rstrip("\n") == visible(text).rstrip("\n").replace("<!-- rlforge:", "\\x3c!-- rlforge:")


INVISIBLE = "\x00\x1b\x7f\u0085\u200b\u202e\u2028\u2066\ufeff\ud800\U000e0041"


@pytest.mark.parametrize("character", list(INVISIBLE), ids=lambda character: f"{ord(character):x}")
def test_what_cannot_be_seen_is_spelled_out(character: str) -> None:
    number = f"{ord(character):x}"
    assert re.fullmatch(rf"a\\[xuU]0*{number}b", visible(f"a{character}b"))


@pytest.mark.parametrize(
    "text", ["plain", "tab\tand\nnewline", "中文 确定更好", "é ü ñ", "√2 ≈ 1.41 → ok", "🎉", "مرحبا"]
)
def test_what_can_be_seen_stays(text: str) -> None:
    assert visible(text) == text


def test_a_whole_report_of_hostile_texts_holds_no_markup_of_theirs(tmp_path: Path) -> None:
    def text(index: int) -> str:
        return TEXTS[index % len(TEXTS)]

    change = {"key": "optimizer.lr", "from": TEXTS[0], "to": TEXTS[5]}
    info = {"parent": "run-01", "changes": [change], "device": TEXTS[1], "note": TEXTS[2], "name": TEXTS[3]}
    records = [record | {f"reward/{TEXTS[0]}": 0.5 + record["step"] / 1000} for record in curves(steps=30)]
    write_full_run(tmp_path, "run-01", [1, 0] * 60, text=text)
    write_full_run(tmp_path, "run-02", [0, 1] * 60, text=text, records=records, info=info, config={"optimizer.lr": 1.0})
    stopped = {"status": "failed", "steps": 3, "reason": TEXTS[0] + TEXTS[5]}
    write_full_run(tmp_path, "run-03", [0, 1] * 60, info=info | stopped, config={"optimizer.lr": 2.0})
    for lang in ("en", "zh"):
        markdown, _ = write_report(RunDir.all(tmp_path), runs_dir=tmp_path, out=tmp_path / lang, lang=lang)
        found = list(tokens(markdown.read_text(encoding="utf-8")))
        assert [t.content for t in found if t.type.startswith("html")] == [f"{BEGIN}\n", f"{END}\n"] or [
            line
            for t in found
            if t.type.startswith("html")
            for line in t.content.split("\n")
            if line.startswith("<!--")
        ] == [BEGIN, END]
        assert not {t.type for t in found} & {"link_open", "image", "em_open", "s_open", "hr"}
        headings = [t for t in found if t.type == "heading_open"]
        assert len(headings) == len(re.findall(r"^#+ ", markdown.read_text(encoding="utf-8"), re.MULTILINE)) - sum(
            len(re.findall(r"^#+ ", t.content, re.MULTILINE)) for t in found if t.type == "fence"
        )


def test_tables_have_as_many_cells_as_columns(tmp_path: Path) -> None:
    small_experiment(tmp_path)
    markdown, _ = write_report(RunDir.all(tmp_path), runs_dir=tmp_path, out=tmp_path / "r")
    lines = [line for line in markdown.read_text(encoding="utf-8").split("\n") if line.startswith("|")]
    assert {line.count(" | ") for line in lines} == {10, 4}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], "▁▂▃▄▅▆▇█"),
        ([7.0, 0.0], "█▁"),
        ([1.0, 1.0, 1.0], "▁▁▁"),
        ([0.0, float("nan"), 1.0], "▁ █"),
        ([float("nan")], ""),
        ([], ""),
    ],
)
def test_spark(values: list[float], expected: str) -> None:
    series = Series(x=np.arange(len(values), dtype=float), y=np.array(values, dtype=float))
    assert spark(series) == expected
