"""Run a study: the control, then every arm of every round that is not there yet, then the comparison of all.

What is there is read from the runs folder: a run belongs to a study when run.json names the study and its
configuration and seed are the planned ones. So a second call, or one after an interrupt, does only what is missing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from rlforge_cli import lineage, series, settings
from rlforge_cli.config import Config
from rlforge_cli.errors import RunFailed, UserError
from rlforge_cli.planning import planned_completions
from rlforge_cli.run_dir import RunDir
from rlforge_cli.series import Job, Tools
from rlforge_cli.study import ArmSpec, RoundSpec, Study, arm_config, control_config, unstated

if TYPE_CHECKING:
    from rlforge_cli.comparison import Comparison

PURPOSE = "study"
Report = Callable[[Sequence[RunDir], Path], tuple[Path, Path]]
"""Writes the report about runs beside a path; returns the Markdown and the HTML file."""


class PlannedArm(msgspec.Struct, frozen=True):
    """An arm and its jobs, one a seed. The control is an arm without round and spec."""

    name: str
    part: RoundSpec | None
    spec: ArmSpec | None
    jobs: list[Job]

    @property
    def run(self) -> RunDir | None:
        """The run that names the arm in a comparison: its first one that is scored, else its first one."""
        runs = [job.run for job in self.jobs if job.run is not None]
        return next((run for run in runs if series.is_scored(run)), runs[0] if runs else None)


class StudyPlan(msgspec.Struct, frozen=True):
    """A study and what of it is on disk."""

    study: Study
    runs_dir: Path
    control: PlannedArm
    arms: list[PlannedArm]

    @property
    def jobs(self) -> list[Job]:
        return [job for arm in [self.control, *self.arms] for job in arm.jobs]

    @property
    def runs(self) -> list[RunDir]:
        """One run an arm, the control's first; other seeds of an arm come with it."""
        return [arm.run for arm in [self.control, *self.arms] if arm.run is not None]

    @property
    def report_file(self) -> Path:
        return self.runs_dir / f"{self.study.name}.md"


class Conducted(msgspec.Struct, frozen=True):
    """What running a study did. ``plan`` is as it stands afterwards."""

    plan: StudyPlan
    trained: list[str]
    failed: list[dict[str, str]]
    comparison: Comparison | None
    report: tuple[Path, Path] | None


def prepare(study: Study, *, runs_dir: Path) -> StudyPlan:
    """Every run that the study needs, found on disk or still to start. Checks all configurations; starts nothing.

    Raises:
        UserError: whatever is wrong with a configuration, or two arms that are the same.
    """
    known = labelled(study, runs_dir)
    base: RunDir | None = None
    control_jobs: list[Job] = []
    first = control_config(study, study.control_seeds[0])
    for seed in study.control_seeds:
        config = control_config(study, seed)
        run = match(known, config)
        control_jobs.append(
            Job(title(seed, study.control_seeds, "control"), config, run, starter(study, config, None, runs_dir))
        )
        base = base or run
    control = PlannedArm("control", None, None, control_jobs)
    arms: list[PlannedArm] = []
    recipes: list[tuple[str, Config]] = []
    for part, spec in study.arms():
        jobs = []
        for seed in study.arm_seeds(spec):
            config, changes = arm_config(study, spec, control=first, seed=seed, completions=spent(control_jobs[0]))
            what = title(seed, study.arm_seeds(spec), f"{spec.name} (round {part.name})")
            jobs.append(
                Job(what, config, match(known, config), starter(study, config, (part, spec, base, changes), runs_dir))
            )
        twin = next((name for name, other in recipes if series.same_recipe(jobs[0].config, other)), None)
        if twin:
            raise UserError(
                f"arms {twin!r} and {spec.name!r} of study {study.name} are the same configuration: leave one out"
            )
        recipes.append((spec.name, jobs[0].config))
        arms.append(PlannedArm(spec.name, part, spec, jobs))
    return StudyPlan(study, runs_dir, control, arms)


def title(seed: int, seeds: Sequence[int], name: str) -> str:
    return name if len(seeds) == 1 else f"{name}, seed {seed}"


def labelled(study: Study, runs_dir: Path) -> list[tuple[RunDir, Config]]:
    """The runs on disk that this study started."""
    found = []
    for run in RunDir.all(runs_dir):
        # a damaged run cannot be continued: it is trained again
        with contextlib.suppress(UserError):
            if run.info().get("study") == study.name:
                found.append((run, lineage.run_config(run)))
    return found


def match(known: Sequence[tuple[RunDir, Config]], config: Config) -> RunDir | None:
    """The run of that configuration and seed; a completed one first."""
    same = [
        run
        for run, other in known
        if (other.train.seed, other.data.path) == (config.train.seed, config.data.path)
        and series.same_recipe(other, config)
    ]
    completed = [run for run in same if run.info().get("status") == "completed"]
    return next(iter([*completed, *same]), None)


def spent(control: Job) -> int:
    """Completions that the control generated, or will."""
    counted = (control.run.info().get("budget") or {}).get("completions_generated") if control.run else None
    return counted if control.trained and counted else planned_completions(control.config)


def starter(
    study: Study,
    config: Config,
    arm: tuple[RoundSpec, ArmSpec, RunDir | None, list[dict[str, Any]]] | None,
    runs_dir: Path,
) -> Callable[[], RunDir]:
    preset = study.control.preset or settings.default_preset()
    labels: dict[str, Any] = {"purpose": PURPOSE, "study": study.name}
    if arm is None:
        plan = lineage.Plan(config, None, preset, [], [])
        return lambda: lineage.start(plan, runs_dir, **labels, arm="control")
    part, spec, base, changes = arm
    plan = lineage.Plan(config, base, preset, changes, [])
    labels |= {"round": part.name, "hypothesis": part.hypothesis, "phenomenon": spec.phenomenon, "expect": spec.expect}
    return lambda: lineage.start(plan, runs_dir, **labels, arm=spec.name)


def conduct(study: Study, *, runs_dir: Path, tools: Tools, report: Report) -> Conducted:
    """Train and score what is missing, control first; compare; write the report.

    Raises:
        UserError: something is not stated beforehand, or a configuration is wrong.
        RunFailed: the control failed: there is nothing to compare with.
    """
    if missing := unstated(study):
        raise UserError(f"study {study.name}: {missing[0]}: write it down before it runs (rlforge rounds FILE --hint)")
    plan = prepare(study, runs_dir=runs_dir)
    first = sum(not job.done for job in plan.control.jobs)
    later = sum(not job.done for arm in plan.arms for job in arm.jobs)
    done = series.carry_out(plan.control.jobs, tools=tools, later=later)
    if not any(done.runs):
        raise RunFailed(
            f"the control failed, so no arm was started: {done.failed[0]['run']}: {done.failed[0]['reason']}"
        )
    # only now is it known what the control spent, which equal samples follow
    plan = prepare(study, runs_dir=runs_dir)
    rest = series.carry_out([job for arm in plan.arms for job in arm.jobs], tools=tools, before=first)
    plan = prepare(study, runs_dir=runs_dir)
    written = report(plan.runs, plan.report_file)
    return Conducted(plan, done.trained + rest.trained, done.failed + rest.failed, judged(plan), written)


def judged(plan: StudyPlan) -> Comparison | None:
    """The comparison of everything that is there, None while the control or every arm is missing."""
    from rlforge_cli.comparison import Options, compare

    control = plan.control.run
    if control is None or not series.is_scored(control) or len(plan.runs) < 2:
        return None
    options = Options(evaluation=series.EVALUATION, runs_dir=plan.runs_dir)
    return compare([run.id for run in plan.runs], options=options)


def cost(plan: StudyPlan) -> dict[str, Any]:
    """What is still to do. Seconds are predicted from the control, else from any run of the same model and length."""

    def like(job: Job) -> RunDir | None:
        if plan.control.run is not None and series.seconds_a_step(plan.control.run):
            return plan.control.run
        for run in RunDir.all(plan.runs_dir):
            try:
                config = lineage.run_config(run)
            except UserError:
                continue
            same = config.model == job.config.model and config.rollout.max_tokens == job.config.rollout.max_tokens
            if same and series.seconds_a_step(run):
                return run
        return None

    return series.cost(plan.jobs, like=like)


def write_report(runs: Sequence[RunDir], out: Path) -> tuple[Path, Path]:
    """The report about the study's runs."""
    from rlforge_cli import report

    return report.write_report(runs, runs_dir=out.parent, out=out)


def as_json(done: Conducted, rounds: Sequence[Any], proposal: Any) -> dict[str, Any]:
    """What `rlforge rounds --json` prints."""
    control = done.plan.control.run
    return {
        "study": done.plan.study.name,
        "control": control.id if control else None,
        "rounds": rounds,
        "proposal": proposal,
        "trained": done.trained,
        "failed": done.failed,
        "comparison": done.comparison,
        "report": [str(path) for path in done.report] if done.report else None,
    }
