"""What to spend GPU hours on next: the fixed order, with what these runs say to each step and commands to paste.

Order: baseline, reward, learning rate, dynamic sampling, harder data, and only then G and temperature.
"""

from __future__ import annotations

import math
import shlex
from typing import Any

from rlforge_cli.report import numbers
from rlforge_cli.report.blocks import Block, Commands, Heading, Paragraph
from rlforge_cli.report.conclusion import baseline, grader_measured
from rlforge_cli.report.facts import Facts, Subject
from rlforge_cli.report.series import read, start_and_end
from rlforge_cli.report.text import Marked, code
from rlforge_cli.report.words import Words

CLIP_HIGH = 0.2
"""Share of clipped tokens above which the learning rate is too high."""
CLIP_LOW = 0.001
ADV_LOW = 0.8
"""Spread of the advantages over all generated groups below which the problems teach too little."""
FRESH_SEEDS = 3
CEILING_SAMPLES = 8


class Step:
    """One step: what it is, what the runs say to it, and commands."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.texts: list[str] = []
        self.commands: list[str] = []


def next_steps(facts: Facts, say: Words) -> list[Block]:
    steps = [
        _baseline(facts, say), _reward(facts, say), _learning_rate(facts, say), _dynamic_sampling(facts, say),
        _harder(facts, say), _group_and_temperature(facts, say), _ceiling(facts, say), _transfer(facts, say),
    ]  # fmt: skip
    blocks: list[Block] = [Paragraph(say("next_intro"))]
    for number, step in enumerate(steps, 1):
        blocks.append(Heading(say("next_heading", number=number, title=say(step.key)), level=3))
        if step.texts:
            blocks.append(Paragraph(Marked(say.raw("between_sentences").join(step.texts))))
        if step.commands:
            blocks.append(Commands(list(dict.fromkeys(step.commands))))
    return blocks


def start_from(facts: Facts) -> Subject:
    """The run that further experiments change: the best one that is shown to be better, else the control."""
    return facts.best if facts.best.row.verdict == "better" else facts.control


def command(facts: Facts, *words: object) -> str:
    where = [] if str(facts.runs_dir) == "runs" else ["--runs-dir", str(facts.runs_dir)]
    return shlex.join(["rlforge", *map(str, words), *where])


def _train(facts: Facts, *words: object) -> str:
    return command(facts, "train", "--from", start_from(facts).name, *words)


def _end(subject: Subject, key: str) -> float | None:
    ends = start_and_end(read(subject.records, key))
    return ends[1] if ends is not None and math.isfinite(ends[1]) else None


def _baseline(facts: Facts, say: Words) -> Step:
    step = Step("next_baseline")
    base = baseline(facts)
    if base is None:
        step.texts.append(say("next_baseline_missing"))
        step.commands.append(command(facts, "eval", facts.control.name, "--checkpoint", "base"))
    else:
        step.texts.append(say("next_baseline_done", score=numbers.percent(base["accuracy"])))
    for subject in facts.subjects:
        if subject.row.accuracy is not None:
            continue
        if subject.status == "completed":
            step.commands.append(command(facts, "eval", subject.name))
        elif subject.status in ("crashed", "failed", "interrupted"):
            step.commands.append(command(facts, "train", "--resume", subject.name))
    if step.commands[base is None :]:
        step.texts.append(say("next_unscored"))
    best = facts.best
    if best.row.verdict == "better" and best.row.n_seeds == 1:
        step.texts.append(say("next_confirm", run=code(best.name), n=FRESH_SEEDS))
        step.commands.append(command(facts, "seeds", best.name, "--n", FRESH_SEEDS, "--control", facts.control.name))
    open_arms: dict[str, list[str]] = {}
    for arm in facts.arms:
        if arm.row.needed is not None:
            open_arms.setdefault(arm.row.needed["text"], []).append(code(arm.name))
            if arm.row.needed["command"]:
                step.commands.append(arm.row.needed["command"])
    step.texts += [say("next_needed", runs=say.join(names), text=say.sentence(t)) for t, names in open_arms.items()]
    return step


def _reward(facts: Facts, say: Words) -> Step:
    step = Step("next_reward")
    control = start_from(facts)
    keys = dict.fromkeys(key for record in control.records for key in record if key.startswith("reward/"))
    parts = [
        say("next_part", name=code(key), value=numbers.plain(value))
        for key in keys
        if (value := _end(control, key)) is not None
    ]
    if parts:
        step.texts.append(say("next_reward_parts", run=code(control.name), parts=say.join(list(parts))))
    weight, format_end = control.head.config.get("reward.format"), _end(control, "reward/format")
    if isinstance(weight, (int, float)) and weight > 0 and format_end is not None and format_end >= 0.95 * weight:
        step.texts.append(say("next_format_full", share=numbers.percent(format_end / weight)))
    truncated = _end(control, "truncated_fraction")
    if truncated is not None:
        step.texts.append(say("next_truncated", share=numbers.percent(truncated)))
    step.texts.append(say("next_checklist", file=code(control.run.rollouts_file)))
    scored = dict.fromkeys(s.name for s in (facts.control, facts.best) if s.row.accuracy is not None)
    if scored and not grader_measured(facts):
        step.texts.append(say("next_audit"))
        step.commands += [command(facts, "audit", name) for name in scored]
    return step


def _learning_rate(facts: Facts, say: Words) -> Step:
    step = Step("next_lr")
    subject = start_from(facts)
    clip, lr = _end(subject, "clip_fraction"), subject.head.config.get("optimizer.lr")
    updates = subject.head.config.get("grpo.updates", 1)
    factor = 2.0
    if clip is None:
        step.texts.append(say("next_lr_unknown"))
    elif clip > CLIP_HIGH:
        factor = 0.5
        step.texts.append(say("next_lr_high", run=code(subject.name), clip=numbers.percent(clip)))
    elif updates == 1 and clip == 0:
        step.texts.append(say("next_lr_on_policy", run=code(subject.name)))
    else:
        key = "next_lr_low" if clip < CLIP_LOW else "next_lr_fine"
        step.texts.append(say(key, run=code(subject.name), clip=numbers.percent(clip)))
    if isinstance(lr, float) and clip is not None:
        step.commands.append(_train(facts, "--set", f"lr={factor * lr:g}", "--equal-steps"))
    return step


def _dynamic_sampling(facts: Facts, say: Words) -> Step:
    step = Step("next_dynamic")
    tried = [s for s in facts.subjects if s.head.config.get("rollout.oversample")]
    dead = _end(start_from(facts), "zero_std_fraction")
    if dead is not None:
        step.texts.append(say("next_dead", run=code(start_from(facts).name), share=numbers.percent(dead)))
    if tried:
        runs = [
            Marked(code(s.name) + say("in_brackets", text=say(f"verdict_{s.row.verdict or 'control'}"))) for s in tried
        ]
        step.texts.append(say("next_dynamic_tried", runs=say.join(list(runs))))
    else:
        step.texts.append(say("next_dynamic_untried"))
        step.commands.append(_train(facts, "--set", "oversample=1.5", "--equal-samples"))
    return step


def _harder(facts: Facts, say: Words) -> Step:
    step = Step("next_harder")
    subject = start_from(facts)
    spread = _end(subject, "adv_std_generated")
    spread = _end(subject, "adv_std") if spread is None else spread
    if spread is None:
        step.texts.append(say("next_adv_unknown"))
        return step
    key = "next_adv_low" if spread < ADV_LOW else "next_adv_fine"
    step.texts.append(say(key, run=code(subject.name), value=numbers.plain(spread), limit=f"{ADV_LOW:g}"))
    return step


def _group_and_temperature(facts: Facts, say: Words) -> Step:
    step = Step("next_group")
    config = start_from(facts).head.config
    size, temperature = config.get("rollout.group_size"), config.get("rollout.temperature", 1.0)
    step.texts.append(say("next_group_rule", size=size if isinstance(size, int) else "?"))
    tried = [s.head.config.get("rollout.group_size") for s in facts.subjects]
    if isinstance(size, int) and 2 * size not in tried:
        step.commands.append(_train(facts, "--set", f"G={2 * size}", "--equal-samples"))
    if isinstance(temperature, float) and all(
        s.head.config.get("rollout.temperature", 1.0) == temperature for s in facts.subjects
    ):
        step.commands.append(_train(facts, "--set", f"T={temperature + 0.1:g}", "--equal-steps"))
    return step


def _ceiling(facts: Facts, say: Words) -> Step:
    step = Step("next_ceiling")
    ceiling = None
    for subject in facts.subjects:
        values: Any = subject.evaluation(f"-base-x{CEILING_SAMPLES}").get("pass_at_k")
        value = values.get(str(CEILING_SAMPLES)) if isinstance(values, dict) else None
        ceiling = value if ceiling is None and isinstance(value, float) else ceiling
    if ceiling is not None:
        step.texts.append(say("next_ceiling_known", k=CEILING_SAMPLES, value=numbers.percent(ceiling)))
        return step
    step.texts.append(say("next_ceiling_unknown", k=CEILING_SAMPLES))
    words = ("--checkpoint", "base", "--samples", CEILING_SAMPLES, "--k", 1, "--k", CEILING_SAMPLES)
    step.commands.append(command(facts, "eval", facts.control.name, *words))
    return step


def _transfer(facts: Facts, say: Words) -> Step:
    step = Step("next_transfer")
    best = facts.best
    sets = [word for c in best.row.changes for word in ("--set", f"{c['key']}={_value(c.get('to'))}")]
    if best.row.verdict != "better" or not sets:
        step.texts.append(say("next_transfer_nothing"))
        return step
    step.texts.append(say("next_transfer_best", run=code(best.name)))
    step.commands.append(command(facts, "train", "--preset", "qwen3-1.7b-lora"))
    step.commands.append(command(facts, "train", "--preset", "qwen3-1.7b-lora", *sets, "--equal-samples"))
    return step


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
