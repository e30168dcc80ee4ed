"""A run from start to end, whatever the end is: run.json always says which, and no finished step is lost."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sys
import time
from pathlib import Path
from typing import Any

from rlforge_cli import checkpoint
from rlforge_cli.config import Config
from rlforge_cli.distributed import ALONE, Ranks
from rlforge_cli.errors import Collapsed, NotNumbers, RunFailed, Terminated, UserError
from rlforge_cli.experiment import Experiment
from rlforge_cli.lineage import refuse_finished
from rlforge_cli.output import note
from rlforge_cli.progress import Progress
from rlforge_cli.provenance import git_commit, now, versions
from rlforge_cli.run_dir import RunDir
from rlforge_cli.run_log import Silent, Writers


def execute(
    run: RunDir, config: Config, *, resume: bool = False, quiet: bool = False, ranks: Ranks = ALONE
) -> dict[str, Any]:
    """Run (or continue) to the end, whatever the end is; run.json always says which. The first rank does the writing.

    Returns:
        The JSON object of `rlforge train`.

    Raises:
        UserError: found before the first step; RunFailed: the run itself failed; KeyboardInterrupt, Terminated.
    """
    try:
        return _execute(run, config, resume=resume, quiet=quiet, ranks=ranks)
    except UserError:
        # bad input that shows only with the model at hand: as if the run had never been started
        new = not resume and not any(record["step"] > 0 for record in run.metrics())
        if new and ranks.first and not run.is_locked():
            shutil.rmtree(run.path, ignore_errors=True)
        raise
    except OSError as error:
        raise RunFailed(f"{run.path}: {error.strerror or error}; the run can be continued with --resume") from error


def _execute(run: RunDir, config: Config, *, resume: bool, quiet: bool, ranks: Ranks) -> dict[str, Any]:
    with contextlib.ExitStack() as held:

        def claim() -> None:
            held.enter_context(run.writing())
            if resume:  # under the lock: another process may have finished the run since it was looked at
                refuse_finished(run, config)
            mark_running(run)

        ranks.in_first(claim)
        held.enter_context(ranks.stoppable())
        experiment = None
        writers: Writers | Silent | None = None
        begin = time.perf_counter()
        try:
            left, path = ranks.in_first(lambda: look_at_checkpoints(run))
            experiment = Experiment(run, config, ranks=ranks)
            if resume and path is not None:
                experiment.restore(path)
            done = experiment.trainer.step
            after = done or -1  # the validation before the first step is step 0
            writers = ranks.together(lambda: Writers(run, config, after=after) if ranks.first else Silent())
            devices = ranks.gather(device_name(experiment.policy.device))
            if ranks.first:
                facts = experiment_facts(experiment)
                run.update_info(device=devices[0], processes=ranks.size, devices=devices, **facts)
            quiet = quiet or not ranks.first
            with Progress(run.id, total=config.train.steps, done=done, quiet=quiet) as progress:
                for path in left:
                    progress.note(f"warning: {path} is an incomplete checkpoint of an interrupted save; removed")
                if experiment.too_long:
                    progress.note(f"note: {experiment.too_long} train problems are over max_prompt_tokens and left out")
                experiment.train(progress, writers)
            experiment.finish()
        except (KeyboardInterrupt, Terminated):
            saved = save_if_whole(experiment, run)
            if ranks.first:
                record_end(run, "interrupted", f"stopped by a signal; {saved}", experiment)
                note(f"{run.id} interrupted; {saved}; continue with: rlforge train --resume {run.id}")
            raise
        except BaseException as error:
            # of several ranks another one may be gone
            if ranks is ALONE and experiment is not None and experiment.trainer.step and worth_saving(error):
                with contextlib.suppress(OSError, RunFailed):
                    note(f"{run.id} failed; {save_if_whole(experiment, run)}")
            if ranks.first:
                record_end(run, "failed", f"{type(error).__name__}: {error}"[:2000], experiment)
            raise
        finally:
            if writers is not None:
                with contextlib.suppress(OSError):  # a full disk was reported already
                    writers.close()
            if experiment is not None:
                experiment.trainer.engine.close()
        if ranks.first:
            run.update_info(status="completed", finished=now(), reason=None, **totals(experiment))
    return report(run, wall_s=time.perf_counter() - begin)


def look_at_checkpoints(run: RunDir) -> tuple[list[Path], Path | None]:
    """What interrupted saves left (removed now), and the newest complete checkpoint."""
    with checkpoint.clean_start(run.checkpoints) as left:
        pass
    return left, checkpoint.last_checkpoint(run.checkpoints)


def record_end(run: RunDir, status: str, reason: str, experiment: Experiment | None) -> None:
    """How a run ended, into run.json; on a full disk the message on stderr has to do."""
    try:
        run.update_info(status=status, finished=now(), reason=reason, **totals(experiment))
    except OSError as error:
        note(f"warning: {run.run_file} could not be written ({error.strerror}): its status stays as it was")


def mark_running(run: RunDir) -> None:
    for left in run.path.glob(".run.json.*.tmp"):  # of a process that was killed while it wrote
        left.unlink(missing_ok=True)
    run.update_info(
        status="running", pid=os.getpid(), host=socket.gethostname(), started=now(), finished=None, reason=None,
        versions=versions(), git_commit=git_commit(), command=sys.argv[1:],
    )  # fmt: skip


def experiment_facts(experiment: Experiment) -> dict[str, Any]:
    from rlforge_cli.tasks.base import problems_hash

    task = experiment.task
    return {
        "task": task.name,
        "task_hash": problems_hash([*task.problems("train"), *task.problems("validation"), *task.problems("test")]),
        "trainable_parameters": sum(p.numel() for p in experiment.policy.trainable().values()),
    }


def totals(experiment: Experiment | None) -> dict[str, Any]:
    if experiment is None:
        return {}
    return {"budget": experiment.trainer.budget, "best": experiment.best, "steps": experiment.trainer.step}


def worth_saving(error: BaseException) -> bool:
    """Whether the weights of the last finished step are good in spite of it."""
    return isinstance(error, Exception) and not isinstance(error, (Collapsed, NotNumbers, OSError))


def save_if_whole(experiment: Experiment | None, run: RunDir) -> str:
    """On an interrupt or a failure: keep every finished step, unless weights lie between two steps."""
    last = checkpoint.last_checkpoint(run.checkpoints)
    standing = f"{last.name} stands" if last is not None else "nothing was saved yet"
    if experiment is None or experiment.trainer.step == 0:
        return standing
    if not experiment.trainer.between_steps:
        done = experiment.trainer.step - (checkpoint.step_of(last) if last is not None else 0)
        return f"stopped in the middle of an update, so {done} finished step(s) are lost; {standing}"
    if last is not None and checkpoint.step_of(last) == experiment.trainer.step:
        return standing
    path = experiment.save_checkpoint()
    return f"saved as {path.name}"


def device_name(device: Any) -> str:
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu ({torch.get_num_threads()} threads)"


def report(run: RunDir, *, wall_s: float) -> dict[str, Any]:
    """What `rlforge train --json` prints."""
    records = [record for record in run.metrics() if record["step"] > 0]
    last = records[-1] if records else {}
    info = run.info()

    def per_step(name: str) -> float | None:
        values = [r[f"seconds_{name}"] for r in records if r.get(f"seconds_{name}") is not None]
        return sum(values) / len(values) if values else None

    return {
        "run": run.id,
        "path": str(run.path),
        "status": info["status"],
        "steps": last.get("step", 0),
        "final": {key: value for key, value in last.items() if key != "step" and not key.startswith("seconds_")},
        "best": info.get("best"),
        "wall_s": wall_s,
        "seconds_per_step": {name: per_step(name) for name in ("rollout", "train", "sync", "total")},
    }
