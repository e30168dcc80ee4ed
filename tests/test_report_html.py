"""The page as an HTML reader sees it: only our elements, nothing that runs, nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hostile import TEXTS
from report_files import curves, small_experiment, write_full_run

from rlforge_cli.report import write_report
from rlforge_cli.report.blocks import Difference, Forest, Line, Panel
from rlforge_cli.report.html import inline
from rlforge_cli.report.series import Series
from rlforge_cli.report.svg_curves import picture
from rlforge_cli.report.svg_forest import scale_of, strip
from rlforge_cli.report.text import code, visible
from rlforge_cli.run_dir import RunDir

ELEMENTS = {
    *("html", "head", "meta", "title", "style", "body", "header", "nav", "main", "section", "article", "figure"),
    *("figcaption", "details", "summary", "div", "p", "span", "b", "em", "strong", "code", "pre", "a", "ul", "li"),
    *("h1", "h2", "h3", "h4", "h5", "table", "thead", "tbody", "tr", "th", "td"),
    *("svg", "path", "line", "rect", "circle", "text"),
}
ATTRIBUTES = {
    "lang", "charset", "http-equiv", "content", "name", "class", "href", "id", "open", "data-label", "aria-label",
    "aria-hidden", "role", "viewbox", "width", "height", "x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "d", "dy",
    "text-anchor", "overflow",
}  # fmt: skip
VOID = {"meta"}


class Reader(HTMLParser):
    """Collects elements, attributes and text, and checks that every element is closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def page_of(runs: Path, lang: str = "en") -> str:
    _, html = write_report(RunDir.all(runs), runs_dir=runs, out=runs / "report.md", lang=lang)
    return html.read_text(encoding="utf-8")


def hostile_experiment(runs: Path) -> None:
    def text(index: int) -> str:
        return TEXTS[index % len(TEXTS)]

    change = {"key": "optimizer.lr", "from": TEXTS[0], "to": TEXTS[3]}
    info = {"parent": "run-01", "changes": [change], "device": TEXTS[1], "note": TEXTS[2]}
    records = [record | {f"reward/{TEXTS[0]}": 0.5 + record["step"] / 1000} for record in curves(steps=30)]
    write_full_run(runs, "run-01", [1, 0] * 60, text=text)
    write_full_run(runs, "run-02", [0, 1] * 60, text=text, records=records, info=info, config={"optimizer.lr": 1.0})
    stopped = {"status": "failed", "steps": 3, "reason": TEXTS[0] + TEXTS[5]}
    write_full_run(runs, "run-03", [0, 1] * 60, info=info | stopped, config={"optimizer.lr": 2.0})


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_hostile_texts_add_no_element_and_no_attribute(tmp_path: Path, lang: str) -> None:
    hostile_experiment(tmp_path)
    read = Reader(page_of(tmp_path, lang))
    assert set(read.elements) <= ELEMENTS
    assert {name for _, name, _ in read.attributes} <= ATTRIBUTES
    assert all(value.startswith("#") for _, name, value in read.attributes if name == "href")
    ids = [value for _, name, value in read.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    assert "owned" not in ids


def test_hostile_texts_are_shown_whole(tmp_path: Path) -> None:
    hostile_experiment(tmp_path)
    text = "".join(Reader(page_of(tmp_path)).text)
    shown = [hostile for hostile in TEXTS if visible(hostile) in text]
    assert len(shown) >= 8  # the five problems drawn each way show two texts each


def test_the_policy_allows_the_one_style_sheet_and_nothing_else(tmp_path: Path) -> None:
    small_experiment(tmp_path)
    page = page_of(tmp_path)
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert f'<meta http-equiv="Content-Security-Policy" content="{policy}">' in page
    assert page.count("<style") == 1
    assert " style=" not in page


def test_nothing_comes_from_elsewhere(tmp_path: Path) -> None:
    small_experiment(tmp_path)
    page = page_of(tmp_path)
    assert not re.search(r"https?:|//[a-z]|url\(|@import|src=", page)


@pytest.mark.parametrize("text", TEXTS)
def test_a_sentence_is_escaped(text: str) -> None:
    read = Reader(inline(text))
    assert read.elements == []
    assert "".join(read.text).replace("\u00a0", " ") == " ".join(visible(text).split())


def test_a_number_stays_with_its_unit_and_our_marks_become_tags() -> None:
    assert inline("57.9 % and 3 pp") == "57.9\u00a0% and 3\u00a0pp"
    assert inline(code("<a>")) == "<code>&lt;a&gt;</code>"


def test_every_panel_draws_every_run_faintly_and_strongly(tmp_path: Path) -> None:
    small_experiment(tmp_path)
    page = page_of(tmp_path)
    panels = re.findall(r'<section class="panel">(.*?)</section>', page, re.DOTALL)
    assert len(panels) == 12
    for panel in panels:
        sparse = "val_accuracy" in panel
        assert panel.count('class="raw') == (0 if sparse else 4)
        assert panel.count('<path class="curve') == 4
    assert page.count('class="point') == 3


# pictures


def line(values: list[float], *, colour: int = 0) -> Line:
    series = Series(x=np.arange(1, len(values) + 1, dtype=float), y=np.array(values, dtype=float))
    return Line(label="run", colour=colour, series=series)


def panel(*lines: Line, unit: str = "") -> Panel:
    return Panel(key="k", title="t", unit=unit, x_label="step", lines=list(lines))


def test_a_curve_lies_where_its_values_say() -> None:
    drawn = picture(panel(line([0.0, 1.0, 0.5])))
    path = re.search(r'class="curve c0" d="M([^"]+)"', drawn)
    assert path is not None
    points = [tuple(map(float, pair.split(" "))) for pair in path[1].split("L")]
    (x0, y0), (x1, y1), (x2, y2) = points
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.11)
    assert y0 > y2 > y1
    assert y2 == pytest.approx((y0 + y1) / 2, abs=0.11)


def test_a_curve_breaks_at_what_is_not_finite_and_a_lone_value_is_a_dot() -> None:
    values = [1.0, 2.0, float("nan"), 3.0, float("nan"), *[2.0] * 30]
    drawn = picture(panel(line(values)))
    assert len(re.findall('<path class="curve', drawn)) == 2
    assert drawn.count('<circle class="dot') == 1
    assert "nan" not in drawn


@pytest.mark.parametrize("values", [[1.0], [0.0, 0.0], [1e-30, 2e-30], [1e99, -1e99], [5.0] * 300, list(range(5000))])
def test_any_finite_values_give_a_picture_with_ticks(values: list[float]) -> None:
    drawn = picture(panel(line([float(value) for value in values])))
    assert not re.search("nan|inf", drawn)
    assert drawn.count('class="tick"') >= 4
    assert len(drawn) < 12_000


def test_shares_stay_on_an_axis_of_shares() -> None:
    drawn = picture(panel(line([0.0] * 50 + [1.0] * 50), unit="percent"))
    labels = re.findall(r'text-anchor="end">([^<]+)</text>', drawn)
    assert labels[0] == "0%"
    assert "100%" in labels
    assert not any(label.startswith("−") for label in labels)


def difference(delta: float | None, ci95: tuple[float, float] | None) -> Difference:
    ci90 = None if ci95 is None else (ci95[0] + 0.5, ci95[1] - 0.5)
    return Difference(run="r", change="c", numbers="n", verdict="better", word="w", delta=delta, ci95=ci95, ci90=ci90)


def forest(*rows: Difference) -> Forest:
    return Forest(rows=list(rows), margin=4.0, axis="a", caption="c", text_caption="t")


def test_an_interval_lies_where_its_ends_say() -> None:
    row = difference(5.0, (2.0, 8.0))
    block = forest(row)
    drawn = strip(row, block, scale_of(block))
    limit = 1.05 * 8

    def place(points: float) -> str:
        return f"{1.5 + (points + limit) / (2 * limit) * 97:.2f}%"

    assert f'class="ci95 v-better" x1="{place(2)}" x2="{place(8)}"' in drawn
    assert f'class="ci90 v-better" x1="{place(2.5)}" x2="{place(7.5)}"' in drawn
    assert f'cx="{place(5)}"' in drawn
    assert f'class="zero" x1="{place(0)}"' in drawn
    assert f'class="band" x="{place(-4)}"' in drawn


def test_what_lies_beyond_six_margins_is_an_arrow() -> None:
    row = difference(-40.0, (-50.0, -20.0))
    block = forest(row)
    drawn = strip(row, block, scale_of(block))
    assert drawn.count('class="arrow') == 1
    assert "<circle" not in drawn


def test_a_row_without_a_difference_shows_only_the_ground() -> None:
    row = difference(None, None)
    block = forest(row)
    assert not re.search("ci95|circle|arrow", strip(row, block, scale_of(block)))
