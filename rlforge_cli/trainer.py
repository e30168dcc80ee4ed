"""The loop: problems, completions, rewards, advantages, updates, metrics. One step is :meth:`Trainer.train_step`."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rlforge_cli.config import Config, groups_per_round
from rlforge_cli.grpo.advantages import group_advantages
from rlforge_cli.grpo.batch import Batch, make_batch, micro_batches
from rlforge_cli.grpo.correction import importance_weights, over_reported, reported_tokens, sampling_metrics
from rlforge_cli.grpo.loss import grpo_loss, kl_estimate
from rlforge_cli.optimizer import MasterAdamW
from rlforge_cli.rewards import score
from rlforge_cli.rollouts import Collected, RolloutEngine, RolloutGroup, SamplingParams, collect
from rlforge_cli.rows import Row, padded, padded_sampling
from rlforge_cli.seeding import ProblemOrder, derive
from rlforge_cli.step_metrics import rollout_metrics

if TYPE_CHECKING:
    from rlforge_cli.model import Policy
    from rlforge_cli.prompts import PromptEncoder
    from rlforge_cli.tasks.base import Problem, Task


LAUNCH_OVERHEAD = {"cpu": 128, "cuda": 1024}
"""What one more micro-batch costs, in token positions: below that, padding is cheaper."""


class Trainer:
    """Everything a run holds in memory; what must survive a resume is :meth:`state`."""

    def __init__(
        self, config: Config, *, policy: Policy, engine: RolloutEngine, task: Task, encoder: PromptEncoder,
        problems: Sequence[Problem],
    ) -> None:  # fmt: skip
        self.config = config
        self.policy = policy
        self.engine = engine
        self.task = task
        self.encoder = encoder
        self.problems = problems
        self.order = ProblemOrder(len(problems), seed=config.train.seed)
        self.optimizer = MasterAdamW(
            policy.trainable(), config.optimizer, planned_updates=config.train.steps * config.grpo.updates
        )
        self.params = SamplingParams(
            max_tokens=config.rollout.max_tokens, temperature=config.rollout.temperature, top_p=config.rollout.top_p,
            top_k=config.rollout.top_k, stop=config.rollout.stop, logprob_share=config.rollout.logprob_share,
        )  # fmt: skip
        self.step = 0
        self.skipped_in_a_row = 0
        self.budget = {"completions_generated": 0, "completions_trained": 0, "tokens_generated": 0}
        self.between_steps = True
        """False while weights may lie between two steps: such a state is never saved."""

    def state(self) -> dict[str, Any]:
        """Counters of a checkpoint; all randomness derives from the seed and these."""
        return {
            "step": self.step,
            "cursor": self.order.cursor,
            "skipped_in_a_row": self.skipped_in_a_row,
            "budget": self.budget,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        self.step = state["step"]
        self.order.cursor = state["cursor"]
        self.skipped_in_a_row = state["skipped_in_a_row"]
        self.budget = dict(state["budget"])

    @property
    def finished(self) -> bool:
        """All steps done, or the next one would generate more completions than the budget allows."""
        config = self.config
        limit = config.train.max_completions
        planned = groups_per_round(config) * config.rollout.group_size
        over = bool(limit) and self.budget["completions_generated"] + planned > limit
        return self.step >= config.train.steps or over

    def train_step(self) -> dict[str, Any]:
        """One rollout and its updates; the metrics of the step."""
        begin = time.perf_counter()
        step = self.step + 1
        torch.manual_seed(derive(self.config.train.seed, "dropout", step))
        collected = self.rollout(step)
        advantages = [self.advantages(group) for group in collected.generated]
        record = rollout_metrics(collected, advantages)
        rolled_out = time.perf_counter()

        self.between_steps = False
        self.engine.offload()
        offloaded = time.perf_counter()
        record |= self.update(collected, advantages)
        trained = time.perf_counter()
        self.engine.sync_weights(step=step)
        synced = time.perf_counter()

        self.step = step
        self.skipped_in_a_row = self.skipped_in_a_row + 1 if record["skipped"] else 0
        self.budget["completions_generated"] += sum(len(group.completions) for group in collected.generated)
        self.budget["completions_trained"] += sum(len(group.completions) for group in collected.kept)
        self.budget["tokens_generated"] += record["tokens_generated"]
        self.between_steps = True
        record |= {
            "completions_generated": self.budget["completions_generated"],
            "seconds_rollout": rolled_out - begin,
            "seconds_train": trained - offloaded,
            "seconds_sync": offloaded - rolled_out + synced - trained,
            "seconds_total": synced - begin,
            "tokens_per_s": record["tokens_generated"] / (synced - begin),
        }
        self.last_rollout = collected
        return {"step": step} | record

    def rollout(self, step: int) -> Collected:
        """Sample, grade and reward this step's groups."""
        rollout = self.config.rollout

        def sample(groups: int, round_index: int) -> list[RolloutGroup]:
            chosen = [self.problems[index] for index in self.order.draw(groups)]
            return self.sample_groups(chosen, seed=derive(self.config.train.seed, "rollout", step, round_index))

        return collect(
            sample, prompts=rollout.prompts, groups=groups_per_round(self.config), dynamic=rollout.oversample > 0,
            max_rounds=rollout.max_rounds,
        )  # fmt: skip

    def sample_groups(self, problems: Sequence[Problem], *, seed: int) -> list[RolloutGroup]:
        prompts = [self.encoder.encode(problem) for problem in problems]
        size = self.config.rollout.group_size
        generated = self.engine.generate(prompts, n=size, params=self.params, seed=seed)
        flat = [(problem, c) for problem, group in zip(problems, generated, strict=True) for c in group]
        grades = [self.task.grade(completion.text, problem) for problem, completion in flat]
        scores = score(
            [completion.text for _, completion in flat], problems=[problem for problem, _ in flat], grades=grades,
            truncated=[completion.truncated for _, completion in flat],
            lengths=[len(completion.completion_ids) for _, completion in flat],
            config=self.config.reward, max_tokens=self.params.max_tokens,
        )  # fmt: skip
        return [
            RolloutGroup(problem, prompt, group, grades[i * size : (i + 1) * size], scores[i * size : (i + 1) * size])
            for i, (problem, prompt, group) in enumerate(zip(problems, prompts, generated, strict=True))
        ]

    def advantages(self, group: RolloutGroup) -> list[float]:
        rewards = torch.tensor([group.rewards], dtype=torch.float64)
        return group_advantages(rewards, std=self.config.grpo.advantage_std)[0].tolist()

    def rows(self, collected: Collected, advantages: Sequence[Sequence[float]]) -> list[list[Row]]:
        """The trained rows, group by group."""
        kept = {id(group) for group in collected.kept}
        masks = self.config.grpo.mask_truncated
        return [
            [
                Row(group.prompt_ids, c.completion_ids, advantage, c.sampling_logprobs)
                for c, advantage in zip(group.completions, values, strict=True)
                if not (masks and c.truncated)
            ]
            for group, values in zip(collected.generated, advantages, strict=True)
            if id(group) in kept
        ]

    def update(self, collected: Collected, advantages: Sequence[Sequence[float]]) -> dict[str, Any]:
        """``updates`` optimizer steps on the kept groups; a step without signal or with a bad gradient is skipped."""
        groups = self.rows(collected, advantages)
        rows = [row for group in groups for row in group]
        record: dict[str, Any] = {"skipped": True, "tokens_in_loss": sum(len(row.completion) for row in rows)}
        if not rows:
            return record
        updates = min(self.config.grpo.updates, len(groups))
        if updates > 1:
            self.keep_old_logprobs(rows)
        per_update = math.ceil(len(groups) / updates)
        parts = [groups[start : start + per_update] for start in range(0, len(groups), per_update)]
        records = [self.one_update([row for group in part for row in group]) for part in parts]
        for key in dict.fromkeys(key for r in records for key in r):
            values = [r[key] for r in records if key in r]
            record[key] = max(values) if key == "sampling_diff_max" else sum(values) / len(values)
        record["skipped"] = all(r["skipped"] for r in records)
        record["lr"] = records[-1]["lr"]
        return record

    def micro_batches(self, rows: Sequence[Row]) -> list[list[int]]:
        """Indices of ``rows``, micro-batch by micro-batch; packed ones keep neighbours, who share their prompt."""
        if self.policy.packs:
            size = self.config.train.micro_batch_size
            return [list(range(start, min(start + size, len(rows)))) for start in range(0, len(rows), size)]
        overhead = LAUNCH_OVERHEAD.get(self.policy.device.type, 0)
        return micro_batches([row.length for row in rows], size=self.config.train.micro_batch_size, overhead=overhead)

    def batch(self, rows: Sequence[Row]) -> Batch:
        return make_batch([row.prompt for row in rows], [row.completion for row in rows], packed=self.policy.packs)

    def keep_old_logprobs(self, rows: Sequence[Row]) -> None:
        """Log-probabilities before this step's updates, which ratios of the second update on are taken to."""
        with torch.no_grad():
            for indices in self.micro_batches(rows):
                batch = self.batch([rows[i] for i in indices])
                logprobs, _ = self.policy.logprobs(batch, temperature=self.params.temperature)
                for place, index in enumerate(indices):
                    rows[index].old = logprobs[place, : len(rows[index].completion)].clone()

    def one_update(self, rows: Sequence[Row]) -> dict[str, Any]:
        """Gradients over micro-batches, then one optimizer step; metrics are means over the trained tokens."""
        grpo = self.config.grpo
        tokens = sum(len(row.completion) for row in rows)
        constant = len(rows) * self.config.rollout.max_tokens
        denominator = {"sequence": sum(bool(r.completion) for r in rows), "token": tokens, "constant": constant}
        sums: dict[str, Tensor] = {}
        worst = torch.zeros((), device=self.policy.device)
        loss_sum = torch.zeros((), device=self.policy.device)
        for indices in self.micro_batches(rows):
            part = [rows[i] for i in indices]
            loss, metrics, gap = self.micro_loss(part, denominator=denominator[grpo.aggregation])
            loss.backward()
            loss_sum += loss.detach()
            worst = torch.maximum(worst, gap)
            for key, value in metrics.items():
                weighted = value * metrics["tokens_in_loss"] if key != "tokens_in_loss" else value
                sums[key] = sums[key] + weighted if key in sums else weighted
        count = sums.pop("tokens_in_loss").clamp(min=1)
        record = {key: float(value / count) for key, value in sums.items()}
        if self.policy.has_reference and self.reference_stride > 1:
            record["kl_ref"] = self.sampled_kl(rows[self.step % self.reference_stride :: self.reference_stride] or rows)
        record = over_reported(record | {"loss": float(loss_sum), "sampling_diff_max": float(worst)})
        record["grad_norm"] = self.optimizer.grad_norm()
        # a NaN anywhere in the loss or the gradient refuses the step: the weights stay as they are
        record["skipped"] = not (math.isfinite(record["grad_norm"]) and math.isfinite(record["loss"])) or tokens == 0
        if record["skipped"]:
            self.optimizer.zero_grad()
            record |= {"weights_changed_fraction": 0.0, "lr": 0.0}
            return record
        record["lr"] = self.optimizer.lr_at(self.optimizer.updates)
        record["weights_changed_fraction"] = self.optimizer.step(grad_norm=record["grad_norm"])
        return record

    @property
    def reference_stride(self) -> int:
        """The reference reads every so manieth completion: all of them where the KL is in the loss."""
        return 1 if self.config.grpo.kl_coef else max(1, round(1 / self.config.model.reference_share))

    def sampled_kl(self, rows: Sequence[Row]) -> float:
        """kl_ref over some of the completions, from the forward passes that the loss has made."""
        total, tokens = 0.0, 0
        for indices in self.micro_batches(rows):
            part = [rows[i] for i in indices]
            batch = self.batch(part)
            reference = self.policy.reference_logprobs(batch, temperature=self.params.temperature)
            current = padded([row.current for row in part if row.current is not None], like=reference)
            mask = batch.completion_mask.to(reference.device)
            total += float((kl_estimate(current, reference) * mask).sum())
            tokens += sum(len(row.completion) for row in part)
        return total / tokens

    def micro_loss(self, rows: Sequence[Row], *, denominator: float) -> tuple[Tensor, dict[str, Tensor], Tensor]:
        """Loss of one micro-batch as its share of the whole batch's, metrics, and the largest engine-trainer gap."""
        grpo = self.config.grpo
        temperature = self.params.temperature
        batch = self.batch(rows)
        mask = batch.completion_mask.to(self.policy.device)
        reference = None
        if self.policy.has_reference and self.reference_stride == 1:
            reference = self.policy.reference_logprobs(batch, temperature=temperature)
        logprobs, entropy = self.policy.logprobs(batch, temperature=temperature)
        old = logprobs.detach()
        for row, values in zip(rows, old, strict=True):
            row.current = values[: len(row.completion)]
        if rows[0].old is not None:
            old = padded([row.old for row in rows if row.old is not None], like=logprobs)
        sampling = padded_sampling(rows, like=logprobs)
        weights = outside = None
        if grpo.sampling_correction != "off":
            weights, outside = importance_weights(
                old, sampling, mask, mode=grpo.sampling_correction, cap=grpo.sampling_cap
            )
        advantages = torch.tensor([row.advantage for row in rows], dtype=logprobs.dtype, device=logprobs.device)
        loss, metrics = grpo_loss(
            logprobs, old, advantages, mask,
            clip_low=grpo.clip_low, clip_high=grpo.clip_high, kl_coef=grpo.kl_coef, ref_logprobs=reference,
            kl_estimator=grpo.kl_estimator, entropy=entropy if grpo.entropy_coef else entropy.detach(),
            entropy_coef=grpo.entropy_coef, aggregation=grpo.aggregation, denominator=denominator, weights=weights,
        )  # fmt: skip
        metrics |= sampling_metrics(old, sampling, mask, weights=weights, outside=outside)
        gap = torch.where(reported_tokens(sampling, mask), (sampling - old).abs(), 0.0)
        return loss, metrics, gap.max()
