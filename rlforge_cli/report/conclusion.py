"""The conclusion, said no more firmly than ``compare`` allows, and the resolution that it rests on."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from rlforge_cli.comparison import cells
from rlforge_cli.comparison.changes import same_budget
from rlforge_cli.report import numbers
from rlforge_cli.report.blocks import Block, Bullets, Paragraph
from rlforge_cli.report.facts import Facts, Subject
from rlforge_cli.report.series import number
from rlforge_cli.report.text import Marked, code, strong
from rlforge_cli.report.words import Words


def change(subject: Subject, say: Words) -> str:
    return cells.change(subject.row) or say("no_change")


def score(subject: Subject) -> str:
    """``57.9 % [55.2, 60.5]``."""
    row = subject.row
    ends = f" {numbers.interval(row.ci95, scale=100, digits=1)}" if row.ci95 is not None else ""
    return numbers.percent(row.accuracy) + ends


def of_seeds(subject: Subject, say: Words) -> str:
    return say("mean_of_seeds", n=subject.row.n_seeds) if subject.row.n_seeds > 1 else ""


def conclusion(facts: Facts, say: Words) -> list[Block]:
    """Baseline, control, best, what did it; then the other arms by verdict."""
    best = facts.best
    blocks: list[Block] = []
    base = baseline(facts)
    trained = best if best.row.verdict == "better" else facts.control
    if base and trained.row.accuracy is not None:
        gain = {"before": numbers.percent(base["accuracy"]), "after": numbers.percent(trained.row.accuracy)}
        blocks.append(Paragraph(say("headline", run=code(trained.name), **gain), kind="lead"))
    blocks.append(Paragraph(_join(_before(facts, base, say), _control(facts, say), say=say)))
    blocks.append(Paragraph(_best(facts, say)))
    others = [item for verdict in ("better", "worse", "no_material_difference", "inconclusive", "not_comparable")
              if (item := _others(facts, verdict, say))]  # fmt: skip
    if others:
        blocks.append(Bullets(others))
    return blocks


def baseline(facts: Facts) -> dict[str, Any] | None:
    """The summary of the untrained model on test, from whichever run it was evaluated in."""
    found = (subject.evaluation("-base") for subject in facts.subjects)
    return next((summary for summary in found if isinstance(summary.get("accuracy"), float)), None)


def _join(*sentences: str, say: Words) -> Marked:
    return Marked(say.raw("between_sentences").join(sentence for sentence in sentences if sentence))


def _before(facts: Facts, base: dict[str, Any] | None, say: Words) -> str:
    if base:
        ends = numbers.interval(base["ci95"], scale=100, digits=1) if _is_interval(base.get("ci95")) else ""
        return say("baseline", score=numbers.percent(base["accuracy"]), interval=ends, n=numbers.count(base.get("n")))
    first = facts.control.records[0] if facts.control.records else {}
    value = number(first, "val_accuracy") if first.get("step") == 0 else None
    return say("baseline_unknown") if value is None else say("baseline_validation", score=numbers.percent(value))


def _is_interval(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(end, float) for end in value)


def _control(facts: Facts, say: Words) -> str:
    control = facts.control
    if control.row.accuracy is None:
        reason = control.row.reasons[0] if control.row.reasons else say("no_result")
        return say("control_without", run=code(control.name), reason=say.sentence(reason))
    return say(
        "control_score", run=code(control.name), score=score(control) + of_seeds(control, say), how=how(control, say)
    )


def how(subject: Subject, say: Words) -> str:
    """``greedy pass@1 on 1,319 problems of gsm8k test``."""
    summary = subject.head.summary
    decoding = summary.get("decoding")
    temperature = decoding.get("temperature") if isinstance(decoding, dict) else None
    kind = say("score_unknown") if temperature is None else say("score_greedy" if temperature == 0 else "score_sampled")
    split = f"{summary.get('task', task(subject))} {summary.get('split', 'test')}"
    return say("how", kind=kind, n=numbers.count(subject.row.n_items), split=split)


def task(subject: Subject) -> str:
    return str(subject.head.config.get("data.task", subject.head.info.get("task", "?")))


def _best(facts: Facts, say: Words) -> str:
    best, control = facts.best, facts.control
    if not facts.arms:
        return say("best_alone")
    if control.row.accuracy is None or not facts.judged:
        return say("best_unjudged")
    if best is control:
        return say("best_is_control", run=code(control.name))
    row = best.row
    parts = {
        "run": code(best.name), "change": strong(change(best, say)), "score": score(best) + of_seeds(best, say),
        "delta": numbers.points(row.delta_pp), "interval": numbers.interval(row.delta_ci95_pp),
        "scope": say("scope_" + facts.comparison.scope),
    }  # fmt: skip
    if row.verdict != "better":
        key = "best_equal" if row.verdict == "no_material_difference" else "best_open"
        margin = f"{facts.comparison.margin_pp:g}"
        text = say(key, margin=margin, verdict=strong(say(f"verdict_{row.verdict}")), **parts)
        return _join(text, say("best_of_many", n=len(facts.judged)) if len(facts.judged) > 2 else "", say=say)
    count = len(row.changes)
    equal = same_budget(control.row.mechanism.completions, row.mechanism.completions)
    key = "did_it_many" if count > 1 else "did_it_unknown" if not count else "did_it_equal" if equal else "did_it_one"
    text = say("best_better", p=numbers.p_value(row.p_adjusted), **parts)
    small = say("best_small", margin=f"{facts.comparison.margin_pp:g}") if row.below_margin else ""
    alone = say("best_unconfirmed") if row.n_seeds == 1 else ""
    return _join(text, say(key, n=count, change=strong(change(best, say))), small, alone, say=say)


def _others(facts: Facts, verdict: str, say: Words) -> str:
    found = [arm for arm in facts.arms if arm.row.verdict == verdict and arm is not facts.best]
    if not found:
        return ""
    items = []
    for arm in found:
        numbers_of = "" if arm.row.delta_pp is None else f" {numbers.points(arm.row.delta_pp)}"
        text = cells.change(arm.row)
        items.append(Marked(code(arm.name) + (Marked(say("in_brackets", text=text)) if text else "") + numbers_of))
    return say(f"others_{verdict}", runs=say.join(items), margin=f"{facts.comparison.margin_pp:g}")


def resolution(facts: Facts, say: Words) -> list[Block]:
    """Which difference could be seen at all, and where each of its parts comes from."""
    result = facts.comparison
    items: list[str] = [
        say(
            "res_question",
            margin=f"{result.margin_pp:g}",
            alpha=f"{result.alpha:g}",
            scope=say("scope_" + result.scope),
        )
    ]
    if result.seed_sd_pp is not None:
        source = say.sentence(result.seed_sd_source or "")
        items.append(say("res_seed", sd=f"{result.seed_sd_pp:.2f}", source=source))
        if result.seed_sd_source and "no seeds measured" in result.seed_sd_source:
            items.append(say("res_unmeasured"))
    known = grader_measured(facts)
    items.append(say("res_grader", g=f"{result.grader_error_pp:.2f}") if known else say("res_no_grader"))
    halves = half_widths(facts.judged)
    if halves:
        values = {
            "low": f"{min(halves):.1f}",
            "high": f"{max(halves):.1f}",
            "median": f"{statistics.median(halves):.1f}",
        }
        items.append(say("res_reach" if len(halves) == 1 else "res_reaches", **values))
    if len(facts.judged) > 1:
        items.append(say("res_holm", n=len(facts.judged)))
    return [Bullets(items)]


def grader_measured(facts: Facts) -> bool:
    """Whether an audit on disk says how far the grader may favour a run."""
    return not any(note.startswith("grader error not measured") for note in facts.comparison.notes)


def half_widths(arms: Sequence[Subject]) -> list[float]:
    """Half the width of each arm's 95 % interval, in points."""
    ends = [arm.row.delta_ci95_pp for arm in arms]
    return [(pair[1] - pair[0]) / 2 for pair in ends if pair is not None]
