"""The table of the runs, the forest plot of their differences, and what each verdict rests on."""

from __future__ import annotations

from rlforge_cli.comparison import cells
from rlforge_cli.report import numbers
from rlforge_cli.report.blocks import Block, Bullets, Cell, Difference, Forest, Paragraph, Table
from rlforge_cli.report.conclusion import how
from rlforge_cli.report.facts import Facts, Subject
from rlforge_cli.report.text import Marked, code
from rlforge_cli.report.words import Words


def label(subject: Subject) -> str:
    return subject.name + (f" ×{subject.row.n_seeds}" if subject.row.n_seeds > 1 else "")


def verdict(subject: Subject, facts: Facts, say: Words) -> str:
    row = subject.row
    if row.verdict is None:
        return say("verdict_control")
    below = say("below_margin", margin=f"{facts.comparison.margin_pp:g}") if row.below_margin else ""
    return Marked(say(f"verdict_{row.verdict}") + below)


def table(facts: Facts, say: Words) -> list[Block]:
    rows = [_row(subject, facts, say) for subject in facts.subjects]
    gauges = ("zero_std", "length", "adv_std", "kl", "clip", "completions")
    names = [*("run", "change", "test", "delta", "verdict"), *gauges]
    seeds = [
        say("seeds_of", run=code(s.name), runs=say.join([code(name) for name in s.row.runs]))
        for s in facts.subjects
        if s.row.n_seeds > 1
    ]
    blocks: list[Block] = [
        Table(
            columns=[say(f"col_{name}") for name in names],
            rows=rows,
            right=frozenset({2, 3, *range(5, len(names))}),
            caption=say("table_caption", how=how(facts.control, say)),
        )
    ]
    return blocks + ([Paragraph(say.join(seeds), kind="small")] if seeds else [])


def _row(subject: Subject, facts: Facts, say: Words) -> list[Cell]:
    row, inside = subject.row, subject.row.mechanism
    if row.verdict is None:
        difference = Cell(numbers.ABSENT)
    elif row.delta_pp is None:
        reason = row.reasons[0] if row.reasons else say("no_result")
        difference = Cell(say.sentence(reason), quiet=True)
    else:
        ends = f" {numbers.interval(row.delta_ci95_pp)}" if row.delta_ci95_pp is not None else ""
        difference = Cell(numbers.points(row.delta_pp) + ends)
    return [
        Cell(label(subject)),
        Cell(cells.change(row) or numbers.ABSENT),
        Cell(cells.score(row).replace("±", "± ") if row.accuracy is not None else numbers.ABSENT),
        difference,
        Cell(verdict(subject, facts, say), verdict=row.verdict or "control"),
        Cell(numbers.percent(inside.zero_std_fraction, unit=False)),
        Cell(numbers.plain(inside.completion_length)),
        Cell(numbers.plain(inside.adv_std)),
        Cell(numbers.plain(inside.kl_ref)),
        Cell(numbers.percent(inside.clip_fraction, unit=False)),
        Cell(numbers.count(inside.completions)),
    ]


def forest(facts: Facts, say: Words) -> list[Block]:
    if not facts.arms:
        return [Paragraph(say("forest_none"))]
    rows = [
        Difference(
            run=label(arm),
            change=cells.change(arm.row) or say("no_change"),
            numbers=f"{numbers.points(arm.row.delta_pp)} {numbers.interval(arm.row.delta_ci95_pp)}"
            if arm.row.delta_ci95_pp is not None
            else numbers.points(arm.row.delta_pp),
            verdict=arm.row.verdict or "control",
            word=verdict(arm, facts, say),
            delta=arm.row.delta_pp,
            ci95=arm.row.delta_ci95_pp,
            ci90=arm.row.delta_ci90_pp,
        )
        for arm in facts.arms
    ]
    margin = facts.comparison.margin_pp
    caption = say("forest_caption", control=code(facts.control.name), margin=f"{margin:g}")
    text = say("forest_caption_text", control=code(facts.control.name), margin=f"{margin:g}")
    axis = say("forest_axis", control=facts.control.name)
    return [Forest(rows=rows, margin=margin, axis=axis, caption=caption, text_caption=text)]


def notes(facts: Facts, say: Words) -> list[Block]:
    """Each sentence of ``compare`` once, with the runs it is about; then what holds for all; then damaged files."""
    about: dict[str, list[str]] = {}
    for subject in facts.subjects:
        for reason in subject.row.reasons:
            about.setdefault(reason, []).append(subject.name)
    items: list[str] = []
    everyone = [arm.name for arm in facts.arms]
    for reason, names in about.items():
        who = say("all_arms") if len(names) > 2 and names == everyone else say.join([code(name) for name in names])
        items.append(say("note_about", runs=who, reason=say.sentence(reason)))
    items += [say.sentence(note) for note in facts.comparison.notes]
    items += [say("note_warning", text=say.sentence(warning)) for warning in facts.comparison.warnings]
    return [Bullets(items)] if items else []
