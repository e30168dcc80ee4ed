"""The page as drawn by a browser, where one is installed: plots drawn, nothing complains, nothing sticks out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import BINARY, Page, browser
from hostile import TEXTS
from report_files import small_experiment, write_full_run

from rlforge_cli.report import write_report
from rlforge_cli.run_dir import RunDir

pytestmark = pytest.mark.skipif(BINARY is None, reason="no chromium on this machine")


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with browser() as tab:
        yield tab


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Pages by language, of runs whose models wrote hostile texts."""
    runs = tmp_path_factory.mktemp("runs")
    small_experiment(runs)
    change = {"key": "optimizer.lr", "from": TEXTS[0] * 3, "to": "x" * 300}
    info = {"parent": "run-01", "changes": [change], "device": TEXTS[1]}
    for name, shift in (("run-05", 0), ("run-06", 4)):

        def text(index: int, shift: int = shift) -> str:
            return TEXTS[(index + shift) % len(TEXTS)] * 4

        right = [int(index % 4 < 3) for index in range(1000)]
        write_full_run(runs, name, right, text=text, info=info, config={"optimizer.lr": 1.0 + shift})
    names = {}
    for lang in ("en", "zh"):
        _, names[lang] = write_report(RunDir.all(runs), runs_dir=runs, out=runs / lang, lang=lang)
    return names


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_it_opens_quietly_and_fits(page: Page, reports: dict[str, Path], lang: str, width: int, dark: bool) -> None:
    page.open(reports[lang], width=width, dark=dark)
    page.value("document.querySelectorAll('details').forEach(d => { d.open = true })")
    assert page.complaints() == []
    assert page.requests() == [reports[lang].resolve().as_uri()]
    assert page.value("document.documentElement.scrollWidth") == width
    sticking_out = """[...document.querySelectorAll('main *')].filter(e => {
        const box = e.getBoundingClientRect();
        return box.width > 0 && box.right > innerWidth + 1 && !e.closest('.scroll, .plot > svg');
    }).map(e => e.outerHTML.slice(0, 200))"""
    assert page.value(sticking_out) == []
    assert page.value("getComputedStyle(document.body).backgroundColor") == (
        "rgb(18, 22, 27)" if dark else "rgb(255, 255, 255)"
    )


def test_the_plots_are_drawn(page: Page, reports: dict[str, Path]) -> None:
    page.open(reports["en"], width=1400)
    drawn = """[...document.querySelectorAll('.plot .curve')].map(e => {
        const box = e.getBoundingClientRect(), style = getComputedStyle(e);
        return [box.width, box.height, style.stroke, style.display];
    })"""
    curves = page.value(drawn)
    assert len(curves) == 12 * 6
    assert all(width > 50 and height > 1 for width, height, _, _ in curves)
    assert len({stroke for _, _, stroke, _ in curves}) == 6
    assert {display for _, _, _, display in curves} == {"inline"}
    points = page.value("[...document.querySelectorAll('.point')].map(e => e.getBoundingClientRect().left)")
    zero = page.value("document.querySelector('.strip .zero').getBoundingClientRect().left")
    better, worse, same = points[:3]
    assert worse < zero < same < better


def test_text_is_large_enough_to_read(page: Page, reports: dict[str, Path]) -> None:
    for width in (400, 1400):
        page.open(reports["en"], width=width)
        sizes = page.value("[...document.querySelectorAll('.plot text')].map(e => e.getBoundingClientRect().height)")
        assert min(sizes) > 9
        smallest = page.value(
            "Math.min(...[...document.querySelectorAll('main p, main li, main td, main pre')]"
            ".map(e => parseFloat(getComputedStyle(e).fontSize)))"
        )
        assert smallest >= 12


def test_no_element_comes_from_a_model(page: Page, reports: dict[str, Path]) -> None:
    page.open(reports["en"], width=1400)
    assert page.value("document.title") == page.value("document.querySelector('h1').textContent")
    foreign = "script, img, iframe, object, embed, form, input, link, base, [onload], [onerror], #owned"
    assert page.value(f"document.querySelectorAll('{foreign}').length") == 0
    inside = "[...document.querySelectorAll('pre, td, .quote')].filter(e => e.querySelector('a, h1, h2, style'))"
    assert page.value(f"{inside}.length") == 0
    assert page.value("document.querySelectorAll('style').length") == 1


def test_the_policy_stops_a_script_that_got_in(page: Page, reports: dict[str, Path], tmp_path: Path) -> None:
    text = reports["en"].read_text(encoding="utf-8")
    broken = tmp_path / "broken.html"
    broken.write_text(text.replace("</main>", "<script>document.title = 'owned'</script></main>"), encoding="utf-8")
    page.open(broken, width=1400)
    assert page.value("document.title") != "owned"
    assert any("Content Security Policy" in str(event) for event in page.complaints())


def test_ink_stands_out_from_paper(page: Page, reports: dict[str, Path]) -> None:
    """Contrast of text 4.5, of lines 3 (WCAG 2.1, 1.4.3 and 1.4.11)."""
    ratio = """(kind => {
        const light = c => { const [r, g, b] = c.match(/\\d+/g).map(v => v / 255)
            .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
        const paper = light(getComputedStyle(document.body).backgroundColor);
        return [...document.querySelectorAll(kind)].map(e => {
            const style = getComputedStyle(e), ink = light(kind === '.curve' ? style.stroke : style.color);
            return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
        });
    })"""
    for dark in (False, True):
        page.open(reports["en"], width=1400, dark=dark)
        assert min(page.value(f"{ratio}('p, li, td, a, .verdict, code')")) >= 4.5
        assert min(page.value(f"{ratio}('.curve')")) >= 3
