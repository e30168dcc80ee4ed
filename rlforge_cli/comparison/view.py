"""A comparison for people: verdicts, what happened inside the runs, notes, and what to do next.

The layout follows the terminal: one line a run, then two-line cells, then blocks; names and numbers are never cut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlforge_cli.comparison import cells
from rlforge_cli.comparison.bar import axis, bar, scale_for
from rlforge_cli.comparison.result import Comparison, Row
from rlforge_cli.comparison.spelling import Speller, speller
from rlforge_cli.output import cell, table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

QUESTIONS = {
    "recipe": "would training again this way differ?",
    "checkpoint": "do these checkpoints differ?",
}
GAP = 2
"""Blanks between two columns."""
BARS = (17, 41)
"""Narrowest and widest picture of an interval."""


def show(result: Comparison, console: Console) -> None:
    """Print a comparison on ``console``."""
    spell = speller(console.encoding)
    console.print(cell(spell(_question(result))))
    drawn = _table(result, spell, console.width)
    if drawn is not None:
        console.print(drawn)
    else:
        _blocks(result, spell, console)
    _inside(result, spell, console)
    console.print()
    for line in cells.notes(result):
        console.print(cell(spell(line)))
    for text, commands in cells.next_steps(result):
        console.print(cell(spell(text)))
        for command in commands:
            console.print(cell("  " + command), soft_wrap=True)


def _question(result: Comparison) -> str:
    parts = [
        f"{result.scope} scope: {QUESTIONS[result.scope]}",
        f"margin ±{result.margin_pp:g} pp",
        f"α {result.alpha:g}",
    ]
    if result.seed_sd_pp is not None:
        parts.append(f"seed SD {result.seed_sd_pp:.2f} pp")
    if result.rule == "simple":
        parts.append("the reference's simple rule")
    return " · ".join(parts)


def _table(result: Comparison, spell: Speller, width: int) -> Table | None:
    """The verdicts as a table; None when a terminal of ``width`` cannot hold names and numbers side by side."""
    from rich.cells import cell_len

    def widest(*texts: str) -> int:
        return max(cell_len(spell(text)) for text in texts)

    rows = result.rows
    run, change = widest("run", *map(cells.label, rows)), widest("change", *map(cells.change, rows))
    verdicts = widest("verdict", *(cells.verdict(row, result) for row in rows))
    numbers = [widest("score %", *map(cells.score, rows)), widest("Δ pp", *map(cells.delta, rows))]
    intervals = widest("95 % interval", *map(cells.interval, rows))
    left = width - (run + change + verdicts + sum(numbers) + intervals + 6 * GAP)
    if left >= BARS[0]:
        return _draw(result, spell, bar_width=min(BARS[1], left), wide=True)
    score = widest("score %", *(part for row in rows for part in cells.score(row, gap="\n").split("\n")))
    broken = widest("verdict", *(part for row in rows for part in _broken_verdict(row, result).split("\n")))
    left = width - (run + score + max(intervals, widest("Δ pp [95 %]")) + broken + BARS[0] + 5 * GAP)
    if left >= min(change, 10):
        return _draw(result, spell, bar_width=max(BARS[0], min(BARS[1], BARS[0] + left - change)), wide=False)
    return None


def _broken_verdict(row: Row, result: Comparison) -> str:
    """The verdict on two lines where one would be long."""
    text = cells.verdict(row, result)
    return text.replace(" difference", "\ndifference").replace("not comp", "not\ncomp").replace(", b", ",\nb")


def _draw(result: Comparison, spell: Speller, *, bar_width: int, wide: bool) -> Table:
    from rich.text import Text

    known = [row.delta_ci95_pp for row in result.rows if row.delta_ci95_pp is not None]
    scale = scale_for(known, margin=result.margin_pp, width=bar_width - 1 + bar_width % 2)
    rows: list[list[Text]] = []
    for row in result.rows:
        style = cells.STYLES[row.verdict]
        picture = bar(row.delta_ci95_pp, row.delta_pp, scale) if row.delta_ci95_pp and row.delta_pp is not None else ""
        numbers = [cells.delta(row), cells.interval(row)]
        shown = numbers if wide else ["\n".join(numbers).strip()]
        rows.append(
            [
                Text.assemble(cell(row.run), spell(cells.label(row)[len(row.run) :])),
                cell(spell(cells.change(row))),
                Text(spell(cells.score(row, gap=" " if wide else "\n"))),
                *map(Text, shown),
                Text(spell(picture), style=style),
                Text(spell(cells.verdict(row, result) if wide else _broken_verdict(row, result)), style=style),
            ]
        )
    difference = ["Δ pp", "95 % interval"] if wide else ["Δ pp [95 %]"]
    headers = ["run", "change", "score %", *difference, axis(scale), "verdict"]
    drawn = _plain(table([spell(name) for name in headers], rows))
    for index, column in enumerate(drawn.columns):
        column.no_wrap = index != 1  # only the change may fold
    return drawn


def _plain(drawn: Table) -> Table:
    drawn.padding = (0, 1, 0, 0)
    drawn.show_edge = False
    return drawn


def _blocks(result: Comparison, spell: Speller, console: Console) -> None:
    """The verdicts as blocks of lines, for a terminal that is too narrow for a table."""
    known = [row.delta_ci95_pp for row in result.rows if row.delta_ci95_pp is not None]
    scale = scale_for(known, margin=result.margin_pp, width=max(11, min(BARS[1], console.width - 3)) // 2 * 2 - 1)
    for row in result.rows:
        console.print()
        console.print(cell(spell(cells.label(row))))
        for text in (
            cells.change(row),
            cells.score(row) + " %",
            f"Δ {cells.delta(row)} {cells.interval(row)}" if row.delta_pp is not None else "",
            bar(row.delta_ci95_pp, row.delta_pp, scale) if row.delta_ci95_pp and row.delta_pp is not None else "",
        ):
            if text:
                console.print(cell(spell("  " + text)))
        console.print(cell(spell("  " + cells.verdict(row, result)), style=cells.STYLES[row.verdict]))


def _inside(result: Comparison, spell: Speller, console: Console) -> None:
    """Strict score and mechanism metrics side by side, as a table or, where that is too wide, a line a run."""
    from rich.cells import cell_len

    columns = cells.inside_columns(result)
    if not columns:
        return
    console.print()
    console.print(cell(spell("inside the runs: strict score (Δ), gauges over the last tenth of the steps, cost")))
    texts = [[row.run, *(spell(read(row)) for _, read in columns)] for row in result.rows]
    names = ["run", *(name for name, _ in columns)]
    drawn = _plain(table(names, texts, right=range(1, len(names))))
    for index, column in enumerate(drawn.columns):
        column.no_wrap = names[index] != "strict %"  # its difference may stand below it
    # only the strict difference may fold, so its cell counts as its longest word
    parts = [
        [part for text in column for part in (text.split(" ") if column[0] == "strict %" else [text])]
        for column in zip(names, *texts, strict=True)
    ]
    if sum(max(map(cell_len, column)) for column in parts) + GAP * (len(names) - 1) <= console.width:
        console.print(drawn)
        return
    for row, values in zip(result.rows, texts, strict=True):
        pairs = ", ".join(f"{name} {text}" for name, text in zip(names[1:], values[1:], strict=True))
        console.print(cell(f"{row.run}: {pairs}"))
