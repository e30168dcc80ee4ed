"""What the commands about runs print for a person."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rlforge_cli import output
from rlforge_cli.jsonl import number, regular
from rlforge_cli.progress import duration

if TYPE_CHECKING:
    from rich.console import Console

    from rlforge_cli.lineage import Plan
    from rlforge_cli.run_dir import RunDir


NOTE_LENGTH = 60
"""Of a run's note in the table; `rlforge show` has it whole."""
TABLE_WIDTH = 120
"""Columns that the table of runs needs."""


def percent(value: object) -> str:
    """``57.9 %``; ``-`` for what is no number."""
    found = number(value)
    return "-" if found is None else f"{100 * found:.1f} %"


def interval(summary: dict[str, Any]) -> str:
    """``57.9 % [55.2, 60.5]``, without the interval where the summary has none."""
    ends = summary.get("ci95")
    known = [number(end) for end in ends] if isinstance(ends, (list, tuple)) else []
    text = percent(summary.get("accuracy"))
    if len(known) != 2 or known[0] is None or known[1] is None:
        return text
    return f"{text} [{100 * known[0]:.1f}, {100 * known[1]:.1f}]"


def change_text(changes: object) -> str:
    """``group_size 8→16``; the section is left out where the field says enough, and so is what is no change."""
    known = [c for c in changes if isinstance(c, dict) and "key" in c] if isinstance(changes, (list, tuple)) else []
    return ", ".join(
        f"{str(c['key']).rpartition('.')[2]} {setting(c.get('from'))}→{setting(c.get('to'))}" for c in known
    )


def setting(value: object) -> str:
    """The value of a key: ``0.001``, ``8``, ``none``."""
    return f"{value:g}" if isinstance(value, float) else "none" if value is None or value == "" else str(value)


def change_from_control(row: dict[str, Any]) -> str:
    """The change of a run in a list; one that was started from its control without any is a repeat of it."""
    return change_text(row.get("changes")) or ("repeat" if row.get("parent") else "-")


def pairs(rows: Sequence[tuple[str, object]], *, title: str | None = None) -> None:
    console = output.stdout()
    if title:
        console.print(output.cell(title, "bold"))
    width = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        console.print(output.cell(f"  {name:<{width}}  {value}"))


def plan(plan: Plan, *, as_json: bool) -> None:
    from rlforge_cli.planning import plan as planned

    facts = planned(plan.config)
    control = plan.control.id if plan.control else f"preset {plan.preset}" if plan.preset else None
    if as_json:
        output.print_json({"plan": facts, "control": control, "changes": plan.changes, "notes": plan.notes})
        return
    rows: list[tuple[str, object]] = [("control", control), ("change", change_text(plan.changes) or "none")]
    pairs([*rows, *facts.items()], title="plan (nothing was started)")


def trained(run: RunDir, result: dict[str, Any]) -> None:
    """The end of a training run."""
    best = result["best"] or {}
    seconds = result["seconds_per_step"]["total"]
    info = run.info()
    rows: list[tuple[str, object]] = [
        ("status", result["status"]),
        ("change", change_text(info.get("changes")) or "none"),
        ("steps", result["steps"]),
        ("best validation", f"{percent(best.get('val_accuracy'))} at step {best.get('step')}"),
        (
            "wall time",
            f"{duration(result['wall_s'])} ({seconds:.3f} s a step)" if seconds else duration(result["wall_s"]),
        ),
        ("path", result["path"]),
        ("next", f"rlforge eval {run.id}"),
    ]
    pairs(rows, title=run.id)


def evaluated(summary: dict[str, Any]) -> None:
    """The end of an evaluation; strict and flexible extraction apart."""
    decoding = summary["decoding"]
    how = "greedy" if not decoding["temperature"] else f"{decoding['samples']} samples at T {decoding['temperature']:g}"
    rows: list[tuple[str, object]] = [
        ("accuracy", f"{interval(summary)}  flexible extraction, 95 % interval"),
        ("strict", f"{percent(summary['accuracy_strict'])}  asked format only"),
        ("problems", f"{summary['n']} of {summary['task']} {summary['split']}, {how}"),
        ("format followed", percent(summary["format_ok"])),
        ("truncated", percent(summary["truncated_fraction"])),
        ("mean tokens", f"{summary['mean_tokens']:.1f}"),
    ]
    rows += [(f"pass@{k}", percent(value)) for k, value in summary["pass_at_k"].items() if k != "1"]
    if summary["grader_errors"]:
        rows.append(("grader errors", summary["grader_errors"]))
    for again in summary.get("repeat", []):
        rows.append(
            (
                "again",
                f"{percent(again['accuracy'])}: {again['different_completions']} of {again['n']} completions differ, "
                f"{again['flipped_to_right']} turned right, {again['flipped_to_wrong']} wrong",
            )
        )
    if summary["results"]:
        rows.append(("results", summary["results"]))
    pairs(rows, title=summary["subject"])


def headline(run: RunDir) -> dict[str, Any]:
    """The row of a run in `rlforge ls`; a damaged run is a row with its reason."""
    import json

    from rlforge_cli.errors import UserError

    try:
        info = run.info()
    except UserError as error:
        return {"run": run.id, "status": "damaged", "reason": str(error)}
    row = {
        key: info.get(key)
        for key in ("status", "seed", "parent", "changes", "steps", "best", "note", "name", "task", "reason")
    }
    row["best"] = row["best"] if isinstance(row["best"], dict) else None
    with contextlib.suppress(OSError, ValueError, RecursionError):
        summary = json.loads(regular(run.evals / "test.json").read_bytes())
        if isinstance(summary, dict):
            row["test"] = {key: summary.get(key) for key in ("accuracy", "ci95", "n", "checkpoint")}
    return {"run": run.id} | row


def listing(runs: Sequence[RunDir], *, as_json: bool) -> None:
    rows = [headline(run) for run in runs]
    if as_json:
        output.print_json({"runs": rows})
        return
    if not rows:
        output.note("no runs yet: `rlforge train` makes one")
        return
    console = output.stdout()
    if console.is_terminal and console.width < TABLE_WIDTH:
        for row in rows:
            narrow(console, row)
        return
    console.print(
        output.table(
            ["run", "status", "control", "change", "seed", "steps", "validation", "test", "note"],
            [
                [
                    r["run"], r["status"], r.get("parent") or "-", change_from_control(r), show_value(r.get("seed")),
                    show_value(r.get("steps")), percent((r.get("best") or {}).get("val_accuracy")),
                    interval(r["test"]) if r.get("test") else "-",
                    output.cropped(str(r.get("name") or r.get("note") or r.get("reason") or ""), NOTE_LENGTH),
                ]
                for r in rows
            ],
            right=(4, 5, 6, 7),
        )
    )  # fmt: skip


def narrow(console: Console, row: dict[str, Any]) -> None:
    """A run in a few lines, for a terminal that the table does not fit in: nothing short is folded."""
    best, test = row.get("best") or {}, row.get("test")
    console.print(output.cell(f"{row['run']}  {row['status']}", "bold"))
    facts = [
        (f"change from {row['parent']}" if row.get("parent") else "change", change_from_control(row).strip("-")),
        ("seed, steps", f"{show_value(row.get('seed'))}, {show_value(row.get('steps'))}"),
        ("validation", percent(best.get("val_accuracy")) if best else ""),
        ("test", interval(test) if test else ""),
        ("note", row.get("name") or row.get("note") or row.get("reason")),
    ]
    for name, value in facts:
        if value:
            console.print(output.cell(f"  {name}: {value}"))


def show_value(value: object) -> str:
    return "-" if value is None else str(value)


@contextlib.contextmanager
def bar(title: str, *, shown: bool = True) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on a terminal's stderr; silent elsewhere, and unless ``shown``."""
    console = output.make_console(sys.stderr)
    if not (console.is_terminal and shown):
        yield lambda done, total: None
        return
    from rich.progress import Progress as Bar

    with Bar(console=console, transient=True) as live:
        task = live.add_task(title, total=None)
        yield lambda done, total: live.update(task, completed=done, total=total)
