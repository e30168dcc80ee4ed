"""Which curves the report draws: one panel a metric, one line a run, over the same budget."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rlforge_cli.metrics import BY_NAME
from rlforge_cli.report import numbers
from rlforge_cli.report.blocks import Block, Cell, Curves, Line, Panel, Paragraph, Table
from rlforge_cli.report.conclusion import change
from rlforge_cli.report.facts import Facts, Subject
from rlforge_cli.report.series import number, read, start_and_end
from rlforge_cli.report.text import code
from rlforge_cli.report.words import Words

MOST_LINES = 9
"""The control and eight arms: more cannot be told apart."""
MOST_PARTS = 8
PART = "reward/"
AFTER_PARTS = (
    "accuracy", "val_accuracy", "completion_length", "truncated_fraction", "adv_std", "zero_std_fraction", "kl_ref",
    "entropy", "clip_fraction",
)  # fmt: skip
UNITS = {"completion_length": "tokens", "kl_ref": "nats", "entropy": "nats"}
PERCENT = frozenset({"accuracy", "val_accuracy", "truncated_fraction", "zero_std_fraction", "clip_fraction"})


def curves(facts: Facts, say: Words) -> list[Block]:
    """The panels with their legend, the same in numbers, and what must not be read into them."""
    drawn = [subject for subject in facts.subjects if subject.records][:MOST_LINES]
    if not drawn:
        return [Paragraph(say("curves_none"))]
    x = "completions_generated" if all(map(_counts_completions, drawn)) else "step"
    keys = metric_keys(drawn)
    panels = [panel for key in keys if (panel := _panel(key, drawn, x, facts, say))]
    shown = [panel for panel in panels if not _constant(panel)]
    flat = [
        say("flat", metric=code(panel.key), value=text(panel.key, _first(panel)))
        for panel in panels
        if _constant(panel)
    ]
    blocks: list[Block] = []
    if other_rewards(facts):
        runs = say.join([code(name) for name in other_rewards(facts)])
        blocks.append(Paragraph(say("curves_other_rewards", runs=runs), kind="note"))
    legend = [Line(s.name, facts.subjects.index(s), read([], ""), more=_role(s, facts, say)) for s in drawn]
    blocks.append(
        Curves(
            panels=shown,
            legend=legend,
            caption=say("curves_caption"),
            text_caption=say("curves_caption_text"),
            table=_table(panels, say),
            table_title=say("curves_table"),
            rows=[line.series for panel in panels for line in panel.lines],
        )
    )
    if any(subject.row.n_seeds > 1 for subject in drawn):
        blocks.append(Paragraph(say("curves_seeds"), kind="small"))
    if flat:
        blocks.append(Paragraph(say("flats", items=say.join(flat)), kind="small"))
    without = [s.name for s in facts.subjects if not s.records]
    beyond = [s.name for s in facts.subjects if s.records and s not in drawn]
    for key, names in (("curves_without", without), ("curves_beyond", beyond)):
        if names:
            blocks.append(Paragraph(say(key, runs=say.join([code(name) for name in names])), kind="small"))
    return blocks


def _role(subject: Subject, facts: Facts, say: Words) -> str:
    return say("verdict_control") if subject is facts.control else change(subject, say)


def other_rewards(facts: Facts) -> list[str]:
    """Arms whose reward is not the control's."""
    return [arm.name for arm in facts.arms if any(str(c.get("key")).startswith("reward.") for c in arm.row.changes)]


def _counts_completions(subject: Subject) -> bool:
    records = [record for record in subject.records if record.get("step") != 0]
    values = [number(record, "completions_generated") for record in records]
    return bool(values) and all(value is not None and math.isfinite(value) for value in values)


def metric_keys(subjects: Sequence[Subject]) -> list[str]:
    """Reward, its parts in the order in which they were first logged, then the gauges."""
    logged = dict.fromkeys(str(key) for s in subjects for record in s.records for key in record)
    parts = [key for key in logged if key.startswith(PART)]
    return ["reward", *parts[:MOST_PARTS], *AFTER_PARTS]


def _panel(key: str, subjects: Sequence[Subject], x: str, facts: Facts, say: Words) -> Panel | None:
    lines = []
    for subject in subjects:
        series = read(subject.records, key, x=x)
        if len(series.finite):
            lines.append(Line(label=subject.name, colour=facts.subjects.index(subject), series=series))
    if not lines:
        return None
    note = say("note_rewards_differ") if key == "reward" and other_rewards(facts) else ""
    unit = "percent" if key in PERCENT else say("unit_" + UNITS[key]) if key in UNITS else say("unit_none")
    return Panel(key=key, title=title(key, say), unit=unit, x_label=say(f"x_{x}"), lines=lines, note=note)


def title(key: str, say: Words) -> str:
    if say.knows(f"metric_{key}"):
        return say(f"metric_{key}")
    return say("metric_part", name=key.removeprefix(PART)) if key not in BY_NAME else key


def text(key: str, value: float | None) -> str:
    """A metric's value with its unit."""
    return numbers.percent(value) if key in PERCENT else numbers.plain(value)


def _first(panel: Panel) -> float:
    return float(panel.lines[0].series.finite[0])


def _constant(panel: Panel) -> bool:
    return all(bool((line.series.finite == _first(panel)).all()) for line in panel.lines)


def _table(panels: Sequence[Panel], say: Words) -> Table:
    rows = []
    for panel in panels:
        for index, line in enumerate(panel.lines):
            ends = start_and_end(line.series)
            assert ends is not None
            name = Cell(panel.title if index == 0 else "")
            rows.append([name, Cell(line.label), *(Cell(text(panel.key, value)) for value in ends)])
    columns = [say(f"col_{name}") for name in ("metric", "run", "start", "end")]
    return Table(columns=columns, rows=rows, right=frozenset({2, 3}))
