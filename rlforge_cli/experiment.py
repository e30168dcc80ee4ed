"""A run from configuration to finished artifacts: start, resume, train, validate, keep the best, finish or fail."""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from rlforge_cli import __version__, checkpoint, difficulty
from rlforge_cli.collapse import CollapseWatch
from rlforge_cli.config import Config
from rlforge_cli.engines.choose import make_engine, require_engine
from rlforge_cli.errors import RunFailed, Terminated, UserError
from rlforge_cli.output import note
from rlforge_cli.run_dir import LineWriter, RunDir

if TYPE_CHECKING:
    from rlforge_cli.model import Policy
    from rlforge_cli.progress import Progress
    from rlforge_cli.prompts import PromptEncoder
    from rlforge_cli.tasks.base import Problem, Task
    from rlforge_cli.trainer import Trainer


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM raises :class:`rlforge_cli.errors.Terminated` in the main thread, so that a run ends in order."""

    def stop(*_: object) -> None:
        raise Terminated

    try:
        before = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def versions() -> dict[str, str]:
    from importlib.metadata import version

    names = ("torch", "transformers", "peft", "vllm", "bitsandbytes", "numpy")
    found = {"rlforge": __version__, "python": platform.python_version()}
    for name in names:
        with contextlib.suppress(ImportError):
            found[name] = version(name)
    return found


def git_commit() -> str | None:
    """The commit of the current folder, or None outside a repository."""
    try:
        done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def preflight(config: Config) -> None:
    """What can be known to be wrong before a run's folder exists: reward, task, device, model, engine.

    Raises:
        UserError: the first of them that is.
    """
    from transformers import AutoConfig

    from rlforge_cli.engines.hf import unsupported_reason
    from rlforge_cli.model import load_pretrained, model_source, quiet_transformers, resolve_device
    from rlforge_cli.rewards import check_reward
    from rlforge_cli.tasks.registry import load_task

    check_reward(config.reward, config.rollout.max_tokens)
    difficulty.chosen(load_task(config.data).problems("train"), config.data)
    resolve_device(config.model.device)
    require_engine(config)
    with quiet_transformers():
        architecture = load_pretrained(AutoConfig, model_source(config.model.path))
    if reason := unsupported_reason(architecture):
        raise UserError(f"model.path = {config.model.path!r}: the hf engine cannot decode it: {reason}")


class Experiment:
    """A run in memory: its folder, its parts, and the loop around :meth:`Trainer.train_step`."""

    def __init__(self, run: RunDir, config: Config) -> None:
        from rlforge_cli.prompts import PromptEncoder
        from rlforge_cli.rewards import check_reward
        from rlforge_cli.tasks.registry import load_task

        check_reward(config.reward, config.rollout.max_tokens)
        self.run = run
        self.config = config
        self.task: Task = load_task(config.data)
        self.started = time.perf_counter()
        policy = self._load_policy()
        self.policy = policy
        self.encoder: PromptEncoder = PromptEncoder(
            policy.tokenizer, config.prompt, max_tokens=config.rollout.max_prompt_tokens
        )
        self.trainer: Trainer = self._make_trainer()
        self.best: dict[str, Any] = {"step": None, "val_accuracy": None}

    def _load_policy(self) -> Policy:
        from rlforge_cli.model import load_policy

        return load_policy(self.config.model)

    def _make_trainer(self) -> Trainer:
        from rlforge_cli.trainer import Trainer

        train = difficulty.chosen(self.task.problems("train"), self.config.data)
        self.problems = self.encoder.fitting(train)
        self.too_long = len(train) - len(self.problems)
        return Trainer(
            self.config, policy=self.policy, engine=make_engine(self.config, self.policy), task=self.task,
            encoder=self.encoder, problems=self.problems,
        )  # fmt: skip

    @property
    def validation(self) -> Sequence[Problem]:
        problems = self.encoder.fitting(self.task.problems("validation"))
        return problems[: self.config.eval.problems] if self.config.eval.problems else problems

    def restore(self, path: Path) -> None:
        """Continue from a checkpoint: weights, optimizer, counters; randomness derives from them."""
        tensors, state = checkpoint.load(path)
        self.policy.load_weights(path)
        self.trainer.optimizer.load_state_dict(tensors["optimizer"])
        self.trainer.load_state(state["trainer"])
        self.best = state["best"]
        checkpoint.restore_set_aside(self.run.best)

    def save_checkpoint(self, *, keep: int | None = None) -> Path:
        return checkpoint.save(
            self.run.checkpoints, self.trainer.step, write_model=self.policy.save,
            tensors={"optimizer": self.trainer.optimizer.state_dict()},
            state={"trainer": self.trainer.state(), "best": self.best}, keep=keep or self.config.checkpoint.keep,
        )  # fmt: skip

    def validate(self) -> dict[str, Any]:
        """Greedy accuracy on validation problems; a new best is published as ``best/`` (step 0 is the start model)."""
        from rlforge_cli.evaluation import accuracy, evaluate
        from rlforge_cli.rollouts import SamplingParams

        params = SamplingParams(
            max_tokens=self.config.eval.max_tokens or self.config.rollout.max_tokens, temperature=0.0,
            stop=self.config.rollout.stop,
        )  # fmt: skip
        results = evaluate(
            self.trainer.engine, task=self.task, encoder=self.encoder, problems=self.validation, params=params
        )
        score = accuracy(results)
        if self.best["val_accuracy"] is None or score > self.best["val_accuracy"]:
            self.best = {"step": self.trainer.step, "val_accuracy": score}
            if self.trainer.step:
                checkpoint.publish(self.run.best, self.policy.save)
        return {
            "val_accuracy": score,
            "val_accuracy_strict": sum(r.correct_strict for r in results) / len(results),
            "val_length": sum(r.tokens for r in results) / len(results),
        }

    def train(self, progress: Progress, writers: Writers) -> None:
        """All remaining steps; validation, checkpoints and samples as the configuration says.

        Raises:
            RunFailed: too many steps in a row without an update, or a run that is lost (train.stop_on_collapse).
        """
        trainer, config = self.trainer, self.config
        trainer.engine.sync_weights(step=trainer.step)  # also after a resume: the engine may hold other weights
        if trainer.step == 0:
            record = {"step": 0} | self.validate()
            writers.metrics(record)
            progress.note(f"step 0: validation {record['val_accuracy']:.3f} on {len(self.validation)} problems")
        watch = CollapseWatch(self.run, config, step=trainer.step) if config.train.stop_on_collapse else None
        while not trainer.finished:
            record = trainer.train_step()
            try:
                if (config.eval.every and trainer.step % config.eval.every == 0) or trainer.finished:
                    record |= self.validate()
                    progress.note(
                        f"step {trainer.step}: validation {record['val_accuracy']:.3f} (best "
                        f"{self.best['val_accuracy']:.3f} at step {self.best['step']})"
                    )
            finally:  # an interrupt of the validation loses no finished step
                writers.metrics(record)
            if config.log.rollouts_every and trainer.step % config.log.rollouts_every == 0:
                writers.rollouts(trainer.step, trainer.last_rollout)
            progress.step(record)
            if watch is not None:
                watch.see(record)
            if config.checkpoint.every and trainer.step % config.checkpoint.every == 0 and not trainer.finished:
                self.save_checkpoint(keep=watch.keep() if watch is not None else None)
                self.run.update_info(budget=trainer.budget, best=self.best)
            if trainer.skipped_in_a_row >= config.train.max_skipped:
                raise RunFailed(skipped_reason(record, trainer.skipped_in_a_row))

    def finish(self) -> None:
        """The last checkpoint and ``final/``."""
        self.save_checkpoint()
        checkpoint.publish(self.run.final, self.policy.save)


def skipped_reason(record: dict[str, Any], count: int) -> str:
    if record["groups_kept"] == 0:
        return (
            f"no learning signal: in {count} steps in a row no group's rewards had any spread (zero_std_fraction "
            f"{record['zero_std_fraction']:.2f}, accuracy {record['accuracy']:.2f}); use easier or harder problems, "
            "a larger G, or a denser reward"
        )
    return (
        f"{count} steps in a row had a gradient or loss that is not finite (grad_norm {record.get('grad_norm')}); "
        "weights were left as they were: lower optimizer.lr, or use model.dtype=float32"
    )


class Writers:
    """The run's line files and sinks."""

    def __init__(self, run: RunDir, config: Config) -> None:
        from rlforge_cli.sinks import open_sinks

        self.sinks = open_sinks(config.log.sinks, run.path, msgspec.to_builtins(config))
        self._metrics = LineWriter(run.metrics_file)
        self._rollouts = LineWriter(run.rollouts_file)
        self.groups = config.log.rollouts

    def metrics(self, record: dict[str, Any]) -> None:
        self._metrics.write(record)
        for sink in self.sinks:
            sink.log(record)

    def rollouts(self, step: int, collected: Any) -> None:
        """A sample of completions with their reward components."""
        for group in collected.generated[: self.groups]:
            for index, (c, grade, score) in enumerate(zip(group.completions, group.grades, group.scores, strict=True)):
                self._rollouts.write(
                    {
                        "step": step, "id": group.problem.id, "sample": index, "prompt": group.problem.prompt,
                        "answer": group.problem.answer, "completion": c.text, "prediction": grade.prediction,
                        "correct": grade.correct, "reward": score.total, "components": score.components,
                        "finish_reason": c.finish_reason, "tokens": len(c.completion_ids),
                    }
                )  # fmt: skip

    def close(self) -> None:
        self._metrics.close()
        self._rollouts.close()
        for sink in self.sinks:
            sink.close()


def execute(run: RunDir, config: Config, *, resume: bool = False, quiet: bool = False) -> dict[str, Any]:
    """Run (or continue) to the end, whatever the end is; run.json always says which.

    Returns:
        The JSON object of `rlforge train`.

    Raises:
        UserError: found before the first step; RunFailed: the run itself failed; KeyboardInterrupt, Terminated.
    """
    from rlforge_cli.progress import Progress

    with run.writing(), terminable():
        mark_running(run)
        experiment = None
        writers = None
        begin = time.perf_counter()
        try:
            with checkpoint.clean_start(run.checkpoints) as left:
                pass
            experiment = Experiment(run, config)
            done = 0
            if resume and (path := checkpoint.last_checkpoint(run.checkpoints)) is not None:
                experiment.restore(path)
                done = experiment.trainer.step
            writers = Writers(run, config)
            run.update_info(device=device_name(experiment.policy.device), **experiment_facts(experiment))
            with Progress(run.id, total=config.train.steps, done=done, quiet=quiet) as progress:
                for path in left:
                    progress.note(f"warning: {path} is an incomplete checkpoint of an interrupted save; removed")
                if experiment.too_long:
                    progress.note(f"note: {experiment.too_long} train problems are over max_prompt_tokens and left out")
                experiment.train(progress, writers)
            experiment.finish()
        except (KeyboardInterrupt, Terminated):
            saved = save_if_whole(experiment)
            run.update_info(
                status="interrupted", finished=now(), reason=f"stopped by a signal; {saved}", **totals(experiment)
            )
            note(f"{run.id} interrupted; {saved}; continue with: rlforge train --resume {run.id}")
            raise
        except BaseException as error:
            run.update_info(
                status="failed", finished=now(), reason=f"{type(error).__name__}: {error}"[:2000], **totals(experiment)
            )
            if isinstance(error, OSError):
                raise RunFailed(
                    f"{run.id}: {error.strerror or error}; the run can be continued with --resume"
                ) from error
            raise
        finally:
            if writers is not None:
                writers.close()
            if experiment is not None:
                experiment.trainer.engine.close()
        run.update_info(status="completed", finished=now(), reason=None, **totals(experiment))
    return report(run, wall_s=time.perf_counter() - begin)


def mark_running(run: RunDir) -> None:
    run.update_info(
        status="running", pid=os.getpid(), host=socket.gethostname(), started=now(), finished=None, versions=versions(),
        git_commit=git_commit(), command=sys.argv[1:],
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


def save_if_whole(experiment: Experiment | None) -> str:
    """On an interrupt: keep every finished step, unless weights lie between two steps."""
    if experiment is None or experiment.trainer.step == 0:
        return "nothing was trained yet"
    if not experiment.trainer.between_steps:
        return "the step under way was lost; the last checkpoint stands"
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
