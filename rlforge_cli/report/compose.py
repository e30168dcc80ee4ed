"""The report as blocks, in the order in which a reader asks: what came out, how sure, of what, why, and what next."""

from __future__ import annotations

from collections.abc import Callable

from rlforge_cli import __version__
from rlforge_cli.report.blocks import Block, Document, Explanation, Heading, Paragraph
from rlforge_cli.report.conclusion import conclusion, resolution, task
from rlforge_cli.report.curves import curves
from rlforge_cli.report.evidence import evidence
from rlforge_cli.report.examples import examples
from rlforge_cli.report.facts import Facts, Subject
from rlforge_cli.report.next_steps import command, next_steps
from rlforge_cli.report.runs_table import forest, notes, table
from rlforge_cli.report.text import code, one_line
from rlforge_cli.report.words import Words


def compose(facts: Facts, say: Words) -> Document:
    title = say("title", task=_each(facts, task), model=_each(facts, _model), device=_each(facts, _device))
    return Document(
        lang=say.lang,
        title=title,
        blocks=[
            *_section("conclusion", conclusion(facts, say), say),
            *_section("resolution", resolution(facts, say), say),
            *_section("runs", table(facts, say), say),
            *_section("differences", [*forest(facts, say), *notes(facts, say)], say),
            *_section("curves", curves(facts, say), say),
            *_section("evidence", evidence(facts, say), say),
            *_section("explanation", [Explanation()], say),
            *_section("next", next_steps(facts, say), say),
            *_section("flips", examples(facts, say), say),
            *_section("how", [_how(facts, say)], say),
        ],
    )


def _section(name: str, blocks: list[Block], say: Words) -> list[Block]:
    return [Heading(say(f"section_{name}"), anchor=name), *blocks]


def _each(facts: Facts, read: Callable[[Subject], str]) -> str:
    """What the runs say, each thing once."""
    values = list(dict.fromkeys(one_line(read(subject)) for subject in facts.subjects))
    return " / ".join([value for value in values if value != "?"] or values)


def _model(subject: Subject) -> str:
    config = subject.head.config
    adaptation = config.get("model.adaptation", "full")
    name = str(config.get("model.path", "?"))
    return name if adaptation == "full" else f"{name} + {adaptation}"


def _device(subject: Subject) -> str:
    return str(subject.head.info.get("device", "?"))


def _how(facts: Facts, say: Words) -> Block:
    words = [subject.name for subject in facts.subjects]
    line = command(facts, "report", *words, *([] if say.lang == "en" else ["--lang", say.lang]))
    return Paragraph(say("made_by", version=__version__, command=code(line)), kind="small")
