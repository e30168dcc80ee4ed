"""What the metrics say about each run: every sentence names its metric and values, and claims no more."""

from __future__ import annotations

import math

import numpy as np

from rlforge_cli.report import numbers
from rlforge_cli.report.blocks import Block, Bullets, Cards, Heading, Paragraph
from rlforge_cli.report.conclusion import change
from rlforge_cli.report.curves import other_rewards, text
from rlforge_cli.report.facts import Facts, Subject
from rlforge_cli.report.series import Series, read, smoothed, start_and_end
from rlforge_cli.report.text import Marked, code
from rlforge_cli.report.words import Words
from rlforge_cli.stats import curve_trend

GAUGES = (
    "zero_std_fraction", "adv_std", "completion_length", "truncated_fraction", "accuracy", "kl_ref", "entropy",
    "clip_fraction",
)  # fmt: skip
GROWTH = 1.05
"""A length counts as grown from this ratio of end to start."""
ENTROPY_GONE = 0.02
"""Nats of entropy at the end below which sampling no longer explores."""
SIGNIFICANT = 0.05


def evidence(facts: Facts, say: Words) -> list[Block]:
    blocks: list[Block] = [Paragraph(say("evidence_intro"))]
    if other_rewards(facts):
        runs = say.join([code(name) for name in other_rewards(facts)])
        blocks.append(Paragraph(say("evidence_rewards", runs=runs), kind="note"))
    if on_policy(facts):
        blocks.append(Paragraph(say("evidence_on_policy")))
    groups: list[list[Block]] = []
    for subject in facts.subjects:
        role = say("verdict_control") if subject is facts.control else change(subject, say)
        heading = Heading(say("evidence_of", run=subject.name, change=role), level=3)
        groups.append([heading, Bullets(_sentences(subject, facts, say))])
    return [*blocks, Cards(groups)]


def on_policy(facts: Facts) -> bool:
    """Whether no run could clip: one update a rollout leaves every ratio at 1."""
    clips = [read(subject.records, "clip_fraction").finite for subject in facts.subjects]
    once = all(subject.head.config.get("grpo.updates", 1) == 1 for subject in facts.subjects)
    return once and any(len(clip) for clip in clips) and not any(clip.any() for clip in clips)


def _sentences(subject: Subject, facts: Facts, say: Words) -> list[str]:
    if not subject.records:
        return [say("ev_none")]
    items: list[str] = []
    missing: list[str] = []
    for key in GAUGES:
        if key == "clip_fraction" and on_policy(facts):
            continue
        series = read(subject.records, key)
        if start_and_end(series) is None:
            missing.append(code(key))
            continue
        items.append(_gauge(key, series, subject, facts, say))
    items.append(_budget(subject, facts, say))
    if missing:
        items.append(say("ev_missing", metrics=say.join(list(missing))))
    return [item for item in items if item]


def _gauge(key: str, series: Series, subject: Subject, facts: Facts, say: Words) -> Marked:
    ends = start_and_end(series)
    assert ends is not None
    unit = say("ev_tokens") if key == "completion_length" else ""
    parts: list[str] = [say("ev_change", metric=code(key), start=text(key, ends[0]), end=text(key, ends[1]) + unit)]
    if subject is not facts.control:
        other = start_and_end(read(facts.control.records, key))
        if other is not None:
            parts.append(say("ev_control", control=facts.control.name, end=text(key, other[1])))
    broken = len(series.y) - len(series.finite)
    parts.append(
        say("ev_broken", n=broken, of=len(series.y)) if broken else _reading(key, series, ends, subject, facts, say)
    )
    return Marked("".join(parts) + say("full_stop"))


def _reading(key: str, series: Series, ends: tuple[float, float], subject: Subject, facts: Facts, say: Words) -> str:
    """What the dashboard's rules make of a curve, where one of them applies."""
    start, end = ends
    if key == "zero_std_fraction":
        return say("ev_dead") if end > 0 and subject is facts.control else ""
    if key == "adv_std":
        lowest = float(smoothed(series).min())
        return say("ev_adv_alive" if lowest >= 1 else "ev_adv_low", low=numbers.plain(lowest))
    if key == "completion_length":
        return _length(start, end, subject, say)
    if key == "accuracy":
        return _trend(series, say)
    if key == "kl_ref":
        return _drift(series, subject, say)
    if key == "entropy":
        return say("ev_entropy_gone") if end < ENTROPY_GONE else ""
    return ""


def _length(start: float, end: float, subject: Subject, say: Words) -> str:
    accuracy = start_and_end(read(subject.records, "accuracy"))
    if accuracy is None or not all(map(math.isfinite, accuracy)) or start <= 0:
        return ""
    if end > GROWTH * start:
        return say("ev_length_healthy" if accuracy[1] > accuracy[0] else "ev_length_idle")
    return say("ev_length_shrunk") if end < start / GROWTH and accuracy[1] < accuracy[0] else ""


def _trend(series: Series, say: Words) -> str:
    trend = curve_trend(series.y)
    if trend.blocks < 4:
        return say("ev_short", blocks=trend.blocks)
    if trend.p >= SIGNIFICANT:
        return say("ev_no_trend", p=numbers.p_value(trend.p))
    return say("ev_rises" if trend.z > 0 else "ev_falls", p=numbers.p_value(trend.p))


def _drift(series: Series, subject: Subject, say: Words) -> str:
    """KL that grows while the reward does not."""
    reward = read(subject.records, "reward").y
    kl_trend, reward_trend = curve_trend(series.y), curve_trend(reward)
    if kl_trend.p >= SIGNIFICANT or kl_trend.z <= 0 or reward_trend.blocks < 4:
        return ""
    grows = reward_trend.p < SIGNIFICANT and reward_trend.z > 0
    flat = not grows and np.isfinite(reward).all()
    return say("ev_kl_with_reward") if grows else say("ev_kl_drift", p=numbers.p_value(reward_trend.p)) if flat else ""


def _budget(subject: Subject, facts: Facts, say: Words) -> str:
    inside, other = subject.row.mechanism, facts.control.row.mechanism
    if inside.completions is None:
        return ""
    key, ratio = "ev_budget", ""
    if subject is not facts.control and other.completions:
        key, ratio = "ev_budget_against", f"{inside.completions / other.completions:.2f}"
    wall = numbers.seconds(inside.wall_s)
    steps = subject.records[-1].get("step")
    return say(key, n=numbers.count(inside.completions), steps=steps, wall=wall, ratio=ratio)
