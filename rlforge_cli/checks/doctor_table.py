"""Doctor's rules in order, each with how often it is wrong on runs in which nothing is."""
# ruff: noqa: E501 - a row a line

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rlforge_cli.checks import rules
from rlforge_cli.checks.check import Check, Finding, named
from rlforge_cli.checks.curves import Curves


class Rule(NamedTuple):
    """A rule of the dashboard."""

    judge: Callable[[Curves], Finding]
    asks: str
    reason: str

    @property
    def name(self) -> str:
        return self.judge.__name__


RULES = (
    Rule(rules.lost_run, "is the run lost: NaN, collapse of accuracy, KL runaway, no reward signal?", "what follows cannot be used; `train --stop-on-collapse` ends it"),
    Rule(rules.clip_fraction, "are many updates cut off at the clip?", "above 0.2 the learning rate is too high"),
    Rule(rules.signal, "is adv_std_generated low while entropy is normal?", "below 0.5 three groups in four are dead; raise the temperature or take harder (or easier) problems"),
    Rule(rules.entropy, "has entropy gone to 0 without the task being solved?", "below 0.01 nat nothing is explored any more"),
    Rule(rules.incoherent, "does entropy double while accuracy or format falls?", "text turns incoherent: back to temperature 1.0"),
    Rule(rules.kl_drift, "does the KL grow without reward?", "below 0.1 nat a token it does not matter"),
    Rule(rules.length, "does length grow by a quarter without accuracy?", "with accuracy it is healthy, and punishing it costs points"),
    Rule(rules.truncation, "are more and more answers cut off?", "at 0.3 the limit shapes what is learned"),
    Rule(rules.shortcut, "does reward rise while accuracy falls?", "another component is collected instead"),
    Rule(rules.saturation, "is the format learned and nothing else?", "95 % of the weight, below 0.1 accuracy, and no rise"),
    Rule(rules.train_eval_gap, "does validation fall while training problems get better?", "3.5 standard errors and 5 points"),
    Rule(rules.mismatch, "do engine and trainer drift apart?", "smoke's bound, and five times the start"),
    Rule(rules.repeated_rollouts, "do different problems get the same text?", "half of the sampled completions"),
    Rule(rules.ungraded, "are completions left without a grade or reward?", "more than 5 %"),
)  # fmt: skip
"""The rules of `rlforge doctor`."""


NOISE_RUNS = 2000
FALSE_ALARMS = {"kl_drift": 19, "length": 1}
"""Alarms that `make calibrate` counted on :data:`NOISE_RUNS` runs of 200 steps of AR(1) noise; of the others, none."""


def false_alarms(name: str) -> str:
    """Example: ``19 of 2000 runs of noise``."""
    return f"{FALSE_ALARMS.get(name, 0)} of {NOISE_RUNS} runs of noise"


def run_rules(run: Curves, *, chosen: Sequence[Rule] = RULES) -> list[Check]:
    """One check a rule, in order; ``pass`` is silent."""
    return [named(rule.name, rule.judge(run)) for rule in chosen]
