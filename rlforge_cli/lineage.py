"""Where a run comes from: its control, what it changed, and a budget equal to the control's."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from rlforge_cli import settings
from rlforge_cli.config import Config
from rlforge_cli.errors import UserError
from rlforge_cli.planning import equal_samples, planned_completions
from rlforge_cli.run_dir import RunDir


class Plan(msgspec.Struct, frozen=True):
    """A run that could start: its configuration, its control (a run or the preset itself) and its changes."""

    config: Config
    control: RunDir | None
    preset: str | None
    changes: list[dict[str, Any]]
    notes: list[str]


def run_config(run: RunDir) -> Config:
    """The configuration of a run on disk.

    Raises:
        UserError: written by another version, or damaged.
    """
    return settings.build(run.config(), where=str(run.config_file))


def find_control(config: Config, runs_dir: Path) -> RunDir | None:
    """The first run whose configuration is ``config`` but for the seed: the unchanged preset."""
    for run in RunDir.all(runs_dir):
        try:
            known = run_config(run)
        except UserError:
            continue
        if not settings.changes(config, known) and run.info().get("status") != "failed":
            return run
    return None


def prepare(
    *,
    runs_dir: Path,
    preset: str | None = None,
    base: str | None = None,
    control: str | None = None,
    sets: Sequence[str] = (),
    seed: int | None = None,
    budget: str | None = None,
) -> Plan:
    """Resolve a run from the command line's words.

    ``base`` is a run to start from (``--from``), ``budget`` "samples", "steps" or None (steps as configured).

    Raises:
        UserError: whatever is wrong with any of them.
    """
    if preset and base:
        raise UserError("--preset and --from exclude each other: a run starts from one of them")
    base_run = RunDir.find(base, runs_dir) if base else None
    start = run_config(base_run) if base_run else settings.load(preset)
    name = None if base_run else preset or settings.default_preset()
    sets = [*sets, *([f"train.seed={seed}"] if seed is not None else [])]
    config = settings.load(name, base=start if base_run else None, sets=sets)
    control_run = RunDir.find(control, runs_dir) if control else base_run or find_control(start, runs_dir)
    control_config = run_config(control_run) if control_run else start
    derived: list[str] = []
    notes: list[str] = []
    if budget == "samples":
        if any(settings.full_key(text.partition("=")[0].strip()) == "train.steps" for text in sets if "=" in text):
            raise UserError("--equal-samples derives train.steps from the control's budget: leave out --set steps")
        spent = (control_run.info().get("budget") or {}).get("completions_generated") if control_run else None
        finished = control_run is not None and control_run.info().get("status") == "completed"
        config = equal_samples(
            config, control_completions=(spent if finished and spent else planned_completions(control_config))
        )
        derived = ["train.steps"]
    elif budget == "steps":
        train = msgspec.structs.replace(config.train, steps=control_config.train.steps, max_completions=0)
        config = msgspec.structs.replace(config, train=train)
    changed = settings.changes(control_config, config, derived=derived)
    if len(changed) > 1:
        keys = ", ".join(change["key"] for change in changed)
        notes.append(
            f"{len(changed)} things changed at once ({keys}): a difference cannot be attributed to one of them"
        )
    if budget != "samples" and planned_completions(config) != planned_completions(control_config):
        notes.append(
            f"sample budgets differ: this run plans {planned_completions(config)} completions, its control "
            f"{planned_completions(control_config)}; --equal-samples makes them equal"
        )
    if config.rollout.top_p < 1 or config.rollout.top_k:
        notes.append(
            "top_p/top_k: samples come from a truncated distribution that the trainer does not have; "
            "kl_sampling shows the gap"
        )
    return Plan(config, control_run, name, changed, notes)


def start(plan: Plan, runs_dir: Path, **labels: Any) -> RunDir:
    """A new run directory for ``plan``, ready to be executed; ``labels`` are more keys of its run.json."""
    run = RunDir.create(runs_dir)
    try:
        run.write_config(msgspec.to_builtins(plan.config))
        run.update_info(
            id=run.id, status="created", seed=plan.config.train.seed, preset=plan.preset,
            parent=plan.control.id if plan.control else None, changes=plan.changes,
            name=plan.config.run.name, note=plan.config.run.note,
            budget={"completions_generated": 0, "completions_trained": 0, "tokens_generated": 0}, **labels,
        )  # fmt: skip
    except OSError as error:
        shutil.rmtree(run.path, ignore_errors=True)
        raise UserError(f"{runs_dir}: cannot hold a run: {error.strerror}; choose another with --runs-dir") from None
    return run


def resumed(name: str, runs_dir: Path, *, sets: Sequence[str] = ()) -> tuple[RunDir, Config]:
    """A run to continue; ``sets`` may only give it more steps, and only where the schedule does not depend on them.

    Raises:
        UserError: no such run, a key that would change what the run is, or nothing left to do.
    """
    run = RunDir.find(name, runs_dir)
    config = run_config(run)
    before = config.train.steps
    for text in sets:
        key, value = settings.parse_set(text)
        if key != "train.steps":
            raise UserError(
                f"--resume with --set {text}: a run is continued as it is; start another with --from {run.id}"
            )
        if config.optimizer.schedule != "constant":
            raise UserError(
                f"--resume with --set {text}: the {config.optimizer.schedule} schedule of {run.id} was planned over "
                f"{config.train.steps} steps; start another run with --from {run.id}"
            )
        config = settings.load(base=config, sets=[f"{key}={value}"])
    refuse_finished(run, config)
    if sets:
        run.write_config(msgspec.to_builtins(config))
        run.update_info(changes=with_steps(run.info().get("changes") or [], before=before, after=config.train.steps))
    return run, config


def with_steps(changes: Sequence[dict[str, Any]], *, before: int, after: int) -> list[dict[str, Any]]:
    """The recorded changes of a run that was to take ``before`` steps and now takes ``after``."""
    first = next((c["from"] for c in changes if c.get("key") == "train.steps"), before)
    others = [c for c in changes if c.get("key") != "train.steps"]
    return others if first == after else [*others, {"key": "train.steps", "from": first, "to": after}]


def refuse_finished(run: RunDir, config: Config) -> None:
    """Refuse to continue a run that has nothing left to do.

    Raises:
        UserError: all its steps are done.
    """
    info = run.info()
    if info.get("status") == "completed" and info.get("steps", 0) >= config.train.steps:
        raise UserError(f"{run.id} has completed {info['steps']} steps; give it more with --set steps=N")
