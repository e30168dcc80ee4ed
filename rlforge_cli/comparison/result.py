"""What a comparison found: one row an argument, in the shape that ``rlforge compare --json`` prints."""

from __future__ import annotations

from typing import Any

import msgspec

from rlforge_cli.comparison.mechanism import Mechanism
from rlforge_cli.stats import Verdict


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One run, file or arm against the control. Accuracies and their interval in 0..1, differences in points.

    Example: ``Row(run="run-08", accuracy=0.632, delta_pp=5.3, verdict="better", ...)``. The control has null deltas.
    """

    run: str
    n_items: int | None = None
    n_seeds: int = 1
    accuracy: float | None = None
    ci95: tuple[float, float] | None = None
    delta_pp: float | None = None
    delta_ci95_pp: tuple[float, float] | None = None
    delta_ci90_pp: tuple[float, float] | None = None
    discordant: tuple[int, int] | None = None
    """[only the control right, only this one right]; null unless both are one run of one answer a problem."""
    p: float | None = None
    p_adjusted: float | None = None
    verdict: Verdict | None = None
    """None for the control."""
    below_margin: bool = False
    reasons: list[str] = []
    needed: dict[str, Any] | None = None
    tipping_items: int | None = None
    """Exclusive wins that would have to be grading errors for significance to be lost."""
    disputed_wins: int | None = None
    """Exclusive wins on which the second grader disagrees; null where `rlforge audit` has not asked it."""
    changes: list[dict[str, Any]] = []
    accuracy_strict: float | None = None
    """By the asked format only."""
    accuracy_se: float | None = None
    """Over items, never over samples."""
    pass_at_k: dict[str, float] | None = None
    """Of several samples a problem: k (powers of two, and all of them) to the unbiased estimate."""
    delta_se_pp: float | None = None
    t: float | None = None
    """The statistic; null where the test is exact."""
    df: float | None = None
    """Degrees of freedom of ``t``; null where the test is exact, or z."""
    detectable_pp: float | None = None
    """The smallest difference between two checkpoints that these problems detect, 80 % power at the spread seen."""
    delta_strict_pp: float | None = None
    runs: list[str] = []
    """The runs of the arm; the first is the one that was named."""
    mechanism: Mechanism = Mechanism()


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A whole comparison; ``rows[0]`` is the control."""

    control: str
    scope: str
    margin_pp: float
    alpha: float
    rule: str
    grader_error_pp: float
    seed_sd_pp: float | None
    """Seed SD used where an arm has one seed; null at checkpoint scope."""
    seed_sd_source: str | None
    rows: list[Row]
    notes: list[str] = []
    """What holds for the whole comparison."""
    warnings: list[str] = []
    """About damaged files; not part of the result."""
