"""A study file: a control, and rounds of arms that each change one thing, with what is expected said beforehand.

Example (TOML)::

    name = "group-size"
    [control]
    preset = "tiny-arith"
    [[rounds]]
    name = "G"
    hypothesis = "8 completions a group are enough"
    expectation = "twice as many change nothing at equal samples"
    [[rounds.arms]]
    name = "G16"
    set = ["G=16"]
    expect = "no_material_difference"
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from rlforge_cli import settings
from rlforge_cli.config import Config
from rlforge_cli.errors import UserError, nearest
from rlforge_cli.planning import equal_samples
from rlforge_cli.rewards import check_reward

SHIPPED = ("three-rounds",)
"""Studies among the presets, known by name."""
Expect = Literal["better", "worse", "no_material_difference"]
Budget = Literal["samples", "steps"]


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of the file."""


class ControlSpec(Table, frozen=True):
    """What every arm is compared with: a preset (default: the default preset) and ``key=value`` texts."""

    preset: str | None = None
    set: tuple[str, ...] = ()
    seeds: tuple[int, ...] | None = None


class ArmSpec(Table, frozen=True):
    """The control plus one change."""

    name: str
    set: tuple[str, ...]
    expect: Expect | None = None
    """What the verdict will be, said before it runs."""
    phenomenon: str = ""
    """What was seen that this change is about; a change of the reward must name one."""
    budget: Budget | None = None
    seeds: tuple[int, ...] | None = None
    several: bool = False
    """More than one change on purpose: what it does cannot be attributed to one of them."""


class RoundSpec(Table, frozen=True):
    name: str
    hypothesis: str = ""
    expectation: str = ""
    """What is expected, in words."""
    arms: tuple[ArmSpec, ...] = ()
    conclusion: str = ""
    """What the user concluded, written after the round."""


class Study(Table, frozen=True):
    """A whole file. ``name`` marks the study's runs, so that they are found again."""

    name: str = ""
    control: ControlSpec = ControlSpec()
    rounds: tuple[RoundSpec, ...] = ()
    budget: Budget = "samples"
    """samples: as many steps as the control's generated completions pay for; steps: as many steps."""
    seeds: tuple[int, ...] = (0,)

    @property
    def control_seeds(self) -> tuple[int, ...]:
        return self.control.seeds or self.seeds

    def arm_seeds(self, arm: ArmSpec) -> tuple[int, ...]:
        return arm.seeds or self.seeds

    def arms(self) -> Iterator[tuple[RoundSpec, ArmSpec]]:
        """Every arm with its round, in order."""
        return ((part, arm) for part in self.rounds for arm in part.arms)


def study_path(name: str) -> Path:
    """A file by path, or a shipped study by name.

    Raises:
        UserError: neither.
    """
    if name in SHIPPED and not Path(name).is_file():
        return settings.presets_dir() / f"{name}.toml"
    if not Path(name).is_file():
        raise UserError(f"study {name!r}: no such file{nearest(name, SHIPPED)}; give a .toml file or a shipped study")
    return Path(name)


def copy_study(name: str, target: Path) -> None:
    """The file of a study under another name, to be edited.

    Raises:
        UserError: no such study, or ``target`` is there already or cannot be written.
    """
    text = study_path(name).read_bytes()
    try:
        with open(target, "xb") as file:
            file.write(text)
    except OSError as error:
        raise UserError(f"--copy {target}: cannot be written: {error.strerror}") from None


def load_study(name: str, *, preset: str | None = None, sets: Sequence[str] = ()) -> Study:
    """The study in a file, on another ``preset`` and with more ``sets`` for its control where they are given.

    Raises:
        UserError: no such file, an unknown key, a wrong type, or names that are missing or used twice.
    """
    path = study_path(name)
    try:
        study = msgspec.convert(settings.read_toml(path), type=Study)
    except msgspec.ValidationError as error:
        raise UserError(f"{path}: {explained(str(error))}") from None
    control = study.control
    beside = path.parent / (control.preset or "")
    own = str(beside) if beside.suffix == ".toml" and beside.is_file() else control.preset
    control = msgspec.structs.replace(control, preset=preset or own, set=(*control.set, *sets))
    study = msgspec.structs.replace(study, name=study.name or path.stem, control=control)
    if not re.fullmatch(r"[\w.-]+", study.name):
        raise UserError(
            f"{path}: name = {study.name!r}: use letters, digits, '.', '-' and '_' only: files are named so"
        )
    for part, arm in study.arms():
        if not arm.set:
            raise UserError(
                f'{path}: arm {arm.name!r} of round {part.name!r} changes nothing: give set = ["key=value"]'
            )
    if not any(True for _ in study.arms()):
        raise UserError(f"{path}: there is no arm; write [[rounds]] and below it [[rounds.arms]]")
    for what, names in (
        ("rounds", [part.name for part in study.rounds]),
        ("arms", ["control", *(arm.name for _, arm in study.arms())]),
    ):
        twice = [name for index, name in enumerate(names) if name in names[:index]]
        if twice:
            raise UserError(f"{path}: two {what} are called {twice[0]!r}: give one another name")
    for seeds in (study.seeds, study.control_seeds, *(study.arm_seeds(arm) for _, arm in study.arms())):
        if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0:
            raise UserError(
                f"{path}: seeds = {list(seeds)}: give one or more different whole numbers, such as [0, 1, 2]"
            )
    return study


def explained(message: str) -> str:
    """msgspec's complaint in the file's own words, with the nearest key for an unknown one."""
    text, _, where = message.partition(" - at `")
    where = where.rstrip("`")
    unknown = re.fullmatch(r"Object contains unknown field `(.*)`", text)
    if unknown:
        table: type[Table] = Study
        for mark, kind in ((".control", ControlSpec), (".rounds[", RoundSpec), (".arms[", ArmSpec)):
            table = kind if mark in where else table
        return f"{place(where)}no such key {unknown[1]!r}{nearest(unknown[1], table.__struct_fields__)}"
    choice = re.fullmatch(r"Invalid enum value '(.*)'", text)
    if choice:
        valid = get_args(Expect) if where.endswith("expect") else get_args(Budget)
        return f"{place(where)}{choice[1]!r} is not a choice{nearest(choice[1], valid)}"
    text = text.replace("Object missing required field", "missing key").replace("Expected `array`", "expected a list")
    return f"{place(where)}{text[:1].lower()}{text[1:]}"


def place(where: str) -> str:
    """``$.rounds[0].arms[1].set`` -> ``round 1, arm 2, set: ``."""
    parts = [part for part in where.removeprefix("$").split(".") if part]
    shown = [
        re.sub(r"^(round|arm)s\[(\d+)\]$", lambda m: f"{m[1]} {int(m[2]) + 1}", re.sub(r"\[\.\.\.\]$", "", part))
        for part in parts
    ]
    return ", ".join(shown) + ": " if shown else ""


def unstated(study: Study) -> list[str]:
    """What must be said before anything runs, and is not yet: hypotheses, expectations, phenomena."""
    missing = []
    for part in study.rounds:
        if not part.hypothesis.strip():
            missing.append(f"round {part.name!r} states no hypothesis")
        for arm in part.arms:
            if arm.expect is None:
                missing.append(f"arm {arm.name!r} states no expect (better, worse or no_material_difference)")
            if not arm.phenomenon.strip() and any(key.startswith("reward.") for key in keys_of(arm)):
                missing.append(f"arm {arm.name!r} changes the reward and names no phenomenon that it targets")
    return missing


def keys_of(arm: ArmSpec) -> list[str]:
    return [settings.parse_set(text)[0] for text in arm.set]


def control_config(study: Study, seed: int) -> Config:
    """The control's configuration.

    Raises:
        UserError: an unknown preset, key or value.
    """
    sets = [*study.control.set, "run.name=control", f"train.seed={seed}"]
    try:
        config = settings.load(study.control.preset, sets=sets)
        check_reward(config.reward, config.rollout.max_tokens)
        return config
    except UserError as error:
        raise UserError(f"control of study {study.name}: {error}") from None


def arm_config(
    study: Study, arm: ArmSpec, *, control: Config, seed: int, completions: int
) -> tuple[Config, list[dict[str, Any]]]:
    """An arm's configuration and its changes from the control, which generated ``completions``.

    Raises:
        UserError: not exactly one change, a key that the budget decides, or whatever is wrong with a key or value.
    """
    budget = arm.budget or study.budget
    try:
        if "train.steps" in keys_of(arm) or "train.seed" in keys_of(arm):
            raise UserError("steps follow from `budget` and seeds from `seeds`: leave them out of `set`")
        config = settings.load(base=control, sets=[*arm.set, f"run.name={arm.name}", f"train.seed={seed}"])
        note = msgspec.structs.replace(config.run, note=arm.phenomenon)
        config = msgspec.structs.replace(config, run=note)
        if budget == "samples":
            config = equal_samples(config, control_completions=completions)
        check_reward(config.reward, config.rollout.max_tokens)
    except UserError as error:
        raise UserError(f"arm {arm.name!r} of study {study.name}: {error}") from None
    changes = settings.changes(control, config, derived=["train.steps"] if budget == "samples" else [])
    if not changes:
        raise UserError(
            f"arm {arm.name!r} of study {study.name} changes nothing: {', '.join(arm.set)} is the control's own"
        )
    if len(changes) > 1 and not arm.several:
        keys = ", ".join(change["key"] for change in changes)
        raise UserError(
            f"arm {arm.name!r} of study {study.name} changes {len(changes)} things ({keys}): a difference could not be "
            "attributed to one; make it several arms, or say several = true"
        )
    return config, changes
