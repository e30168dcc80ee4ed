"""Several runs in one process, one after another: train or continue each, score it on test, and go on when one fails.

`seeds` and `rounds` decide which runs; everything about a run is read from its folder, so that the same command again
does only what is missing.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from rlforge_cli import planning, settings
from rlforge_cli.config import Config, completions_per_step
from rlforge_cli.errors import UserError
from rlforge_cli.output import note
from rlforge_cli.planning import planned_completions
from rlforge_cli.run_dir import RunDir

EVALUATION = "test"
"""Name of the evaluation that counts: greedy, on the test split."""


class Tools(msgspec.Struct, frozen=True):
    """How a run is trained (from wherever it stands) and scored; tests give their own."""

    train: Callable[[RunDir, Config], None]
    score: Callable[[RunDir], None]


class Job(msgspec.Struct, frozen=True):
    """A run that must exist, be complete and be scored. Example: ``Job("seed 3", config, run=None, start=...)``."""

    title: str
    config: Config
    run: RunDir | None
    """On disk already, finished or not; None = ``start`` makes it."""
    start: Callable[[], RunDir]

    @property
    def trained(self) -> bool:
        return self.run is not None and self.run.info().get("status") == "completed"

    @property
    def done(self) -> bool:
        return self.trained and self.run is not None and is_scored(self.run)


class Finished(msgspec.Struct, frozen=True):
    """What :func:`carry_out` did: the run of every job (None: it failed), ids trained now, and why others failed."""

    runs: list[RunDir | None]
    trained: list[str]
    failed: list[dict[str, str]]


def tools(*, quiet: bool) -> Tools:
    """Training and scoring in this process."""
    return Tools(train=lambda run, config: train_here(run, config, quiet=quiet), score=score_here)


def train_here(run: RunDir, config: Config, *, quiet: bool) -> None:
    from rlforge_cli.lifecycle import execute

    try:
        execute(run, config, resume=True, quiet=quiet)
    finally:
        free_memory()


def score_here(run: RunDir) -> None:
    """Greedy pass@1 on the whole test split, written into the run."""
    from rlforge_cli import scoring, show

    subject = scoring.find_subject(str(run.path), run.path.parent, checkpoint=None, preset=None, sets=[])
    try:
        with show.bar(f"eval {subject.label}") as progress:
            summary, results = scoring.score(subject, split="test", progress=progress)
    finally:
        free_memory()
    scoring.store(results, summary, run.evals / f"{EVALUATION}.jsonl")


def free_memory() -> None:
    """Give back what a finished run held: the next one needs it."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


def is_scored(run: RunDir) -> bool:
    return all((run.evals / f"{EVALUATION}{end}").is_file() for end in (".json", ".jsonl"))


def carry_out(jobs: Sequence[Job], *, tools: Tools, later: int = 0, before: int = 0) -> Finished:
    """Do what is missing of every job, in order; "[2 of 8]" also counts ``before`` and ``later`` jobs of other calls.

    A run that fails is told, kept in ``failed``, and does not stop the others; an interrupt does (what was finished
    stays, and the same command continues).

    Raises:
        UserError: bad input, or a run that another process is writing.
    """
    runs: list[RunDir | None] = []
    trained: list[str] = []
    failed: list[dict[str, str]] = []
    todo = before + sum(not job.done for job in jobs) + later
    turn = before
    for job in jobs:
        if job.done:
            runs.append(job.run)
            continue
        turn += 1
        run = job.run or job.start()
        reason = None
        try:
            if not job.trained:
                if run.is_locked():
                    raise UserError(
                        f"{run.id} is being trained by pid {run.info().get('pid')}: wait for it, then run this again"
                    )
                note(f"[{turn} of {todo}] {'continue' if job.run else 'train'} {run.id}: {job.title}")
                tools.train(run, job.config)
                trained.append(run.id)
            if not is_scored(run):
                note(f"[{turn} of {todo}] score {run.id} on test")
                tools.score(run)
        except RuntimeError as error:  # RunFailed, and out of memory
            reason = " ".join(str(error).split()) or type(error).__name__
        if reason is not None:
            failed.append({"run": run.id, "what": job.title, "reason": reason})
            note(f"{run.id} failed: {reason}")
            free_memory()  # what the traceback held is free only now
        runs.append(run if reason is None else None)
    return Finished(runs, trained, failed)


def accuracy(run: RunDir) -> float | None:
    """Of the evaluation on test, in 0..1; None where there is none."""
    return (summary(run) or {}).get("accuracy")


def summary(run: RunDir) -> dict[str, Any] | None:
    """The evaluation's summary, None where there is none or it is damaged."""
    try:
        return msgspec.json.decode((run.evals / f"{EVALUATION}.json").read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.MsgspecError):
        return None


def same_recipe(a: Config, b: Config) -> bool:
    """Equal but for the seed, and for what is no part of how a run is trained."""
    return not settings.changes(a, b)


def seconds_a_step(run: RunDir | None) -> float | None:
    """Mean over what a run logged; None where nothing was."""
    records = run.metrics() if run is not None else []
    values = [r["seconds_total"] for r in records if isinstance(r.get("seconds_total"), float)]
    return sum(values) / len(values) if values else None


def cost(jobs: Iterable[Job], *, like: Callable[[Job], RunDir | None]) -> dict[str, Any]:
    """What the jobs still have to do, for ``--dry-run``; ``like`` names a run whose seconds a completion are known.

    ``seconds`` is training alone, predicted from that run, and None where nothing is known; so is ``peak_gib``, the
    largest predicted memory of them, on the device that ``peak_on`` names.
    """
    rows = []
    score = 0
    peaks = []
    for job in jobs:
        score += not job.done
        if job.trained:
            continue
        planned = planning.plan(job.config)
        peaks.append((planned.get("predicted_peak_gib"), planned.get("predicted_for")))
        records = job.run.metrics() if job.run else []
        left = job.config.train.steps - (records[-1]["step"] if records else 0)
        completions = min(left * completions_per_step(job.config), planned_completions(job.config))
        known = like(job)
        pace = seconds_a_step(known)
        seconds = None
        if known is not None and pace is not None:
            per_step = completions_per_step(settings.build(known.config(), where=str(known.config_file)))
            seconds = pace / per_step * completions
        rows.append(
            {
                "run": job.run.id if job.run else None, "what": job.title, "seed": job.config.train.seed,
                "steps": left, "completions": completions, "seconds": seconds,
            }
        )  # fmt: skip
    times = [row["seconds"] for row in rows]
    peak = max((facts for facts in peaks if facts[0] is not None), default=(None, None))
    return {
        "train": rows,
        "score": score,
        "completions": sum(row["completions"] for row in rows),
        "seconds": None if None in times else sum(times),
        "peak_gib": peak[0],
        "peak_on": peak[1],
    }
