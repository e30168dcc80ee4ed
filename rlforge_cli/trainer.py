"""The loop: problems, completions, rewards, advantages, updates, metrics. One step is :meth:`Trainer.train_step`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from rlforge_cli.config import Config, groups_per_round
from rlforge_cli.distributed import ALONE, Ranks
from rlforge_cli.errors import NotNumbers
from rlforge_cli.grpo.advantages import group_advantages
from rlforge_cli.rewards import score
from rlforge_cli.rollouts import Collected, RolloutEngine, RolloutGroup, SamplingParams, collect, mostly_nan
from rlforge_cli.seeding import ProblemOrder, derive
from rlforge_cli.step_metrics import rollout_metrics
from rlforge_cli.updater import Updater

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
        self.updater = Updater(config, policy=policy, ranks=ranks)
        self.optimizer = self.updater.optimizer
        self.params = SamplingParams(
            max_tokens=config.rollout.max_tokens, temperature=config.rollout.temperature, top_p=config.rollout.top_p,
            top_k=config.rollout.top_k, stop=config.rollout.stop, logprob_share=config.rollout.logprob_share,
        )  # fmt: skip
        self.step = 0
        self.cursor = 0
        """Problems drawn for the steps done; a rollout under way has drawn more."""
        self.skipped_in_a_row = 0
        self.budget = {"completions_generated": 0, "completions_trained": 0, "tokens_generated": 0}
        self.between_steps = True
        """False while weights may lie between two steps: such a state is never saved."""

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
        record |= self.updater.update(collected, advantages)
        trained = time.perf_counter()
        self.updater.park()
        self.engine.sync_weights(step=step)
        self.updater.parking.wait_left()
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
