"""The loop: problems, completions, rewards, advantages, updates, metrics. One step is :meth:`Trainer.train_step`."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rlforge_cli.config import Config, groups_per_round
from rlforge_cli.distributed import ALONE, Ranks
from rlforge_cli.errors import NotNumbers
from rlforge_cli.grpo.advantages import group_advantages
from rlforge_cli.grpo.batch import Batch, make_batch, to_device
from rlforge_cli.grpo.correction import importance_weights, over_reported, reported_tokens, sampling_metrics
from rlforge_cli.grpo.loss import grpo_loss, kl_estimate
from rlforge_cli.optimizer import MasterAdamW
from rlforge_cli.parking import NoParking, Parking
from rlforge_cli.rewards import score
from rlforge_cli.rollouts import Collected, RolloutEngine, RolloutGroup, SamplingParams, collect, mostly_nan
from rlforge_cli.rows import Row, cut, padded, padded_sampling, trained_rows
from rlforge_cli.seeding import ProblemOrder, derive
from rlforge_cli.step_metrics import rollout_metrics, update_metrics

if TYPE_CHECKING:
    from rlforge_cli.model import Policy
    from rlforge_cli.prompts import PromptEncoder
    from rlforge_cli.tasks.base import Problem, Task


class Trainer:
    """Everything a run holds in memory; what must survive a resume is :meth:`state`."""

    def __init__(
        self, config: Config, *, policy: Policy, engine: RolloutEngine, task: Task, encoder: PromptEncoder,
        problems: Sequence[Problem], ranks: Ranks = ALONE,
    ) -> None:  # fmt: skip
        self.config = config
        self.ranks = ranks
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
        parks = config.train.offload and config.rollout.engine == "vllm" and policy.device.type == "cuda"
        self.parking = Parking(policy.device) if parks else NoParking()
        """Where what only an update reads waits while another engine has the device."""
        self.park()
        self.parking.wait_left()
        self.step = 0
        self.cursor = 0
        """Problems drawn for the steps done; a rollout under way has drawn more."""
        self.skipped_in_a_row = 0
        self.budget = {"completions_generated": 0, "completions_trained": 0, "tokens_generated": 0}
        self.between_steps = True
        """False while weights may lie between two steps: such a state is never saved."""

    def reference_weights(self) -> list[Tensor]:
        return list(self.policy.reference.parameters()) if self.policy.reference is not None else []

    def park(self) -> None:
        self.parking.leave(self.optimizer.between_updates(), constant=self.reference_weights())

    def state(self) -> dict[str, Any]:
        """Counters of a checkpoint; all randomness derives from the seed and these."""
        return {
            "step": self.step,
            "cursor": self.cursor,
            "skipped_in_a_row": self.skipped_in_a_row,
            "budget": self.budget,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        self.step = state["step"]
        self.order.cursor = self.cursor = state["cursor"]
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
        torch.manual_seed(derive(self.config.train.seed, "dropout", step) + self.ranks.rank)
        collected = self.rollout(step)
        advantages = [self.advantages(group) for group in collected.generated]
        record = rollout_metrics(collected, advantages)
        rolled_out = time.perf_counter()

        self.ranks.hold()
        self.between_steps = False
        self.engine.offload()
        offloaded = time.perf_counter()
        record |= self.update(collected, advantages)
        trained = time.perf_counter()
        self.park()
        self.engine.sync_weights(step=step)
        self.parking.wait_left()
        synced = time.perf_counter()

        self.step = step
        self.cursor = self.order.cursor
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
        """One group a problem, in order; each rank samples and grades its share of them, and knows all."""
        return self.ranks.share_out(problems, lambda part, places: self.own_groups(part, places, seed=seed))

    def own_groups(self, problems: Sequence[Problem], places: Sequence[int], *, seed: int) -> list[RolloutGroup]:
        """
        Raises:
            NotNumbers: the weights are spoiled.
        """
        prompts = [self.encoder.encode(problem) for problem in problems]
        size = self.config.rollout.group_size
        generated = self.engine.generate(prompts, n=size, params=self.params, seed=seed, places=places)
        if mostly_nan(generated):
            raise NotNumbers(
                f"after step {self.step} the policy's probabilities are NaN: an update spoiled its weights; lower "
                f"optimizer.lr ({self.config.optimizer.lr:g}), or use model.dtype=float32, and start again"
            )
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

    def update(self, collected: Collected, advantages: Sequence[Sequence[float]]) -> dict[str, Any]:
        """``updates`` optimizer steps on the kept groups; a step without signal or with a bad gradient is skipped."""
        groups = trained_rows(collected, advantages, mask_truncated=self.config.grpo.mask_truncated)
        tokens = sum(len(row.completion) for group in groups for row in group)
        record: dict[str, Any] = {"skipped": True, "tokens_in_loss": tokens}
        if not any(groups):
            return record
        updates = min(self.config.grpo.updates, len(groups))
        per_update = math.ceil(len(groups) / updates)
        parts = [groups[start : start + per_update] for start in range(0, len(groups), per_update)]
        rows = [[row for group in part for row in group] for part in parts if any(part)]
        if updates > 1:
            own = [row for part in rows for row in self.own(part)]
            self.ranks.together(lambda: self.keep_old_logprobs(own), interruptible=False)
        records = [self.one_update(part) for part in rows]
        for key in dict.fromkeys(key for r in records for key in r):
            values = [r[key] for r in records if key in r]
            record[key] = max(values) if key == "sampling_diff_max" else sum(values) / len(values)
        record["skipped"] = all(r["skipped"] for r in records)
        record["lr"] = records[-1]["lr"]
        return record

    def own(self, rows: Sequence[Row]) -> list[Row]:
        """This rank's share of an update's rows: neighbours, so that few prompts are in two shares."""
        return [rows[i] for i in self.ranks.stretch([row.length for row in rows])]

    def micro_batches(self, rows: Sequence[Row]) -> list[list[int]]:
        size = self.config.train.micro_batch_size
        return cut(rows, size=size, packed=self.policy.packs, device_type=self.policy.device.type)

    def batch(self, rows: Sequence[Row]) -> Batch:
        batch = make_batch([row.prompt for row in rows], [row.completion for row in rows], packed=self.policy.packs)
        return batch.to(self.policy.device)

    def keep_old_logprobs(self, rows: Sequence[Row]) -> None:
        """Log-probabilities before this step's updates, which ratios of the second update on are taken to."""
        with torch.no_grad():
            for indices in self.micro_batches(rows):
                batch = self.batch([rows[i] for i in indices])
                logprobs, _ = self.policy.logprobs(batch, temperature=self.params.temperature)
                for place, index in enumerate(indices):
                    rows[index].old = logprobs[place, : len(rows[index].completion)].clone()

    def one_update(self, rows: Sequence[Row]) -> dict[str, Any]:
        """Gradients over all ranks, then one optimizer step, the same in each; metrics are means over the tokens."""
        tokens = sum(len(row.completion) for row in rows)
        constant = len(rows) * self.config.rollout.max_tokens
        denominators = {"sequence": sum(bool(r.completion) for r in rows), "token": tokens, "constant": constant}
        denominator = denominators[self.config.grpo.aggregation]
        # comes while the loss and its gradient are computed
        self.parking.fetch([*self.optimizer.between_updates(), *self.reference_weights()])
        sums = self.ranks.together(lambda: self.own_gradients(rows, denominator=denominator), interruptible=False)
        record: dict[str, Any] = over_reported(update_metrics(self.ranks.gather(sums)))
        self.parking.wait_fetched()
        self.optimizer.sum_gradients(self.ranks)
        record["grad_norm"] = self.optimizer.grad_norm()
        # a NaN anywhere in the loss or the gradient refuses the step: the weights stay as they are
        record["skipped"] = not (math.isfinite(record["grad_norm"]) and math.isfinite(record["loss"])) or tokens == 0
        if record["skipped"]:
            self.optimizer.zero_grad()
            record |= {"weights_changed_fraction": 0.0, "lr": 0.0}
            return record
        record["lr"] = self.optimizer.lr_at(self.optimizer.updates)
        return record | self.optimizer.step(grad_norm=record["grad_norm"])

    def own_gradients(self, rows: Sequence[Row], *, denominator: float) -> dict[str, float]:
        """Those of this rank's share of ``rows``, over micro-batches; its metrics as sums over its trained tokens."""
        own = self.own(rows)
        worst = torch.zeros((), device=self.policy.device)
        sums = {"loss": worst, "tokens_in_loss": worst}  # also where there are no rows
        for indices in self.micro_batches(own):
            loss, metrics, gap = self.micro_loss([own[i] for i in indices], denominator=denominator)
            loss.backward()
            worst = torch.maximum(worst, gap)
            weighted = {key: value * metrics["tokens_in_loss"] for key, value in metrics.items()}
            for key, value in (weighted | {"loss": loss.detach(), "tokens_in_loss": metrics["tokens_in_loss"]}).items():
                sums[key] = sums[key] + value if key in sums else value
        sums["sampling_diff_max"] = worst
        values = torch.stack([value.double() for value in sums.values()]).tolist()  # waits for the device once
        record = dict(zip(sums, values, strict=True))
        if self.policy.has_reference and self.reference_stride > 1:
            chosen = rows[self.step % self.reference_stride :: self.reference_stride] or rows
            record |= self.sampled_kl([row for row in chosen if row.current is not None])
        return record

    @property
    def reference_stride(self) -> int:
        """The reference reads every so manieth completion: all of them where the KL is in the loss."""
        return 1 if self.config.grpo.kl_coef else max(1, round(1 / self.config.model.reference_share))

    def sampled_kl(self, rows: Sequence[Row]) -> dict[str, float]:
        """kl_ref summed over some of the completions, from the forward passes that the loss has made; their tokens."""
        self.parking.wait_fetched()
        total, tokens = 0.0, 0
        for indices in self.micro_batches(rows):
            part = [rows[i] for i in indices]
            batch = self.batch(part)
            reference = self.policy.reference_logprobs(batch, temperature=self.params.temperature)
            current = padded([row.current for row in part if row.current is not None], like=reference)
            total += float((kl_estimate(current, reference) * batch.completion_mask).sum())
            tokens += sum(len(row.completion) for row in part)
        return {"kl_ref": total, "kl_ref_tokens": tokens}

    def micro_loss(self, rows: Sequence[Row], *, denominator: float) -> tuple[Tensor, dict[str, Tensor], Tensor]:
        """Loss of one micro-batch as its share of the whole batch's, metrics, and the largest engine-trainer gap."""
        grpo = self.config.grpo
        temperature = self.params.temperature
        batch = self.batch(rows)
        mask = batch.completion_mask
        reference = None
        if self.policy.has_reference and self.reference_stride == 1:
            self.parking.wait_fetched()
            reference = self.policy.reference_logprobs(batch, temperature=temperature)
        logprobs, entropy = self.policy.logprobs(batch, temperature=temperature)
        old = logprobs.detach()
        for row, values in zip(rows, old, strict=True):
            row.current = values[: len(row.completion)]
        if rows[0].old is not None:
            old = padded([row.old for row in rows if row.old is not None], like=logprobs)
        sampling = to_device(padded_sampling(rows, shape=logprobs.shape), logprobs.device).to(logprobs.dtype)
        weights = outside = None
        if grpo.sampling_correction != "off":
            weights, outside = importance_weights(
                old, sampling, mask, mode=grpo.sampling_correction, cap=grpo.sampling_cap
            )
        advantages = to_device(torch.tensor([row.advantage for row in rows], dtype=logprobs.dtype), logprobs.device)
        loss, metrics = grpo_loss(
            logprobs, old, advantages, mask,
            clip_low=grpo.clip_low, clip_high=grpo.clip_high, kl_coef=grpo.kl_coef, ref_logprobs=reference,
            kl_estimator=grpo.kl_estimator, entropy=entropy if grpo.entropy_coef else entropy.detach(),
            entropy_coef=grpo.entropy_coef, aggregation=grpo.aggregation, denominator=denominator, weights=weights,
        )  # fmt: skip
        metrics |= sampling_metrics(old, sampling, mask, weights=weights, outside=outside)
        gap = torch.where(reported_tokens(sampling, mask), (sampling - old).abs(), 0.0)
        return loss, metrics, gap.max()
