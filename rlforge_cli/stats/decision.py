"""From an interval and a p-value to one of five verdicts."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

import msgspec

from rlforge_cli.stats.distributions import Interval

Verdict = Literal["better", "worse", "no_material_difference", "inconclusive", "not_comparable"]


class Decision(msgspec.Struct, frozen=True):
    """A verdict, and whether a real difference was also shown to lie inside the margin."""

    verdict: Verdict
    below_margin: bool = False


def equivalent(interval: Interval, *, margin: float, grader_error: float = 0.0) -> bool:
    """Two one-sided tests at alpha: the 1 - 2 alpha ``interval``, widened by the grader error, lies inside the margin.

    Schuirmann, J. Pharmacokinetics and Biopharmaceutics 15 (1987) 657-680.
    """
    return -margin < interval[0] - grader_error and interval[1] + grader_error < margin


def decide(
    interval: Interval,
    equivalence_interval: Interval,
    *,
    p: float,
    margin: float,
    alpha: float = 0.05,
    grader_error: float = 0.0,
) -> Decision:
    """The decision of one comparison; every quantity but ``p`` and ``alpha`` in one unit (proportions or points).

    Args:
        interval: of B - A at confidence 1 - alpha, raw: the grader error is applied here.
        equivalence_interval: at 1 - 2 alpha, wide enough for few items (``Contrast.equivalence_interval``).
        p: adjusted for the number of runs compared. Both ``p`` and the interval must clear, so either one vetoes.
    """
    same = equivalent(equivalence_interval, margin=margin, grader_error=grader_error)
    if p < alpha and interval[0] - grader_error > 0:
        return Decision(verdict="better", below_margin=same)
    if p < alpha and interval[1] + grader_error < 0:
        return Decision(verdict="worse", below_margin=same)
    return Decision(verdict="no_material_difference" if same else "inconclusive")


def _simple(points: Fraction, margin: float) -> Decision:
    if abs(points) < Fraction(str(margin)):
        return Decision(verdict="no_material_difference")
    return Decision(verdict="better" if points > 0 else "worse")


def simple_rule(difference: int, total: int, *, margin: float) -> Decision:
    """The reference experiment's own rule on whole counts: 100 |difference| >= margin * total is a finding.

    ``difference`` of ``total`` right answers, ``margin`` in points. Exact: no float decides a tie at the margin.
    """
    return _simple(Fraction(100 * difference, total), margin)


def simple_rule_of_scores(a: float, b: float, *, margin: float) -> Decision:
    """The same rule on two accuracies (0..1), rounded to 1e-9 points since 57.9 - 53.9 is not 4.0 in floats."""
    return _simple(Fraction(str(round(100 * (b - a), 9))), margin)
