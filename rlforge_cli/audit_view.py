"""An audit in the terminal: one item at a time on stderr, without the grader's opinion; then what came out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from rlforge_cli import output, show
from rlforge_cli.audit import Audit
from rlforge_cli.audit_estimates import WIDTHS, widths
from rlforge_cli.audit_sample import Item

LONGEST = 6000
"""Characters of a completion that are shown; the answer stands at its end, so the middle is left out."""
WORDS = {"y": True, "yes": True, "n": False, "no": False}


def asker(prompts: dict[str, str]) -> Callable[[Item, int, int], bool | None]:
    """Asks on stderr and reads stdin; None on ``q`` or at the end of the input."""
    console = output.make_console(sys.stderr)

    def say(text: str, style: str = "") -> None:
        console.print(output.cell(text, style))

    def ask(item: Item, number: int, total: int) -> bool | None:
        say(f"[{number} of {total}] {item.key}", "bold")
        for name, text in (
            ("problem", prompts.get(item.id)),
            ("gold answer", item.answer),
            ("completion", item.completion),
        ):
            if text is not None:
                say(f"{name}:")
                for line in shortened(text).split("\n"):
                    say(f"  {line}")
        while True:
            sys.stderr.write("Is its final answer right? [y]es, [n]o, [q]uit (answers are kept): ")
            sys.stderr.flush()
            said = sys.stdin.readline()
            if not said or said.strip().lower() in ("q", "quit"):
                sys.stderr.write("\n" if not said else "")
                return None
            if said.strip().lower() in WORDS:
                return WORDS[said.strip().lower()]

    return ask


def shortened(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    half = LONGEST // 2
    return f"{text[:half]}\n... ({len(text) - LONGEST:,} characters left out) ...\n{text[-half:]}"


def result(found: dict[str, Any], *, command: str) -> None:
    """What the audit says, for a person."""
    console = output.stdout()
    console.print(
        output.cell(f"{found['run']} {found['eval']}: {found['answered']} of {found['n']} items checked", "bold")
    )
    cells = [
        [meaning, part["size"], part["drawn"], part["answered"], part["right"]]
        for meaning, part in zip(
            ("graded right", "near: graded wrong, gold in the text", "graded wrong"),
            found["strata"].values(),
            strict=True,
        )
    ]
    console.print(output.table(["stratum", "items", "drawn", "checked", "truly right"], cells, right=(1, 2, 3, 4)))
    show.pairs(rows(found))
    for error in found["errors"]:
        text = "graded right, but is wrong" if error["graded"] else "graded wrong, but is right"
        console.print(output.cell(f"  {error['id']}: {text}"))
    if not found["complete"]:
        console.print(output.cell("nothing is estimated before every drawn item is checked; go on with:"))
        console.print(output.cell(f"  {command}"), soft_wrap=True)


def rows(found: dict[str, Any]) -> list[tuple[str, str]]:
    lines = [("graded accuracy", show.percent(found["graded_accuracy"]))]
    if found["complete"]:
        low, high = found["bias_ci95_pp"]
        lines += [
            ("true accuracy", ranged(found["true_accuracy"], found["true_accuracy_ci95"])),
            (
                "bias",
                f"{found['bias_pp']:+.2f} pp [{low:.2f}, {high:.2f}]  graded minus true; compare allows for it",
            ),
            ("sensitivity", ranged(found["sensitivity"], found["sensitivity_ci95"]) + "  right answers graded right"),
            ("specificity", ranged(found["specificity"], found["specificity_ci95"]) + "  wrong answers graded wrong"),
        ]
        lines += closeness(found)
    second = found["second_grader"]
    if second is not None:
        read = second["n"] - second["no_opinion"]
        text = f"{second['name']} {second['version']} disagrees on {second['disagree']} of {read}"
        for kind, who in (("only_grader", "right only here"), ("only_second", "right only there")):
            if second[kind]:
                text += f"; {second[kind]} {who} ({', '.join(second['examples'][kind])})"
        if second["no_opinion"]:
            text += f"; no opinion on {second['no_opinion']}" + (
                f", {second['slow']} too slow" if second["slow"] else ""
            )
        lines.append(("second grader", text))
    return lines


def closeness(found: dict[str, Any]) -> list[tuple[str, str]]:
    """How wide the intervals are, what would halve them, and what that leaves `rlforge compare`."""
    wide, needed = widths(found), found["items_to_halve"]
    known = [name for name in WIDTHS if name == "bias" or found[name] is not None]
    texts = [f"{name} {wide[name]:.1f} pp wide ({needed[name]:,} halve it)" for name in known if wide[name] >= 0.05]
    if not texts:
        return [("closeness", "every item is checked: nothing is left to estimate")]
    error = found["grader_error_pp"]
    return [
        ("closeness", f"{found['n']} items leave {', '.join(texts)}"),
        ("for compare", f"two runs audited like this leave a grader error of {error:.1f} pp: a finding must clear it"),
    ]


def ranged(value: float | None, interval: Sequence[float]) -> str:
    if value is None:
        return "unknown: none of these answers is in the sample"
    return f"{100 * value:.1f} % [{100 * interval[0]:.1f}, {100 * interval[1]:.1f}]"


def second_opinion(audit: Audit) -> None:
    """Ask the second grader about every item, once for the same results; say so when it is not installed."""
    from rlforge_cli import second_grader

    if audit.second is not None:
        return
    if second_grader.version() is None:
        output.note("note: no second grader: pip install 'rlforge[audit]' adds math-verify")
        return
    items = [(item.key, item.completion, item.answer, item.graded) for item in audit.items]
    with second_grader.SecondGrader() as grader, show.bar("second grader") as progress:
        audit.second = second_grader.disagreements(
            items, grader=grader, progress=lambda done: progress(done, len(items))
        )
