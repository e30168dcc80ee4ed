"""What a report is about: the runs, their comparison, their curves; read once, before any sentence is written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from rlforge_cli.comparison import Comparison, Options, Row, compare
from rlforge_cli.comparison.entries import Head, head_of_run, read_entry
from rlforge_cli.comparison.mechanism import read_curves
from rlforge_cli.errors import UserError
from rlforge_cli.run_dir import RunDir

EVALUATION = "test"


class Subject(msgspec.Struct, frozen=True):
    """One row of the report: a run, what ``compare`` says of it, and its metrics, one record a step."""

    name: str
    row: Row
    head: Head
    records: list[dict[str, Any]]

    @property
    def run(self) -> RunDir:
        assert self.head.run is not None
        return self.head.run

    @property
    def status(self) -> str:
        return str(self.head.info.get("status", "completed"))

    def evaluation(self, suffix: str) -> dict[str, Any]:
        """The summary of ``evals/test<suffix>.json``, empty when there is none that can be read."""
        return summary(self.run.evals / f"{EVALUATION}{suffix}.json")


class Facts(msgspec.Struct, frozen=True):
    """Everything that a report states. ``arms`` are all rows but the control's."""

    control: Subject
    arms: list[Subject]
    comparison: Comparison
    runs_dir: Path

    @property
    def subjects(self) -> list[Subject]:
        return [self.control, *self.arms]

    @property
    def judged(self) -> list[Subject]:
        """The arms whose difference to the control was measured."""
        return [arm for arm in self.arms if arm.row.delta_pp is not None]

    @property
    def best(self) -> Subject:
        """The best arm that is shown to be better; with none, whatever scored highest, the control included."""
        shown = [arm for arm in self.judged if arm.row.verdict == "better"]
        comparable = [self.control, *self.judged] if self.control.row.accuracy is not None else self.arms
        return max(shown or comparable or [self.control], key=lambda subject: subject.row.accuracy or 0.0)


def summary(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def name_of(run: RunDir, runs_dir: Path) -> str:
    """As ``compare`` and the other commands take it: the id inside ``runs_dir``, else the path."""
    return run.id if run.path.resolve().parent == runs_dir.resolve() else str(run.path)


def control_first(runs: Sequence[RunDir], runs_dir: Path) -> list[RunDir]:
    """``runs`` with the control in front: the first run with a result that no other of them is the parent of.

    A run without a result is a control only when there is no other.
    """
    options = Options(runs_dir=runs_dir)
    heads = [head_of_run(run, options, name=name_of(run, runs_dir)) for run in runs]
    ids = [run.id for run in runs]
    first = [run for run, head in zip(runs, heads, strict=True) if head.info.get("parent") not in ids]
    order = [*first, *(run for run in runs if run not in first)]
    by_path = {run.path: head for run, head in zip(runs, heads, strict=True)}
    control = next((run for run in order if _scored(by_path[run.path], options)), None)
    return list(runs) if control is None else [control, *(run for run in runs if run is not control)]


def _scored(head: Head, options: Options) -> bool:
    entry = read_entry(head, options)
    return entry.problem is None and entry.scores is not None


def gather(runs: Sequence[RunDir], *, runs_dir: Path) -> Facts:
    """Read and compare ``runs``; the first is the control. A sibling seed that an arm already counts gets no row.

    Raises:
        UserError: no run at all.
    """
    if not runs:
        raise UserError(f"report: no runs in {runs_dir}; `rlforge train` makes one, --runs-dir names another folder")
    options = Options(evaluation=EVALUATION, runs_dir=runs_dir)
    by_name = {name_of(run, runs_dir): run for run in runs}
    result = _compare(list(by_name), options)
    rows = {row.run: row for row in result.rows}
    counted = {name for row in rows.values() for name in row.runs[1:]}
    subjects = [
        _subject(name, run, rows[name], options)
        for name, run in by_name.items()
        if name not in counted or name == result.control
    ]
    return Facts(control=subjects[0], arms=subjects[1:], comparison=result, runs_dir=runs_dir)


def _compare(names: Sequence[str], options: Options) -> Comparison:
    if len(names) > 1:
        return compare(names, options=options)
    alone = compare([*names, *names], options=options)  # a run against itself: its own row is what counts
    return msgspec.structs.replace(alone, rows=alone.rows[:1])


def _subject(name: str, run: RunDir, row: Row, options: Options) -> Subject:
    head = head_of_run(run, options, name=name)
    return Subject(name=name, row=row, head=head, records=read_curves(head).steps)
