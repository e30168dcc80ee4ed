"""The section of flipped problems: the texts behind a difference, of the arms about which something is shown."""

from __future__ import annotations

from rlforge_cli.output import cropped
from rlforge_cli.report import numbers
from rlforge_cli.report.blocks import Block, Example, Fold, Heading, Paragraph, Quote
from rlforge_cli.report.conclusion import change
from rlforge_cli.report.facts import Facts, Subject
from rlforge_cli.report.flips import SHOWN, Answer, Flip, Flips, find_flips
from rlforge_cli.report.prompts import prompts_of
from rlforge_cli.report.text import code, shortened
from rlforge_cli.report.words import Words

SHOWN_LENGTH = 80
"""Of an id or an answer."""


def examples(facts: Facts, say: Words) -> list[Block]:
    """The best arm, and every other that is shown to be better or worse, each folded away but the first."""
    if not facts.judged:
        return [Paragraph(say("flips_none"))]
    best = max(facts.judged, key=lambda arm: arm.row.delta_pp or 0.0) if facts.best is facts.control else facts.best
    shown = [best, *(arm for arm in facts.judged if arm is not best and arm.row.verdict in ("better", "worse"))]
    blocks: list[Block] = [Paragraph(say("flips_intro", shown=SHOWN, control=code(facts.control.name)))]
    prompts = prompts_of(facts.control)
    for arm in shown:
        title = say("flips_of", run=arm.name, change=change(arm, say), control=facts.control.name)
        flips = find_flips(facts.control, arm, prompts=prompts)
        inside = [Paragraph(say("flips_unpaired"))] if flips is None else _both_ways(facts.control, arm, flips, say)
        blocks.append(Fold(title=title, blocks=[*inside], open=arm is best))
    return blocks


def _both_ways(control: Subject, arm: Subject, flips: Flips, say: Words) -> list[Block]:
    blocks: list[Block] = []
    if max(control.row.n_seeds, arm.row.n_seeds) > 1:
        blocks.append(Paragraph(say("flips_seeds", control=code(control.name), arm=code(arm.name)), kind="small"))
    ways = (("flips_won", flips.won, flips.won_count, arm), ("flips_lost", flips.lost, flips.lost_count, control))
    for key, part, count, winner in ways:
        values = {"count": numbers.count(count), "shown": len(part), "control": control.name, "run": arm.name}
        blocks.append(Heading(say(key, **values), level=4))
        for flip in part:
            answers = [
                _quote(subject, answer, say("right" if subject is winner else "wrong"), say)
                for subject, answer in ((control, flip.control), (arm, flip.arm))
            ]
            blocks.append(_example(flip, answers, say))
    return blocks


def _example(flip: Flip, answers: list[Quote], say: Words) -> Example:
    prompt = None
    if flip.prompt is not None:
        prompt = Quote(label=say("prompt"), text=shortened(flip.prompt, say.raw("left_out")))
    title = say("flip_title", id=cropped(flip.id, SHOWN_LENGTH), gold=cropped(flip.gold, SHOWN_LENGTH))
    return Example(title=title, prompt=prompt, answers=answers)


def _quote(subject: Subject, answer: Answer, word: str, say: Words) -> Quote:
    found = say("no_prediction")
    if answer.prediction is not None:
        found = say("prediction", value=cropped(answer.prediction, SHOWN_LENGTH))
    label = say("answer_of", run=subject.name, word=word, prediction=found)
    return Quote(label=label, text=shortened(answer.completion, say.raw("left_out")))
