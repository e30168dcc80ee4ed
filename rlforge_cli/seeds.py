"""Fresh seeds of a run and of its control, and what they say: the spread of each, and the recipe-scope verdict.

The run that won a selection is left out of its own confirmation: the best of several equal recipes looks better than
it is. Its fresh seeds are the runs that this command trained for its configuration (run.json: ``purpose`` "seeds"),
and repeats started from it (``train --from RUN --seed N``). A control was not selected, so all its runs count.

A seed that failed is continued, never replaced by another: that would keep only the seeds that survive.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from rlforge_cli import lineage, series, settings
from rlforge_cli.config import Config
from rlforge_cli.errors import UserError
from rlforge_cli.run_dir import RunDir
from rlforge_cli.series import Job, Tools

if TYPE_CHECKING:
    from rlforge_cli.comparison import Comparison

PURPOSE = "seeds"


class Arm(msgspec.Struct, frozen=True):
    """One configuration under several seeds: the runs that count already, and the jobs that are still to do."""

    source: RunDir
    role: str
    """control or run."""
    jobs: list[Job]


class SeedsPlan(msgspec.Struct, frozen=True):
    """What `rlforge seeds` will do. ``arms`` are the control's (where there is one) and the run's."""

    run: RunDir
    control: RunDir | None
    n: int
    arms: list[Arm]

    @property
    def jobs(self) -> list[Job]:
        return [job for arm in self.arms for job in arm.jobs]


class ArmResult(msgspec.Struct, frozen=True):
    """Scores of one arm's seeds, proportions. ``sd`` is the sample SD: one seed shows none."""

    run: str
    role: str
    runs: list[str]
    seeds: list[int]
    accuracies: list[float]
    mean: float | None
    sd: float | None


class SeedsResult(msgspec.Struct, frozen=True):
    """What `rlforge seeds --json` prints."""

    run: str
    control: str | None
    n: int
    arms: list[ArmResult]
    trained: list[str]
    failed: list[dict[str, str]]
    comparison: Comparison | None


def prepare(name: str, *, n: int, control: str | None, runs_dir: Path) -> SeedsPlan:
    """Find out what is there and what is missing; nothing is started.

    Without ``control`` it is the run's recorded parent, where that is another recipe.

    Raises:
        UserError: no such run, a control that is not finished, or one of the same configuration.
    """
    if n < 1:
        raise UserError(f"--n {n}: at least one fresh seed, such as --n 3")
    run = RunDir.find(name, runs_dir)
    config = lineage.run_config(run)
    base = RunDir.find(control, runs_dir) if control else recorded_control(run, config)
    if base is None:
        return SeedsPlan(run, None, n, [Arm(run, "run", fresh_jobs(run, config, n=n, control=None))])
    base_config = lineage.run_config(base)
    if series.same_recipe(base_config, config):
        raise UserError(
            f"{run.id} and its control {base.id} are the same configuration but for the seed: nothing to compare; "
            "name another --control"
        )
    if (status := base.info().get("status")) != "completed":
        raise UserError(f"the control {base.id} is {status}: `rlforge train --resume {base.id}` first")
    arms = [
        Arm(base, "control", control_jobs(base, base_config, n=n)),
        Arm(run, "run", fresh_jobs(run, config, n=n, control=base)),
    ]
    return SeedsPlan(run, base, n, arms)


def recorded_control(run: RunDir, config: Config) -> RunDir | None:
    """The parent that run.json names, where it is there and trained in another way."""
    info = run.info()
    path = run.path.parent / str(info.get("parent"))
    if not info.get("parent") or not (path / "run.json").is_file():
        return None
    parent = RunDir(path)
    return None if series.same_recipe(lineage.run_config(parent), config) else parent


def siblings(source: RunDir, config: Config) -> list[tuple[RunDir, Config]]:
    """The other runs of the folder that are trained in the same way but for the seed, in order of creation."""
    data = source.info().get("task_hash")
    found = []
    for run in RunDir.all(source.path.parent):
        try:
            other = lineage.run_config(run)
        except UserError:  # damaged, or of another version: no sibling
            continue
        if run.path.resolve() == source.path.resolve() or not series.same_recipe(config, other):
            continue
        if None in (data, mine := run.info().get("task_hash")) or mine == data:
            found.append((run, other))
    return found


def is_fresh(info: dict[str, Any], source: RunDir) -> bool:
    """Whether a sibling played no part in choosing ``source``."""
    return info.get("purpose") == PURPOSE or (info.get("parent") == source.id and not info.get("changes"))


def fresh_jobs(source: RunDir, config: Config, *, n: int, control: RunDir | None) -> list[Job]:
    """``n`` or more fresh seeds: those on disk (finished first), then new ones."""
    others = siblings(source, config)
    own = config.train.seed
    fresh = [(run, known) for run, known in others if known.train.seed != own and is_fresh(run.info(), source)]
    return jobs_of(source, config, fresh, others, n=n, control=control)


def control_jobs(source: RunDir, config: Config, *, n: int) -> list[Job]:
    """``n`` or more runs of a control: itself, its finished siblings, what this command left unfinished, new ones."""
    others = siblings(source, config)
    counted = [
        (run, known)
        for run, known in others
        if (info := run.info()).get("status") == "completed" or info.get("purpose") == PURPOSE
    ]
    return jobs_of(source, config, [(source, config), *counted], others, n=n, control=None)


def jobs_of(
    source: RunDir,
    config: Config,
    there: list[tuple[RunDir, Config]],
    others: list[tuple[RunDir, Config]],
    *,
    n: int,
    control: RunDir | None,
) -> list[Job]:
    distinct: dict[int, tuple[RunDir, Config]] = {}
    for run, known in there:
        distinct.setdefault(known.train.seed, (run, known))
    finished = [pair for pair in distinct.values() if pair[0].info().get("status") == "completed"]
    unfinished = [pair for pair in distinct.values() if pair not in finished]
    kept = [*finished, *unfinished[: max(0, n - len(finished))]]
    jobs = [job_of(source, known, run, control) for run, known in distinct.values() if (run, known) in kept]
    taken = {config.train.seed, *(known.train.seed for _, known in others)}
    seed = config.train.seed
    while len(jobs) < n:
        seed += 1
        if seed not in taken:
            train = msgspec.structs.replace(config.train, seed=seed)
            jobs.append(job_of(source, msgspec.structs.replace(config, train=train), None, control))
    return jobs


def job_of(source: RunDir, config: Config, run: RunDir | None, control: RunDir | None) -> Job:
    def start() -> RunDir:
        return lineage.start(
            sibling_plan(source, config, control), source.path.parent, purpose=PURPOSE, seed_of=source.id
        )

    return Job(f"seed {config.train.seed} of {source.id}", config, run, start)


def sibling_plan(source: RunDir, config: Config, control: RunDir | None) -> lineage.Plan:
    """The plan of another seed: the control and the changes are the source's own, or those against ``control``."""
    info = source.info()
    parent = source.path
    changes: list[dict[str, Any]] = []
    if info.get("parent"):
        parent, changes = source.path.parent / str(info["parent"]), info.get("changes") or []
    if control is not None and control.id != parent.name:
        parent = control.path
        # steps that keep the samples equal are no change
        derived = ["train.steps"] if config.train.max_completions else []
        changes = settings.changes(lineage.run_config(control), config, derived=derived)
    return lineage.Plan(config, RunDir(parent), info.get("preset"), changes, [])


def confirm(plan: SeedsPlan, *, tools: Tools, runs_dir: Path) -> SeedsResult:
    """Train and score what is missing, then compare the arms spelled out run by run."""
    done = series.carry_out(plan.jobs, tools=tools)
    left = iter(done.runs)
    arms = [(arm, [run for _ in arm.jobs if (run := next(left)) is not None]) for arm in plan.arms]
    comparison = None
    if plan.control is not None and all(runs for _, runs in arms):
        from rlforge_cli.comparison import Options, compare

        names = [spelled(arm, runs, runs_dir) for arm, runs in arms]
        comparison = compare(names, options=Options(evaluation=series.EVALUATION, runs_dir=runs_dir))
    return SeedsResult(
        run=plan.run.id,
        control=plan.control.id if plan.control else None,
        n=plan.n,
        arms=[scores(arm, runs) for arm, runs in arms],
        trained=done.trained,
        failed=done.failed,
        comparison=comparison,
    )


def spelled(arm: Arm, runs: list[RunDir], runs_dir: Path) -> str:
    """``A1,A2,A3``, or ``A1,`` for a single fresh seed: without its comma it would pull in the run that was chosen."""
    own = runs_dir.resolve()
    names = [run.id if run.path.parent.resolve() == own else str(run.path) for run in runs]
    return ",".join(names) + "," * (len(names) == 1 and arm.role == "run")


def scores(arm: Arm, runs: list[RunDir]) -> ArmResult:
    known = [(run, value) for run in runs if (value := series.accuracy(run)) is not None]
    values = [value for _, value in known]
    return ArmResult(
        run=arm.source.id,
        role=arm.role,
        runs=[run.id for run, _ in known],
        seeds=[lineage.run_config(run).train.seed for run, _ in known],
        accuracies=values,
        mean=statistics.fmean(values) if values else None,
        sd=statistics.stdev(values) if len(values) > 1 else None,
    )


def cost(plan: SeedsPlan) -> dict[str, Any]:
    """What is still to do, predicted from the seconds a step of the arm's own run."""
    sources = {id(job): arm.source for arm in plan.arms for job in arm.jobs}
    return series.cost(plan.jobs, like=lambda job: sources[id(job)])
