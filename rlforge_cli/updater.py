"""One step's update: log-probabilities, loss and gradients over micro-batches and ranks, then the optimizer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rlforge_cli.config import Config
from rlforge_cli.distributed import ALONE, Ranks
from rlforge_cli.grpo.batch import Batch, make_batch, to_device
from rlforge_cli.grpo.correction import importance_weights, over_reported, reported_tokens, sampling_metrics
from rlforge_cli.grpo.loss import grpo_loss, kl_estimate
from rlforge_cli.optimizer import MasterAdamW
from rlforge_cli.parking import NoParking, Parking
from rlforge_cli.rows import Row, cut, padded, padded_sampling, trained_rows
from rlforge_cli.step_metrics import update_metrics

if TYPE_CHECKING:
    from rlforge_cli.model import Policy
    from rlforge_cli.rollouts import Collected


class Updater:
    """The policy's optimizer, and how a step's completions become its gradient."""

    def __init__(self, config: Config, *, policy: Policy, ranks: Ranks = ALONE) -> None:
        self.config = config
        self.policy = policy
        self.ranks = ranks
        self.optimizer = MasterAdamW(
            policy.trainable(), config.optimizer, planned_updates=config.train.steps * config.grpo.updates
        )
        parks = config.train.offload and config.rollout.engine == "vllm" and policy.device.type == "cuda"
        self.parking = Parking(policy.device) if parks else NoParking()
        """Where what only an update reads waits while another engine has the device."""
        self.park()
        self.parking.wait_left()

    def reference_weights(self) -> list[Tensor]:
        return list(self.policy.reference.parameters()) if self.policy.reference is not None else []

    def park(self) -> None:
        self.parking.leave(self.optimizer.between_updates(), constant=self.reference_weights())

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
                logprobs, _ = self.policy.logprobs(batch, temperature=self.config.rollout.temperature)
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
            chosen = rows[self.optimizer.updates % self.reference_stride :: self.reference_stride] or rows
            record |= self.sampled_kl([row for row in chosen if row.current is not None])
        return record

    @property
    def reference_stride(self) -> int:
        """The reference reads every so manieth completion, other ones after each update: all of them where the KL is in
        the loss."""
        return 1 if self.config.grpo.kl_coef else max(1, round(1 / self.config.model.reference_share))

    def sampled_kl(self, rows: Sequence[Row]) -> dict[str, float]:
        """kl_ref summed over some of the completions, from the forward passes that the loss has made; their tokens."""
        self.parking.wait_fetched()
        total, tokens = 0.0, 0
        for indices in self.micro_batches(rows):
            part = [rows[i] for i in indices]
            batch = self.batch(part)
            reference = self.policy.reference_logprobs(batch, temperature=self.config.rollout.temperature)
            current = padded([row.current for row in part if row.current is not None], like=reference)
            total += float((kl_estimate(current, reference) * batch.completion_mask).sum())
            tokens += sum(len(row.completion) for row in part)
        return {"kl_ref": total, "kl_ref_tokens": tokens}

    def micro_loss(self, rows: Sequence[Row], *, denominator: float) -> tuple[Tensor, dict[str, Tensor], Tensor]:
        """Loss of one micro-batch as its share of the whole batch's, metrics, and the largest engine-trainer gap."""
        grpo = self.config.grpo
        temperature = self.config.rollout.temperature
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
