"""The report as Markdown. Foreign text is escaped in sentences and cells, and fenced where it is a model's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from rlforge_cli.comparison.bar import Scale, axis, bar
from rlforge_cli.report.blocks import (
    Block,
    Bullets,
    Cards,
    Commands,
    Curves,
    Document,
    Example,
    Explanation,
    Fold,
    Forest,
    Heading,
    Paragraph,
    Quote,
    Table,
)  # fmt: skip
from rlforge_cli.report.explanation import BEGIN, END
from rlforge_cli.report.series import Series, smoothed
from rlforge_cli.report.svg_forest import scale_of
from rlforge_cli.report.text import CODE, END_CODE, END_STRONG, STRONG, Marked, one_line, visible
from rlforge_cli.report.words import Words

BAR_WIDTH = 49
SPARKS = "▁▂▃▄▅▆▇█"
SPARK_WIDTH = 16
_SPECIAL = re.compile(r"(\[[−\d.,\s]+\](?![(\[]))|[\\`*\[\]|~$]|<(?!\s)|(?<!\s)>|(?<![^\W_])_|_(?![^\W_])")
"""What formats, but for the brackets of an interval."""


def render(document: Document, say: Words) -> str:
    """The whole file; between the explanation's markers it is empty."""
    parts = [f"# {inline(document.title)}"]
    for block in document.blocks:
        parts += _block(block, say)
    return "\n\n".join(parts) + "\n"


def _block(block: Block, say: Words) -> list[str]:
    match block:
        case Heading():
            return ["#" * block.level + " " + inline(block.text)]
        case Paragraph(kind="lead"):
            return [inline(block.text)]
        case Paragraph(kind="note"):
            return ["> " + inline(block.text)]
        case Paragraph():
            return [inline(block.text)]
        case Bullets():
            return ["\n".join(f"- {inline(item)}" for item in block.items)]
        case Table():
            cells = [[cell.text for cell in row] for row in block.rows]
            return [table(block.columns, cells, block.right), *([inline(block.caption)] if block.caption else [])]
        case Commands():
            return [fenced("\n".join(block.lines), "sh")]
        case Forest():
            return [fenced(_forest(block)), inline(block.text_caption)]
        case Curves():
            return [inline(block.text_caption), _curves(block, say)]
        case Example():
            quotes = [*([block.prompt] if block.prompt else []), *block.answers]
            return [f"**{inline(block.title)}**", *(text for quote in quotes for text in _quote(quote, say))]
        case Fold():
            return [f"### {inline(block.title)}", *(text for inner in block.blocks for text in _block(inner, say))]
        case Cards():
            return [text for group in block.groups for inner in group for text in _block(inner, say)]
        case Explanation():
            return [f"{BEGIN}\n{END}"]


def _quote(quote: Quote, say: Words) -> list[str]:
    return [inline(say("labelled", label=quote.label)), fenced(quote.text, "text")]


def inline(text: str, *, in_cell: bool = False) -> str:
    """One line in which only our own marks format; addresses are broken so that no viewer makes links of them."""
    text = text if isinstance(text, Marked) else one_line(text)
    parts = re.split(f"({CODE}[^{END_CODE}]*{END_CODE})", text)
    done = "".join(_code(p[1:-1], in_cell=in_cell) if p.startswith(CODE) else _escaped(p) for p in parts)
    if in_cell:
        return done
    return "\\" + done if re.match(r"[#+=>\[-]", done) else re.sub(r"^(\d+)([.)])(?=\s|$)", r"\1\\\2", done)


def _escaped(text: str) -> str:
    text = text.replace("&", "&amp;")
    text = _SPECIAL.sub(lambda m: m[1] or {"<": "&lt;", ">": "&gt;"}.get(m[0], "\\" + m[0]), text)
    text = re.sub(r":(?=[\w+-]+:)", "&#58;", text)  # no emoji names
    text = re.sub(r"(?i)\b(www)\.", r"\1&#46;", text).replace("://", ":&#47;&#47;")
    text = re.sub(r"(?<=[\w.+-])@(?=[\w-]+\.\w)", "&#64;", text)
    return text.replace(STRONG, "**").replace(END_STRONG, "**")


def _code(text: str, *, in_cell: bool) -> str:
    ticks = "`" * (longest_run(text) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    if in_cell:
        text = text.replace("|", "\\|")  # a pipe ends a cell even inside code
    return f"{ticks}{pad}{text}{pad}{ticks}"


def longest_run(text: str) -> int:
    """The longest run of backticks."""
    return max(map(len, re.findall("`+", text)), default=0)


def fenced(text: str, kind: str = "text") -> str:
    """A code block that ``text`` cannot end: its fence is longer than any run of backticks inside.

    A line that this file takes for a marker of its own is written with its first character spelled out.
    """
    shown = visible(text).replace("<!-- rlforge:", "\\x3c!-- rlforge:")
    fence = "`" * max(3, longest_run(shown) + 1)
    return f"{fence}{kind}\n{shown.rstrip(chr(10))}\n{fence}"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[int] = frozenset()) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cells) + " |"

    rule = ["---:" if index in right else "---" for index in range(len(columns))]
    body = [[inline(cell, in_cell=True) for cell in row] for row in rows]
    return "\n".join([line([inline(name) for name in columns]), line(rule), *map(line, body)])


def _forest(block: Forest) -> str:
    scale = Scale(limit=scale_of(block).high, margin=block.margin, width=BAR_WIDTH)
    width = max(len(row.run) for row in block.rows)
    lines = [" " * (width + 2) + axis(scale).rstrip()]
    for row in block.rows:
        drawn = bar(row.ci95, row.delta, scale) if row.ci95 is not None and row.delta is not None else ""
        lines.append(f"{one_line(row.run):<{width}}  {drawn:<{BAR_WIDTH}}  {row.word}".rstrip())
    return "\n".join([*lines, "", one_line(block.axis)])


def _curves(block: Curves, say: Words) -> str:
    rows = [
        [*(cell.text for cell in row), spark(series)] for row, series in zip(block.table.rows, block.rows, strict=True)
    ]
    return table([*block.table.columns, say("col_curve")], rows, block.table.right)


def spark(series: Series) -> str:
    """The smoothed curve in a row of bars, between its own lowest and highest value; a blank where it broke.

    Example: ``"▁▂▃▅▆▇██"``.
    """
    import numpy as np

    y = smoothed(series)
    finite = y[np.isfinite(y)]
    if len(finite) == 0:
        return ""
    low, high = float(finite.min()), float(finite.max())
    edges = np.linspace(0, len(y), min(SPARK_WIDTH, len(y)) + 1).astype(int)
    text = ""
    for start, end in pairwise(edges.tolist()):
        part = y[start:end]
        part = part[np.isfinite(part)]
        level = 0.0 if high == low else (float(part.mean()) - low) / (high - low) if len(part) else 0.0
        text += SPARKS[round(level * (len(SPARKS) - 1))] if len(part) else " "
    return text
