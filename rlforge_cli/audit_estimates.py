"""What a checked sample says about the grader, how closely, and how many more items would say it twice as closely."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from rlforge_cli.stats import bias_difference_bound
from rlforge_cli.stats.stratified import Stratum, allocate, ratio, weighted_sum

WIDTHS = ("bias", "sensitivity", "specificity")


def estimate(strata: Mapping[str, Stratum]) -> dict[str, Any]:
    """Sensitivity, specificity and bias with 95 % intervals, reweighted to all items.

    ``strata`` are those that hold items, named ``right`` (what the grader calls right) or otherwise. Bias in points
    (graded minus true accuracy), everything else in 0..1. ``grader_error_pp`` is what `rlforge compare` would allow for
    between two runs audited like this one.
    """
    graded = sum(s.weight for name, s in strata.items() if name == "right")
    true, (low, high) = weighted_sum([(s.weight, s) for s in strata.values()])
    graded_right = [s for name, s in strata.items() if name == "right"]
    graded_wrong = [s for name, s in strata.items() if name != "right"]
    sensitivity, sensitivity_ci = ratio(graded_right, graded_wrong)
    specificity, specificity_ci = ratio([s.denied() for s in graded_wrong], [s.denied() for s in graded_right])
    bias, bias_ci = 100 * (graded - true), (100 * (graded - high), 100 * (graded - low))
    return {
        "true_accuracy": true,
        "true_accuracy_ci95": [max(0.0, low), min(1.0, high)],
        "bias_pp": bias,
        "bias_ci95_pp": list(bias_ci),
        "grader_error_pp": bias_difference_bound(bias, bias_ci, bias, bias_ci),
        "sensitivity": sensitivity,
        "sensitivity_ci95": list(sensitivity_ci),
        "specificity": specificity,
        "specificity_ci95": list(specificity_ci),
    }


def widths(found: Mapping[str, Any]) -> dict[str, float]:
    """Of the three intervals, in points."""
    bias = found["bias_ci95_pp"][1] - found["bias_ci95_pp"][0]
    shares = {name: 100 * (found[f"{name}_ci95"][1] - found[f"{name}_ci95"][0]) for name in WIDTHS[1:]}
    return {"bias": bias, **shares}


def items_to_halve(strata: Mapping[str, Stratum]) -> dict[str, int]:
    """How many checked items in all would halve each interval, were their shares those seen so far."""
    sizes = {name: s.size for name, s in strata.items()}
    now = widths(estimate(strata))

    def enough(n: int, name: str) -> bool:
        counts = allocate(sizes, n)
        larger = {
            key: msgspec.structs.replace(s, asked=counts[key], yes=s.share * counts[key]) for key, s in strata.items()
        }
        return widths(estimate(larger))[name] <= now[name] / 2

    needed = {}
    for name in WIDTHS:
        low, high = sum(s.asked for s in strata.values()), sum(sizes.values())
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if enough(middle, name) else (middle, high)
        needed[name] = high
    return needed
