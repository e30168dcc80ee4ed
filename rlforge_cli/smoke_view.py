"""Checks for a person, in 80 columns: a table, then what is not as it should be with its way out."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlforge_cli import output
from rlforge_cli.checks import Check

if TYPE_CHECKING:
    from rlforge_cli.checks.evidence import ComponentUse, Earning

WIDTH = 80
COLOURS = {"pass": "green", "warn": "yellow", "fail": "bold red", "skip": "dim"}


def value_text(value: object, *, width: int = 24) -> str:
    if value is None:
        return "-"
    text = f"{value:.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
    return text if len(text) <= width else text[: width - 3] + "..."


def checks(found: Sequence[Check], *, wall_s: float, complete: bool = True) -> None:
    """The table of checks, and a paragraph for each that failed, warned or was skipped.

    Not ``complete``: what most checks need is missing, so nothing has passed.
    """
    console = output.stdout()
    console.print(
        output.table(
            ["", "check", "value", "threshold"],
            [[output.cell(c.status, COLOURS[c.status]), c.name, value_text(c.value), c.threshold] for c in found],
            right=(2,),
        )
    )
    for check in found:
        if check.status in ("fail", "warn"):
            paragraph(f"{check.status} {check.name}: {check.why}", style=COLOURS[check.status])
            if check.fix:
                paragraph(f"fix: {check.fix}", indent=2)
    reasons: dict[str, list[str]] = {}
    for check in found:
        if check.status == "skip":
            reasons.setdefault(check.why, []).append(check.name)
    for why, names in reasons.items():
        paragraph(f"skipped {', '.join(names)}: {why}", style="dim")
    counts = {status: sum(c.status == status for c in found) for status in ("pass", "warn", "fail", "skip")}
    numbers = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    verdict = "failed" if counts["fail"] else "passed" if complete else "could not run"
    console.print(output.cell(f"smoke {verdict}: {numbers} in {wall_s:.1f} s", "bold"))


def paragraph(text: str, *, indent: int = 0, style: str = "") -> None:
    """Wrapped to 80 columns, whatever the pipe."""
    lines = textwrap.wrap(text, WIDTH - indent, subsequent_indent="  ", break_on_hyphens=False)
    for line in lines:
        output.stdout().print(output.cell(" " * indent + line, style), soft_wrap=True)


def payments(earnings: Sequence[Earning], uses: Sequence[ComponentUse]) -> None:
    """What each probe and each component is paid."""
    console = output.stdout()
    rows = [
        [e.name, f"{e.right}/{e.n}", value_text(e.most_wrong, width=10), value_text(e.least_right, width=10)]
        for e in earnings
    ]
    console.print(output.table(["completion", "right", "most wrong", "least right"], rows, right=(1, 2, 3)))
    if uses:
        rows = [[u.name, f"{u.success:.3f}", f"{u.value:+.3f}", f"{u.product:+.4f}"] for u in uses]
        console.print(output.table(["component", "success", "value", "mean"], rows, right=(1, 2, 3)))
