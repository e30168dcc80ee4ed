"""One difference judged: interval, p, verdict, and what would settle it."""

from __future__ import annotations

from typing import Any

from rlforge_cli.comparison.arms import Arm
from rlforge_cli.comparison.measure import Measured, PooledNoise, Unpaired
from rlforge_cli.comparison.needed import detectable, needed
from rlforge_cli.comparison.options import Options
from rlforge_cli.comparison.reasons import below_seed_noise, verdict_reasons
from rlforge_cli.comparison.scores import strict_delta
from rlforge_cli.comparison.tipping import tipping
from rlforge_cli.stats import Decision, Interval, TContrast, decide, simple_rule, simple_rule_of_scores


def points(interval: Interval) -> Interval:
    """In points; no difference is beyond 100."""
    return max(-100.0, 100 * interval[0]), min(100.0, 100 * interval[1])


def unpaired_verdict(control: Arm, arm: Arm, found: Unpaired, options: Options) -> dict[str, Any]:
    """Only the simple rule can speak about two bare scores."""
    a, b = control.accuracies, arm.accuracies
    if options.rule != "simple" or not a or not b:
        return {"verdict": "not_comparable", "reasons": [found.reason]}
    decision = _simple(control, arm, options)
    delta = 100 * (sum(b) / len(b) - sum(a) / len(a))
    reasons = [found.reason, *below_seed_noise(delta)]
    return {"delta_pp": delta, "verdict": decision.verdict, "reasons": reasons}


def verdict_of(
    control: Arm,
    arm: Arm,
    found: Measured,
    p_adjusted: float,
    *,
    options: Options,
    pooled: PooledNoise,
    error: float,
) -> dict[str, Any]:
    contrast = found.contrast
    statistical = decide(
        points(contrast.interval(options.alpha)),
        points(contrast.equivalence_interval(options.alpha)),
        p=p_adjusted,
        margin=options.margin,
        alpha=options.alpha,
        grader_error=error,
    )
    decision = statistical if options.rule == "stats" else _simple(control, arm, options)
    tips = tipping(control, arm, found, options)
    still_open = statistical.verdict == "inconclusive"
    reasons = verdict_reasons(
        control,
        arm,
        found,
        decision,
        options=options,
        pooled=pooled,
        tipping=tips,
        p_adjusted=p_adjusted,
        grader_error=error,
    )
    return {
        "delta_pp": 100 * contrast.delta,
        "delta_se_pp": 100 * contrast.se,
        "t": contrast.statistic if isinstance(contrast, TContrast) else None,
        "df": contrast.df if isinstance(contrast, TContrast) else None,
        "detectable_pp": detectable(control, found, options),
        "delta_ci95_pp": points(contrast.interval(0.05)),
        "delta_ci90_pp": points(contrast.interval(0.10)),
        "discordant": (found.table.only_a, found.table.only_b) if found.table is not None else None,
        "p": found.p,
        "p_adjusted": p_adjusted,
        "verdict": decision.verdict,
        "below_margin": decision.below_margin,
        "needed": needed(control, arm, found, options=options, noise=pooled.noise, grader_error=error)
        if still_open
        else None,
        "tipping_items": tips.items if tips is not None else None,
        "disputed_wins": tips.second.wins if tips is not None and tips.second is not None else None,
        "reasons": reasons,
        "delta_strict_pp": strict_delta(control, arm),
    }


def _simple(control: Arm, arm: Arm, options: Options) -> Decision:
    """The reference rule, on whole counts wherever the results are there."""
    totals = []
    for part in (control, arm):
        scores = [entry.scores for entry in part.entries if entry.scores is not None]
        if len(scores) < len(part.entries):
            a, b = (sum(p.accuracies) / len(p.accuracies) for p in (control, arm))
            return simple_rule_of_scores(a, b, margin=options.margin)
        totals.append((sum(int(s.right.sum()) for s in scores), sum(len(s.ids) * s.samples for s in scores)))
    (right_a, total_a), (right_b, total_b) = totals
    return simple_rule(right_b * total_a - right_a * total_b, total_a * total_b, margin=options.margin)
