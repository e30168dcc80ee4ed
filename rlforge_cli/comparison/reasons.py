"""The sentences beside a verdict: what it rests on, and what else differed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlforge_cli.comparison.arms import Arm
from rlforge_cli.comparison.changes import same_budget
from rlforge_cli.comparison.entries import Entry
from rlforge_cli.comparison.measure import Measured, PooledNoise
from rlforge_cli.comparison.mechanism import GAUGES, Mechanism
from rlforge_cli.comparison.options import Options
from rlforge_cli.comparison.samples import Scores
from rlforge_cli.comparison.tipping import Tipping
from rlforge_cli.stats import Decision, equivalent

SEED_NOISE_POINTS = 3.0
"""How far three seeds of one configuration ranged in the reference experiment."""


def arm_reasons(arm: Arm, mechanism: Mechanism) -> list[str]:
    """What to know about one arm, control or not."""
    reasons = list(arm.notes)
    chosen_on_test = [e.head.name for e in arm.entries if e.head.summary.get("chosen_on") == "test"]
    if chosen_on_test:
        reasons.append(
            f"{', '.join(chosen_on_test)}: the checkpoint was chosen on test, which gains 0.9-1.4 pp for free; "
            "choose on validation"
        )
    broken = [name for name in GAUGES if (value := getattr(mechanism, name)) is not None and value != value]
    if broken:
        reasons.append(f"not finite in the last tenth of the steps: {', '.join(broken)}")
    first = arm.named.scores
    twins = [e.head.name for e in arm.entries[1:] if first is not None and _same_results(first, e)]
    if twins:
        reasons.append(
            f"{', '.join(twins)} answered every item as {arm.named.head.name} did, which another seed should not: "
            "did the seed reach the sampler?"
        )
    if not arm.named.head.finished and arm.problem is None:
        reasons.append(f"the run was {arm.named.head.info.get('status')}: this compares a checkpoint of it")
    return reasons


def unlike_training(
    control: Arm, arm: Arm, changes: Sequence[dict[str, Any]], *, before: Mechanism, after: Mechanism
) -> list[str]:
    """More than one variable changed, other rewards, other budgets, checkpoints chosen differently."""
    reasons = []
    keys = [str(change["key"]) for change in changes]
    if len(keys) > 1:
        reasons.append(f"{len(keys)} variables changed ({', '.join(keys)}): the difference is not attributable to one")
    if any(key.startswith("reward.") for key in keys):
        reasons.append("other rewards: compare the components and the test score, not the reward curves")
    a, b = before.completions, after.completions
    if a and b and math.isfinite(a + b) and not same_budget(a, b):
        reasons.append(f"unequal sample budgets: {b:,.0f} completions generated against {a:,.0f} ({b / a:.2f}x)")
    chosen = [part.named.head.summary.get("chosen_on", ...) for part in (control, arm)]
    if ... not in chosen and chosen[0] != chosen[1]:
        how = " and ".join("not chosen" if on is None else f"chosen on {on}" for on in chosen)
        reasons.append(f"checkpoints picked differently ({how})")
    return reasons


def _same_results(first: Scores, entry: Entry) -> bool:
    return entry.scores is not None and np.array_equal(first.right, entry.scores.reordered(first.ids).right)


def below_seed_noise(delta_pp: float) -> list[str]:
    if abs(delta_pp) >= SEED_NOISE_POINTS:
        return []
    return [f"a difference below the seed noise alone ({SEED_NOISE_POINTS:g} points) is never worth a conclusion"]


def verdict_reasons(
    control: Arm,
    arm: Arm,
    measured: Measured,
    decision: Decision,
    *,
    options: Options,
    pooled: PooledNoise,
    tipping: Tipping | None,
    p_adjusted: float,
    grader_error: float,
) -> list[str]:
    """What the verdict rests on."""
    reasons = []
    if measured.seed_source is not None:
        reasons.append(measured.seed_source)
    if _identical(control, arm):
        reasons.append("identical results on every item: the same checkpoint?")
    if grader_error:
        reasons.append(f"the verdict allows for a grader error of {grader_error:.2f} pp")
    low, high = measured.contrast.interval(options.alpha)
    if options.rule == "simple":
        return reasons + below_seed_noise(100 * measured.contrast.delta)
    if decision.verdict not in ("better", "worse") and (low > 0 or high < 0):
        if p_adjusted >= options.alpha > measured.p:
            adjusted = f"p = {measured.p:.4f} is {p_adjusted:.4f} once adjusted for the number of runs"
            reasons.append(f"the interval leaves out 0, but {adjusted}")
        elif p_adjusted >= options.alpha:
            reasons.append(f"the interval leaves out 0, but the exact test does not (p = {measured.p:.4f})")
    inside = equivalent(measured.contrast.interval(2 * options.alpha), margin=(options.margin - grader_error) / 100)
    if decision.verdict == "inconclusive" and inside:
        reasons.append("the 90 % interval lies inside the margin, but too few problems differ for that to be sure")
    if decision.below_margin:
        reasons.append(f"a real difference, shown to be smaller than {options.margin:g} pp")
    unmeasured = options.scope == "recipe" and not pooled.measured and min(len(control.entries), len(arm.entries)) == 1
    if unmeasured and decision.verdict in ("better", "worse"):
        reasons.append(
            "one seed and no seed noise measured: were its SD 3 pp, about one in four comparisons of equal recipes "
            "would give a verdict"
        )
    if tipping is not None:
        reasons += [text for text in (tipping.sentence, tipping.warning) if text is not None]
    return reasons


def _identical(a: Arm, b: Arm) -> bool:
    """Whether two arms answered every item equally often rightly, run by run."""
    if len(a.entries) != len(b.entries) or a.named.scores is None:
        return False
    pairs = [(x.scores, y.scores) for x, y in zip(a.entries, b.entries, strict=True)]
    return all(x is not None and y is not None and np.array_equal(x.right, y.reordered(x.ids).right) for x, y in pairs)
