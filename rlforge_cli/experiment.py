"""A run in memory: its parts from a configuration, the loop around a step, validation, checkpoints, the best model."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlforge_cli import checkpoint, difficulty
from rlforge_cli.collapse import CollapseWatch
from rlforge_cli.config import Config
from rlforge_cli.distributed import ALONE, Ranks
from rlforge_cli.engines.choose import make_engine, require_engine
from rlforge_cli.errors import RunFailed, UserError
from rlforge_cli.libraries import load_libraries
from rlforge_cli.output import note
from rlforge_cli.run_dir import RunDir

if TYPE_CHECKING:
    from rlforge_cli.model import Policy
    from rlforge_cli.progress import Progress
    from rlforge_cli.prompts import PromptEncoder
    from rlforge_cli.run_log import Silent, Writers
    from rlforge_cli.tasks.base import Problem, Task
    from rlforge_cli.trainer import Trainer


def check_data(config: Config, *, load: bool = True) -> None:
    """Reward and data, without a model; without ``load`` the data only where a band of difficulty speaks of it.

    Raises:
        UserError: the reward cannot be meant, the data cannot be had, or no problem is in the band of difficulty.
    """
    from rlforge_cli.rewards import check_reward
    from rlforge_cli.tasks.registry import load_task

    check_reward(config.reward, config.rollout.max_tokens)
    if load or config.data.difficulty:
        difficulty.chosen(load_task(config.data).problems("train"), config.data)


def preflight(config: Config) -> None:
    """What can be known to be wrong before a run's folder exists: reward, task, device, model, engine.

    Raises:
        UserError: the first of them that is.
    """
    check_data(config)
    load_libraries()

    from transformers import AutoConfig

    from rlforge_cli.devices import resolve_device
    from rlforge_cli.engines.hf import unsupported_reason
    from rlforge_cli.optimizer import require_states
    from rlforge_cli.pretrained import load_pretrained, model_source, quiet_transformers

    require_states(config.optimizer, resolve_device(config.model.device))
    require_engine(config)
    with quiet_transformers():
        architecture = load_pretrained(AutoConfig, model_source(config.model.path))
    if config.rollout.engine == "hf" and (reason := unsupported_reason(architecture)):
        raise UserError(f"model.path = {config.model.path!r}: the hf engine cannot decode it: {reason}")


class Experiment:
    """A run in memory: its folder, its parts, and the loop around :meth:`Trainer.train_step`."""

    def __init__(self, run: RunDir, config: Config, *, ranks: Ranks = ALONE) -> None:
        from rlforge_cli.prompts import PromptEncoder
        from rlforge_cli.rewards import check_reward
        from rlforge_cli.tasks.registry import load_task

        check_reward(config.reward, config.rollout.max_tokens)
        self.run = run
        self.config = config
        self.ranks = ranks
        self.task: Task = load_task(config.data)
        self.started = time.perf_counter()
        policy = self.ranks.together(self._load_policy)
        ranks.copy_first(list(policy.trainable().values()))
        self.policy = policy
        self.encoder: PromptEncoder = PromptEncoder(
            policy.tokenizer, config.prompt, max_tokens=config.rollout.max_prompt_tokens
        )
        self.trainer: Trainer = self.ranks.together(self._make_trainer, interruptible=False)
        self.best: dict[str, Any] = {"step": None, "val_accuracy": None}

    def _load_policy(self) -> Policy:
        load_libraries()

        from rlforge_cli.model import load_policy

        return load_policy(self.config.model, seed=self.config.train.seed)

    def _make_trainer(self) -> Trainer:
        from rlforge_cli.trainer import Trainer

        train = difficulty.chosen(self.task.problems("train"), self.config.data)
        self.problems = self.encoder.fitting(train)
        self.too_long = len(train) - len(self.problems)
        self._look_at_positions()
        return Trainer(
            self.config, policy=self.policy, engine=make_engine(self.config, self.policy), task=self.task,
            encoder=self.encoder, problems=self.problems, ranks=self.ranks,
        )  # fmt: skip

    def _look_at_positions(self) -> None:
        """vLLM goes no further than the model's positions; a step that draws a long prompt would fail, at every resume.

        Raises:
            UserError: the longest prompt and completion have too few; the hf engine goes on, and a note says so.
        """
        from rlforge_cli.prompts import over_positions

        config = self.config
        most = config.eval.max_tokens or config.rollout.max_tokens
        for problems, key, tokens in (
            (self.problems, "rollout.max_tokens", config.rollout.max_tokens),
            (self.validation, "eval.max_tokens" if config.eval.max_tokens else "rollout.max_tokens", most),
        ):
            over = over_positions(self.encoder, problems, most=tokens, model=self.policy.causal)
            if over is None:
                continue
            if config.rollout.engine == "vllm":
                raise UserError(
                    f"{key} = {over}: lower it, or rollout.max_prompt_tokens, which leaves longer prompts out"
                )
            if self.ranks.first:
                note(f"note: {key} = {over}: it has learned none beyond them")
            return

    @property
    def validation(self) -> Sequence[Problem]:
        problems = self.encoder.fitting(self.task.problems("validation"))
        return problems[: self.config.eval.problems] if self.config.eval.problems else problems

    def restore(self, path: Path) -> None:
        """Continue from a checkpoint: weights, optimizer, counters; randomness derives from them.

        Raises:
            UserError: its files are damaged.
        """
        from rlforge_cli.pretrained import readable

        way_out = "; remove this checkpoint's folder to continue from the one before it"
        with readable(f"{path}: this checkpoint cannot be read", way_out=way_out):
            tensors, state = checkpoint.load(path)
            self.policy.load_weights(path)
            self.trainer.optimizer.load_state_dict(tensors["optimizer"])
            self.trainer.load_state(state["trainer"])
            self.best = state["best"]
        self.ranks.in_first(lambda: checkpoint.restore_set_aside(self.run.best))

    def save_checkpoint(self, *, keep: int | None = None) -> Path:
        """Written by the first rank, once all are seen to hold the same weights.

        Raises:
            RunFailed: they do not, or the disk is full.
        """
        self.require_equal_weights()
        return self.ranks.in_first(
            lambda: checkpoint.save(
                self.run.checkpoints, self.trainer.step, write_model=self.policy.save,
                tensors={"optimizer": self.trainer.optimizer.state_dict()},
                state={"trainer": self.trainer.state(), "best": self.best}, keep=keep or self.config.checkpoint.keep,
            )
        )  # fmt: skip

    def require_equal_weights(self) -> None:
        if self.ranks.size == 1:
            return
        found = self.ranks.gather(self.trainer.optimizer.fingerprint())
        if unlike := [rank for rank, sums in enumerate(found) if sums != found[0]]:
            raise RunFailed(
                f"step {self.trainer.step}: the weights of process {unlike[0]} are not those of process 0, so nothing "
                "was saved; continue from the last checkpoint with --resume, with one process if it happens again"
            )

    def validate(self) -> dict[str, Any]:
        """Greedy accuracy on validation problems; a new best is published as ``best/`` (step 0 is the start model)."""
        from rlforge_cli.evaluation import accuracy, evaluate
        from rlforge_cli.rollouts import SamplingParams

        params = SamplingParams(
            max_tokens=self.config.eval.max_tokens or self.config.rollout.max_tokens, temperature=0.0,
            stop=self.config.rollout.stop, logprob_share=0.0,
        )  # fmt: skip
        results = evaluate(
            self.trainer.engine, task=self.task, encoder=self.encoder, problems=self.validation, params=params,
            ranks=self.ranks,
        )  # fmt: skip
        score = accuracy(results)
        if self.best["val_accuracy"] is None or score > self.best["val_accuracy"]:
            self.best = {"step": self.trainer.step, "val_accuracy": score}
            if self.trainer.step:
                self.ranks.in_first(lambda: checkpoint.publish(self.run.best, self.policy.save))
        return {
            "val_accuracy": score,
            "val_accuracy_strict": sum(r.correct_strict for r in results) / len(results),
            "val_length": sum(r.tokens for r in results) / len(results),
        }

    def train(self, progress: Progress, writers: Writers | Silent) -> None:
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
                self.ranks.release()
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
            if (
                record["unscored"]
                and record["unscored"] == len(trainer.last_rollout.generated) * config.rollout.group_size
            ):
                progress.note(f"warning: step {trainer.step}: no completion has a reward (a reward function gave None)")
            if watch is not None:
                watch.see(record)
            if config.checkpoint.every and trainer.step % config.checkpoint.every == 0 and not trainer.finished:
                self.save_checkpoint(keep=watch.keep() if watch is not None else None)
                if self.ranks.first:
                    self.run.update_info(budget=trainer.budget, best=self.best)
            if trainer.skipped_in_a_row >= config.train.max_skipped:
                raise RunFailed(skipped_reason(record, trainer.skipped_in_a_row))

    def finish(self) -> None:
        """The last checkpoint and ``final/``."""
        self.save_checkpoint()
        self.ranks.in_first(lambda: checkpoint.publish(self.run.final, self.policy.save))


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
