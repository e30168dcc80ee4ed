"""What an imperfect grader does to a difference."""

from __future__ import annotations

import math

from rlforge_cli.errors import UserError
from rlforge_cli.stats.distributions import Interval


def rogan_gladen(delta: float, *, sensitivity: float, specificity: float) -> float:
    """The true difference behind a measured one when the same grader errors hit both runs: delta / (Se + Sp - 1).

    Rogan and Gladen, American J. Epidemiology 107 (1978) 71-76.

    Raises:
        UserError: a grader no better than chance.
    """
    youden = sensitivity + specificity - 1
    if youden <= 0:
        raise UserError(
            f"a grader of sensitivity {sensitivity:g} and specificity {specificity:g} is no better than chance"
        )
    return delta / youden


def bias_difference_bound(a: float, ci_a: Interval, b: float, ci_b: Interval) -> float:
    """How far apart the grader's biases on two runs may be: the outer end of the interval of their difference.

    Bias = graded minus true accuracy, any one unit, each with its 95 % interval; the two intervals are combined by
    MOVER (Zou and Donner, Statistics in Medicine 27 (2008) 1693-1702).
    """
    delta = b - a
    low = delta - math.hypot(b - ci_b[0], ci_a[1] - a)
    high = delta + math.hypot(ci_b[1] - b, a - ci_a[0])
    return max(abs(low), abs(high))
