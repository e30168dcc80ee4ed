"""How many grading errors a finding survives, beside how many the two graders and extractions dispute."""

from __future__ import annotations

import msgspec

from rlforge_cli.comparison.arms import Arm
from rlforge_cli.comparison.audit import Disputed, disputed
from rlforge_cli.comparison.measure import Measured
from rlforge_cli.comparison.options import Options
from rlforge_cli.stats import tipping_point


class Tipping(msgspec.Struct, frozen=True):
    """Of ``wins`` exclusive wins, ``items`` would have to be errors; the p-value is then ``p``.

    Example: ``Tipping(items=16, p=0.0549, wins=100, by_format=5, second=None)``.
    """

    items: int
    p: float
    wins: int
    by_format: int | None
    """Wins that the asked format alone would not give; None where the file does not say."""
    second: Disputed | None
    """Wins that the second grader doubts; None where it was not asked."""

    @property
    def sentence(self) -> str:
        text = (
            f"{self.items} of the winner's {self.wins} exclusive wins would have to be grading errors to lose "
            f"significance (p {self.p:.4f})"
        )
        if self.by_format is not None:
            text += f"; strict and flexible extraction disagree on {self.by_format} of them"
        if self.second is not None:
            read = f" ({self.second.runs[0]} alone was read twice)" if len(self.second.runs) == 1 else ""
            text += f"; this grader and {self.second.grader} disagree on {self.second.wins} of them{read}"
        return text

    @property
    def warning(self) -> str | None:
        if self.second is None or self.second.wins < self.items:
            return None
        return (
            f"the graders disagree on {self.second.wins} of these wins, and {self.items} errors would undo the "
            "finding: read the disputed answers before believing it (`rlforge audit --json` lists them)"
        )


def tipping(control: Arm, arm: Arm, found: Measured, options: Options) -> Tipping | None:
    """None where there is no significance to lose, or no single answers to count."""
    table, p_of = found.table, found.p_of
    if table is None or p_of is None:
        return None
    items = tipping_point(table.only_a, table.only_b, alpha=options.alpha, p_value=p_of)
    if items is None:
        return None
    ours = table.only_b >= table.only_a
    winner, loser = (arm, control) if ours else (control, arm)
    mine, theirs = winner.named.scores, loser.named.scores
    assert mine is not None
    assert theirs is not None
    exclusive = (mine.right > 0) & (theirs.reordered(mine.ids).right == 0)
    wins = [item for item, won in zip(mine.ids, exclusive, strict=True) if won]
    return Tipping(
        items=items,
        p=p_of(table.only_a, table.only_b - items) if ours else p_of(table.only_a - items, table.only_b),
        wins=len(wins),
        by_format=int((exclusive & (mine.strict == 0)).sum()) if mine.strict is not None else None,
        second=disputed(winner, loser, wins, options),
    )
