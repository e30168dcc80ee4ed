"""What a report consists of, before it is Markdown or HTML. Texts may hold marks (:mod:`rlforge_cli.report.text`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from rlforge_cli.comparison.bar import Interval
from rlforge_cli.report.series import Series

Kind = Literal["plain", "lead", "note", "small"]


class Heading(msgspec.Struct, frozen=True):
    """``anchor`` only where the table of contents leads there."""

    text: str
    level: int = 2
    anchor: str = ""


class Paragraph(msgspec.Struct, frozen=True):
    text: str
    kind: Kind = "plain"


class Bullets(msgspec.Struct, frozen=True):
    items: Sequence[str]


class Cell(msgspec.Struct, frozen=True):
    """``verdict`` colours it; a ``quiet`` one repeats what stands elsewhere."""

    text: str
    verdict: str | None = None
    quiet: bool = False


class Table(msgspec.Struct, frozen=True):
    """Columns whose index is in ``right`` hold numbers."""

    columns: Sequence[str]
    rows: list[list[Cell]]
    right: frozenset[int] = frozenset()
    caption: str = ""


class Commands(msgspec.Struct, frozen=True):
    """Lines to paste into a shell."""

    lines: list[str]


class Difference(msgspec.Struct, frozen=True):
    """One row of the forest plot, in points; without an interval, ``numbers`` says why."""

    run: str
    change: str
    numbers: str
    verdict: str
    word: str
    delta: float | None = None
    ci95: Interval | None = None
    ci90: Interval | None = None


class Forest(msgspec.Struct, frozen=True):
    rows: list[Difference]
    margin: float
    axis: str
    caption: str
    text_caption: str
    """For the picture in text."""


class Line(msgspec.Struct, frozen=True):
    """One run in a panel. ``colour``: 0 is the control's. ``more`` stands beside the label in the legend."""

    label: str
    colour: int
    series: Series
    more: str = ""


class Panel(msgspec.Struct, frozen=True):
    """One metric over all runs. ``unit``: "percent", or the word that stands beside the axis."""

    key: str
    title: str
    unit: str
    x_label: str
    lines: list[Line]
    note: str = ""


class Curves(msgspec.Struct, frozen=True):
    panels: list[Panel]
    legend: list[Line]
    caption: str
    text_caption: str
    table: Table
    """The same in numbers: run, start, end."""
    table_title: str
    rows: list[Series]
    """The curve of each row of the table."""


class Quote(msgspec.Struct, frozen=True):
    """Text of a model or a task under a label of ours."""

    label: str
    text: str


class Example(msgspec.Struct, frozen=True):
    """One flipped problem: what was asked, and what two runs said."""

    title: str
    prompt: Quote | None
    answers: list[Quote]


class Fold(msgspec.Struct, frozen=True):
    """Blocks that HTML shows on demand."""

    title: str
    blocks: list[Block]
    open: bool = False


class Cards(msgspec.Struct, frozen=True):
    """Groups of blocks that stand side by side where there is room."""

    groups: list[list[Block]]


class Explanation(msgspec.Struct, frozen=True):
    """Where the user's own words stand."""


Block = Heading | Paragraph | Bullets | Table | Commands | Forest | Curves | Example | Fold | Cards | Explanation


class Document(msgspec.Struct, frozen=True):
    lang: str
    title: str
    blocks: list[Block]
