"""Everything `rlforge explain` knows: metrics, verdicts, estimates and knobs, under one roof."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

import msgspec

from rlforge_cli import settings
from rlforge_cli.config import Config
from rlforge_cli.errors import UserError, nearest
from rlforge_cli.metrics import METRICS

KINDS = {"metrics": "metric", "checks": "check", "verdicts": "verdict", "estimates": "estimate", "knobs": "knob"}

VERDICTS = {
    "better": (
        "the whole 95 % interval of the difference, less the grader error, is above 0, and the adjusted p below alpha"
    ),
    "worse": "the same, below 0",
    "no_material_difference": (
        "the 90 % interval, widened by the grader error, lies inside the margin: shown to be equal enough"
    ),
    "inconclusive": "neither is shown; the output says how many seeds or problems would decide",
    "not_comparable": "the two were not asked the same, or graded the same; the reason is given",
}


COARSE = (
    "50 of 1,319 items (800 graded right, 100 near, 419 wrong) without one error leave bias 14.5, sensitivity 10.0 and "
    "specificity 16.7 points wide; about 105 items halve that, and 200 halve it again"
)

ESTIMATES: dict[str, tuple[str, list[str]]] = {
    "sensitivity": ("share of the truly right answers that the grader calls right", ["in: rlforge audit", COARSE]),
    "specificity": ("share of the truly wrong answers that the grader calls wrong", ["in: rlforge audit", COARSE]),
    "bias_pp": ("graded minus true accuracy, in points", ["in: rlforge audit", COARSE]),
    "grader_error_pp": (
        "how far the grader may favour one of two runs, in points: a verdict needs the interval to clear it",
        [
            "from: --grader-error, else the audits of both runs, else 0",
            "a coarse audit makes it large: 50 items a run leave about 10 points, 200 about 2.4, 350 about 1.2",
        ],
    ),
    "tipping_items": (
        "how many of the winner's exclusive wins would have to be grading errors for significance to be lost",
        ["in: rlforge compare", "small beside the number of wins: the finding hangs on few answers"],
    ),
    "disputed_wins": (
        "how many of the winner's exclusive wins the second grader doubts",
        ["in: rlforge compare, once `rlforge audit` has asked it", "healthy: below tipping_items"],
    ),
    "detectable_pp": (
        "the smallest difference between two checkpoints that these problems show with 80 % power",
        ["in: rlforge compare", "1,319 problems: 1.72, 2.44, 2.98, 3.45 points at 5, 10, 15, 20 % discordant ones"],
    ),
}


class Entry(msgspec.Struct, frozen=True):
    """Example: ``Entry(name="adv_std", kind="metric", meaning="spread of ...", details=["healthy: ..."])``."""

    name: str
    kind: str
    meaning: str
    details: list[str]


def entries() -> list[Entry]:
    found = [
        Entry(
            m.name,
            "metric",
            m.meaning,
            [f"{label}: {text}" for label, text in (("formula", m.formula), ("healthy", m.healthy)) if text],
        )
        for m in METRICS
    ]
    found += [Entry(name, "verdict", meaning, []) for name, meaning in VERDICTS.items()]
    found += [Entry(name, "estimate", meaning, details) for name, (meaning, details) in ESTIMATES.items()]
    return found + checks(taken={entry.name for entry in found}) + [knob(key) for key in settings.KEYS]


def checks(*, taken: set[str]) -> list[Entry]:
    """Smoke's gates and doctor's rules; one with a metric's name (``adv_std``) is listed as ``check adv_std``."""
    from rlforge_cli.checks import REWARD_GATES
    from rlforge_cli.checks.doctor_table import RULES
    from rlforge_cli.checks.table import GATES

    known: dict[str, Entry] = {}
    for where, rows in (("smoke", GATES), ("smoke --rewards", REWARD_GATES), ("doctor", RULES)):
        for row in rows:
            name = f"check {row.name}" if row.name in taken else row.name
            known.setdefault(name, Entry(name, "check", row.asks, [f"in: rlforge {where}", f"threshold: {row.reason}"]))
    return list(known.values())


def knob(key: str) -> Entry:
    """A configuration key: meaning, type, default, short names."""
    defaults = settings.flatten(Config())
    short = [name for name, full in settings.short_names().items() if full == key]
    details = [f"type: {type_text(settings.KEYS[key])}", f"default: {defaults[key]!r} (a preset may set another)"]
    if short:
        details.append(f"short: {', '.join(short)}")
    details.append(f"set it with: --set {short[0] if short else key}=VALUE")
    return Entry(key, "knob", settings.description(key), details)


def type_text(hint: Any) -> str:
    hint = get_args(hint)[0] if hasattr(hint, "__metadata__") else hint
    if get_origin(hint) is Literal:
        return " | ".join(get_args(hint))
    if get_origin(hint) is tuple:
        return f"list of {get_args(hint)[0].__name__}"
    return hint.__name__


def find(name: str) -> Entry:
    """The entry of a metric, verdict, estimate or knob (full or short name).

    Raises:
        UserError: there is none, with the nearest.
    """
    known = {entry.name: entry for entry in entries()}
    if name in known:
        return known[name]
    short = settings.short_names()
    if name in short:
        return known[short[name]]
    raise UserError(
        f"nothing to explain under {name!r}{nearest(name, [*known, *short])}; `rlforge explain` lists everything"
    )
