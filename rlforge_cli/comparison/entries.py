"""One evaluated checkpoint, from a run directory or a file: what it is, and its results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from rlforge_cli.comparison.options import Options
from rlforge_cli.comparison.samples import Scores, read_scores
from rlforge_cli.errors import UserError
from rlforge_cli.jsonl import number, regular
from rlforge_cli.run_dir import RunDir
from rlforge_cli.settings import not_ignored

SEED_KEY = "train.seed"


class Head(msgspec.Struct, frozen=True):
    """A run or a file before its results are read. A file has neither configuration nor run.json."""

    name: str
    """As the user named it, or the run's id."""
    path: Path
    """The run's folder, or the file."""
    run: RunDir | None
    config: dict[str, Any]
    """Flat: ``{"train.seed": 0, ...}``."""
    info: dict[str, Any]
    summary: dict[str, Any]
    """Of the evaluation: accuracy, split, decoding, grader, hashes; empty when there is none."""
    recipe: str | None = None
    """Equal for runs whose configurations are equal but for the seed; None when it is not known."""
    warnings: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def seed(self) -> Any:
        return self.config.get(SEED_KEY, self.info.get("seed"))

    @property
    def finished(self) -> bool:
        return self.info.get("status", "completed") == "completed"


class Entry(msgspec.Struct, frozen=True):
    """A head with its results, or with the reason why it has none."""

    head: Head
    scores: Scores | None = None
    problem: str | None = None

    @property
    def accuracy(self) -> float | None:
        """In 0..1: from the results, else from the summary."""
        return self.scores.accuracy if self.scores is not None else summary_accuracy(self.head)


def summary_accuracy(head: Head) -> float | None:
    return share(head.summary.get("accuracy"))


def share(value: object) -> float | None:
    """A JSON number of 0..1; None for anything else."""
    found = number(value)
    return found if found is not None and 0 <= found <= 1 else None


def flatten(config: dict[str, Any]) -> dict[str, Any]:
    """``{"train": {"seed": 0}}`` -> ``{"train.seed": 0}``; a value outside any section keeps its name."""
    flat: dict[str, Any] = {}
    for section, values in config.items():
        if isinstance(values, dict):
            flat.update({f"{section}.{key}": value for key, value in values.items()})
        else:
            flat[section] = values
    return flat


def _recipe(config: dict[str, Any], task_hash: object) -> str | None:
    """A flat configuration without what is no part of how a run is trained; equal paths may hold other data."""
    kept = {key: value for key, value in config.items() if not_ignored(key)}
    return json.dumps([kept, task_hash], sort_keys=True) if kept else None


def _object(path: Path) -> tuple[dict[str, Any], str | None]:
    """A JSON object from a file that may be absent or damaged, and a warning in the second case."""
    try:
        value = json.loads(regular(path).read_bytes())
    except FileNotFoundError:
        return {}, None
    except (OSError, ValueError, RecursionError) as error:
        return {}, f"{path}: unreadable and ignored ({error})"
    return (value, None) if isinstance(value, dict) else ({}, f"{path}: not a JSON object, ignored")


def head_of_run(run: RunDir, options: Options, *, name: str) -> Head:
    """Configuration, state and evaluation summary of a run; what is damaged becomes a warning."""
    config, config_warning = _object(run.config_file)
    info, info_warning = _object(run.run_file)
    summary, summary_warning = _object(run.evals / f"{options.evaluation}.json")
    if info.get("status") == "running" and not run.is_locked():
        info = info | {"status": "crashed"}
    warnings = tuple(text for text in (config_warning, info_warning, summary_warning) if text)
    flat = flatten(config)
    return Head(
        name=name,
        path=run.path,
        run=run,
        config=flat,
        info=info,
        summary=summary,
        recipe=_recipe(flat, info.get("task_hash")),
        warnings=warnings,
    )


def head_of_file(path: Path, *, name: str) -> Head:
    """A file of results, with the summary of the same name beside it where there is one."""
    beside = path if path.suffix == ".json" else path.with_suffix(".json")
    summary, _ = _object(beside)
    return Head(name=name, path=path, run=None, config={}, info={}, summary=summary if "accuracy" in summary else {})


def read_entry(head: Head, options: Options) -> Entry:
    """The results of a head. A fault inside a run is that run's problem; in a file the user named, it is an error.

    Raises:
        UserError: a named file is not a file of results.
    """
    if head.run is None:
        if head.path.suffix == ".json" and head.summary:
            return Entry(head=head)
        return Entry(head=head, scores=read_scores(head.path, filter=options.filter))
    state = _unfinished(head, options)
    if state is not None:
        return Entry(head=head, problem=state)
    results = head.run.evals / f"{options.evaluation}.jsonl"
    if not results.exists():
        if summary_accuracy(head) is not None:
            return Entry(head=head)
        # the model before training last: it says nothing about the run
        has = sorted(
            (path.stem for path in head.run.evals.glob("*.jsonl")), key=lambda name: (name.endswith("-base"), name)
        )
        other = f" (there is {', '.join(has)}: --eval {has[0]})" if has else ""
        return Entry(
            head=head, problem=f"no evaluation {options.evaluation!r}{other}: run `rlforge eval {head.name}` first"
        )
    if not results.is_file():
        return Entry(head=head, problem=f"{results}: not a regular file: remove it and run `rlforge eval {head.name}`")
    try:
        return Entry(head=head, scores=read_scores(results, filter=options.filter))
    except UserError as error:
        return Entry(head=head, problem=str(error))


def _unfinished(head: Head, options: Options) -> str | None:
    """Why the run speaks for no recipe; one of its checkpoints may still be compared at checkpoint scope."""
    if head.finished or (options.scope == "checkpoint" and _has_results(head, options)):
        return None
    status = head.info.get("status")
    if status == "running":
        return "still running: compare it when it is done"
    steps, reason = head.info.get("steps"), head.info.get("reason")
    where = f" after {steps} steps" if isinstance(steps, int) else ""
    why = f" ({reason})" if isinstance(reason, str) and reason else ""
    return f"{status}{where}{why}: continue it with `rlforge train --resume {head.name}`"


def _has_results(head: Head, options: Options) -> bool:
    return head.run is not None and (head.run.evals / f"{options.evaluation}.jsonl").exists()
