"""From the names a user gives to arms: all runs trained the same way but for the seed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from rlforge_cli.comparison.alike import obstacles
from rlforge_cli.comparison.entries import (
    Entry,
    Head,
    head_of_file,
    head_of_run,
    read_entry,
    summary_accuracy,
)
from rlforge_cli.comparison.options import Options
from rlforge_cli.errors import UserError, nearest
from rlforge_cli.run_dir import RunDir


class Arm(msgspec.Struct, frozen=True):
    """What one argument of compare stands for. ``entries[0]`` is the run or file that was named."""

    name: str
    entries: tuple[Entry, ...]
    problem: str | None = None
    """Why the arm cannot be compared."""
    notes: tuple[str, ...] = ()

    @property
    def named(self) -> Entry:
        return self.entries[0]

    @property
    def accuracies(self) -> list[float]:
        return [value for entry in self.entries if (value := entry.accuracy) is not None]


class Disk:
    """The runs of the folders that a comparison touches; each folder and file is read once."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._folders: dict[Path, list[Head]] = {}
        self._entries: dict[Path, Entry] = {}

    def runs(self, folder: Path) -> list[Head]:
        key = folder.resolve()
        if key not in self._folders:
            own = key == self.options.runs_dir.resolve()
            self._folders[key] = [
                head_of_run(run, self.options, name=run.id if own else str(run.path)) for run in RunDir.all(folder)
            ]
        return self._folders[key]

    def entry(self, head: Head) -> Entry:
        key = head.path.resolve()
        if key not in self._entries:
            self._entries[key] = read_entry(head, self.options)
        return self._entries[key]

    def locate(self, name: str) -> Head:
        """The run or file of that name.

        Raises:
            UserError: there is none, with the nearest run ids.
        """
        inside, path = self.options.runs_dir / name, Path(name)
        for candidate in (inside, path):
            if os.path.isdir(candidate) and _is_run(candidate):
                known = {head.path.resolve(): head for head in self.runs(candidate.parent)}
                head = known.get(candidate.resolve())
                return head or head_of_run(RunDir(candidate), self.options, name=name)
        if os.path.isdir(path):
            raise UserError(f"{name}: a folder, but not a run (no run.json): name a run or a JSONL file of results")
        if os.path.exists(path):  # a file, or what a shell's <(command) stands for
            return head_of_file(path, name=name)
        ids = [head.id for head in self.runs(self.options.runs_dir)]
        hint = nearest(name, ids) if ids else "; there are no runs there"
        raise UserError(f"{name!r} is neither a run in {self.options.runs_dir} nor a file{hint}")


def _is_run(path: Path) -> bool:
    return any((path / part).exists() for part in ("run.json", "config.json", "evals"))


def _parts(name: str, options: Options) -> tuple[list[str], bool]:
    """The members of an arm, and whether commas spell them out: then no sibling joins.

    ``"run-11,"`` is an arm of that one run. A name that exists as it stands is one member.

    Raises:
        UserError: commas and nothing else.
    """
    # os.path answers False where pathlib raises: a long list is no possible file name
    if "," not in name or os.path.exists(name) or os.path.exists(options.runs_dir / name):
        return [name], False
    parts = [part.strip() for part in name.split(",") if part.strip()]
    if not parts:
        raise UserError(f"{name!r} names no run: run-11,run-12 is an arm of two seeds, run-11, (with its comma) of one")
    return parts, True


def build_arms(names: Sequence[str], *, disk: Disk) -> list[Arm]:
    """One arm a name, in order; the first is the control.

    At recipe scope a run brings its siblings, unless commas spell the arm out. A name whose run belongs to an earlier
    arm gets no arm of its own.

    Raises:
        UserError: an unknown name, or a file that holds no results.
    """
    spellings = [_parts(name, disk.options) for name in names]
    heads = [[disk.locate(part) for part in parts] for parts, _ in spellings]
    owners: dict[str, str] = {}
    arms: list[Arm] = []
    for index, (members, (_, spelled_out)) in enumerate(zip(heads, spellings, strict=True)):
        first = members[0]
        name = first.name if not spelled_out else ",".join(head.name for head in members)
        if spelled_out or disk.options.scope == "checkpoint" or first.recipe is None or first.run is None:
            arms.append(_arm(name, members, disk))
            continue
        if index and first.path.resolve() == heads[0][0].path.resolve():
            arms.append(_arm(name, [entry.head for entry in arms[0].entries], disk))
            continue
        owner = owners.setdefault(first.recipe, name)
        if owner is not name:
            reason = (
                f"the same configuration as {owner} but for the seed: counted as a seed of that arm "
                "(--scope checkpoint compares the two checkpoints)"
            )
            arms.append(Arm(name=name, entries=(disk.entry(first),), problem=reason))
            continue
        siblings = [h for h in disk.runs(first.path.parent) if h.recipe == first.recipe and h.path != first.path]
        arms.append(_arm(name, [first, *siblings], disk, pulled_in=True))
    return arms


def _arm(name: str, heads: Sequence[Head], disk: Disk, *, pulled_in: bool = False) -> Arm:
    """Entries of one arm. A sibling that was pulled in and does not fit is left out; a member named by the user is a
    problem of the arm."""
    named = disk.entry(heads[0])
    if named.problem is not None:
        return Arm(name=name, entries=(named,), problem=named.problem)
    entries, notes = [named], []
    for head in heads[1:]:
        entry = disk.entry(head)
        reason = entry.problem or _repeats(entry, entries) or "; ".join(_unlike(named, entry))
        if not reason:
            entries.append(entry)
        elif pulled_in:
            notes.append(f"{head.name} is left out of the arm of {name}: {reason}")
        else:
            return Arm(name=name, entries=(named,), problem=f"{head.name}: {reason}")
    return Arm(name=name, entries=tuple(entries), notes=tuple(notes))


def _unlike(named: Entry, entry: Entry) -> list[str]:
    if (named.scores is None) != (entry.scores is None):
        return ["only one of the two has per-problem results"]
    return obstacles(named, entry)


def _repeats(entry: Entry, entries: Sequence[Entry]) -> str | None:
    """A second run of one seed is no second draw of the seed noise."""
    twin = next((e for e in entries if entry.head.seed is not None and e.head.seed == entry.head.seed), None)
    return f"it repeats seed {entry.head.seed} of {twin.head.name}" if twin else None


def seed_groups(arms: Sequence[Arm], *, disk: Disk) -> list[list[float]]:
    """Accuracies of every arm of 2+ seeds on disk of the control's task, and of the arms being compared."""
    distinct = {arm.named.head.path.resolve(): arm for arm in arms if arm.problem is None}
    alike = [arm for arm in distinct.values() if not obstacles(arms[0].named, arm.named)]
    groups = [arm.accuracies for arm in alike]
    taken = {entry.head.path.resolve() for arm in alike for entry in arm.entries}
    control = arms[0].named.head
    folders = {arm.named.head.path.parent.resolve(): arm.named.head.path.parent for arm in arms if arm.named.head.run}
    others: dict[str, dict[str, float]] = {}
    for folder in folders.values():
        for head in disk.runs(folder):
            accuracy = summary_accuracy(head)
            same_task = _task(head) == _task(control) and _problems(head) == _problems(control)
            if not (head.finished and same_task) or accuracy is None or head.recipe is None:
                continue
            if head.path.resolve() not in taken:
                others.setdefault(head.recipe, {})[str(head.seed)] = accuracy
    groups += [list(seeds.values()) for seeds in others.values()]
    return [group for group in groups if len(group) > 1]


def _task(head: Head) -> object:
    return head.summary.get("task", head.info.get("task", head.config.get("data.task")))


def _problems(head: Head) -> tuple[object, ...]:
    return head.summary.get("task_hash"), head.summary.get("n"), head.summary.get("split")
