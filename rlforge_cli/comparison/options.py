"""What a comparison is asked to do."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from rlforge_cli.errors import UserError

Scope = Literal["recipe", "checkpoint"]
Rule = Literal["stats", "simple"]


SMALLEST_MARGIN = 0.01
SMALLEST_ALPHA = 1e-9
"""Below them the sample sizes that would be needed are beyond any count, and quantiles beyond any float."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Example: ``Options(scope="checkpoint", margin=4.0)``. Margin, grader error and seed SD are in points."""

    scope: Scope = "recipe"
    margin: float = 4.0
    alpha: float = 0.05
    grader_error: float | None = None
    """None: from an audit on disk, else 0."""
    seed_sd: float | None = None
    """None: from the arms' own seeds, else prior and disk pooled."""
    rule: Rule = "stats"
    evaluation: str = "test"
    """Name of the evaluation inside a run: ``evals/<name>.jsonl``."""
    filter: str | None = None
    """Filter of an lm-evaluation-harness log; None: flexible-extract, or the only one there is."""
    runs_dir: Path = Path("runs")

    def check(self) -> None:
        """Raises:
        UserError: a value outside its range.
        """
        if not SMALLEST_MARGIN <= self.margin <= 100:
            raise UserError(f"--margin {self.margin:g}: points between {SMALLEST_MARGIN:g} and 100, such as 4")
        if not SMALLEST_ALPHA <= self.alpha < 0.5:
            raise UserError(f"--alpha {self.alpha:g}: between {SMALLEST_ALPHA:g} and 0.5, such as 0.05")
        if self.grader_error is not None and not 0 <= self.grader_error <= 100:
            raise UserError(f"--grader-error {self.grader_error:g}: points between 0 and 100, such as 0.5")
        if self.seed_sd is not None and not 0 <= self.seed_sd <= 100:
            raise UserError(f"--seed-sd {self.seed_sd:g}: points between 0 and 100, such as 1.5")
