"""What stands in one cell of a comparison: short texts, numbers before all."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from rlforge_cli.comparison.result import Comparison, Row
from rlforge_cli.show import change_text

WORDS = {
    None: "control",
    "better": "better",
    "worse": "worse",
    "no_material_difference": "no material difference",
    "inconclusive": "inconclusive",
    "not_comparable": "not comparable",
}
STYLES = {
    None: "",
    "better": "bold green",
    "worse": "bold red",
    "no_material_difference": "cyan",
    "inconclusive": "yellow",
    "not_comparable": "magenta",
}
ABSENT = "-"


def label(row: Row) -> str:
    return row.run + (f" ×{row.n_seeds}" if row.n_seeds > 1 else "")


def verdict(row: Row, result: Comparison) -> str:
    return WORDS[row.verdict] + (f", below ±{result.margin_pp:g}" if row.below_margin else "")


def change(row: Row) -> str:
    return change_text(row.changes)


def score(row: Row, *, gap: str = " ") -> str:
    """Accuracy in percent and the wider half of its interval."""
    if row.accuracy is None:
        return ABSENT
    if row.ci95 is None:
        return f"{100 * row.accuracy:.1f}"
    half = max(row.ci95[1] - row.accuracy, row.accuracy - row.ci95[0])
    return f"{100 * row.accuracy:.1f}{gap}±{100 * half:.1f}"


def delta(row: Row) -> str:
    return f"{row.delta_pp:+.2f}" if row.delta_pp is not None else ""


def interval(row: Row) -> str:
    return f"[{row.delta_ci95_pp[0]:.2f}, {row.delta_ci95_pp[1]:.2f}]" if row.delta_ci95_pp is not None else ""


def strict(row: Row) -> str:
    if row.accuracy_strict is None:
        return ABSENT
    difference = f" ({row.delta_strict_pp:+.1f})" if row.delta_strict_pp is not None else ""
    return f"{100 * row.accuracy_strict:.1f}{difference}"


def passed(row: Row) -> str:
    """pass@k at the largest k that the samples allow."""
    if not row.pass_at_k:
        return ABSENT
    k, value = list(row.pass_at_k.items())[-1]
    return f"{100 * value:.1f} % (k={k})"


def _number(value: float | None, spec: str) -> str:
    if value is None:
        return ABSENT
    return format(value, spec) if math.isfinite(value) else "nan"


def _percent(value: float | None) -> str:
    text = _number(None if value is None else 100 * value, ".1f")
    return text + " %" if text not in (ABSENT, "nan") else text


INSIDE: tuple[tuple[str, Callable[[Row], str]], ...] = (
    ("strict %", strict),
    ("pass@k", passed),
    ("zero-std", lambda row: _percent(row.mechanism.zero_std_fraction)),
    ("length", lambda row: _number(row.mechanism.completion_length, ".1f")),
    ("adv_std", lambda row: _number(row.mechanism.adv_std, ".3f")),
    ("KL", lambda row: _number(row.mechanism.kl_ref, ".3g")),
    ("clip", lambda row: _percent(row.mechanism.clip_fraction)),
    ("wall s", lambda row: _number(row.mechanism.wall_s, ",.0f")),
    ("completions", lambda row: _number(row.mechanism.completions, ",.0f")),
)
"""Columns about the inside of the runs: name, and the text of a row."""


def inside_columns(result: Comparison) -> list[tuple[str, Callable[[Row], str]]]:
    """Those that at least one run knows."""
    return [(name, read) for name, read in INSIDE if any(read(row) != ABSENT for row in result.rows)]


def notes(result: Comparison) -> list[str]:
    """Each sentence once, with the runs it is about; then what holds for all."""
    about: dict[str, list[str]] = {}
    for row in result.rows:
        for reason in row.reasons:
            about.setdefault(reason, []).append(row.run)
    lines = [f"{together(names, result)}: {reason}" for reason, names in about.items()]
    return [*lines, *result.notes]


def next_steps(result: Comparison) -> list[tuple[str, list[str]]]:
    """What open questions need: a sentence, each once, and the commands to paste."""
    groups: dict[str, tuple[list[str], list[str]]] = {}
    for row in result.rows:
        if row.needed is None:
            continue
        names, commands = groups.setdefault(row.needed["text"], ([], []))
        names.append(row.run)
        if row.needed["command"]:
            commands.append(row.needed["command"])
    return [(f"next for {together(names, result)}: {text}", commands) for text, (names, commands) in groups.items()]


def together(names: Sequence[str], result: Comparison) -> str:
    others = [row.run for row in result.rows[1:]]
    return "all runs" if len(others) > 2 and list(names) == others else ", ".join(names)
