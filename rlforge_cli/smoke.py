"""`rlforge smoke`: a few steps with a real model, and around them the probes that say whether they mean anything.

Nothing is written: the run that follows starts as if smoke had never been.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from rlforge_cli import difficulty, reward_check
from rlforge_cli.checks import Evidence, Probes
from rlforge_cli.checks.evidence import PlanFacts
from rlforge_cli.config import Config
from rlforge_cli.errors import NotNumbers, UserError
from rlforge_cli.libraries import load_libraries
from rlforge_cli.seeding import derive

if TYPE_CHECKING:
    from rlforge_cli.model import Policy
    from rlforge_cli.prompts import PromptEncoder
    from rlforge_cli.rollouts import RolloutEngine, RolloutGroup
    from rlforge_cli.tasks.base import Problem, Task
    from rlforge_cli.trainer import Trainer

STEPS = 20
LOGPROB_SHARE = 0.125
"""At least this share of the completions reports log-probabilities here: engine and trainer are compared on them."""
PROBE_GROUPS = 48
"""Problems of the paired test and of the reward check, G completions each: a fall of 0.1 shows at 48."""
Progress = Callable[[dict[str, Any]], None]


class Parts(NamedTuple):
    """What a smoke runs on."""

    policy: Policy
    task: Task
    encoder: PromptEncoder
    engine: RolloutEngine


class Smoked(msgspec.Struct, frozen=True):
    """``missing`` says how to get the model or the data when there was none to run."""

    evidence: Evidence
    missing: str | None = None


def load_parts(config: Config) -> Parts:
    """The model, then the task: a model that cannot be had is said first.

    Raises:
        UserError: one of them cannot be had.
    """
    load_libraries()

    from rlforge_cli.engines.choose import make_engine
    from rlforge_cli.model import load_policy
    from rlforge_cli.prompts import PromptEncoder
    from rlforge_cli.tasks.registry import load_task

    policy = load_policy(config.model, seed=config.train.seed)
    task = load_task(config.data)
    encoder = PromptEncoder(policy.tokenizer, config.prompt, max_tokens=config.rollout.max_prompt_tokens)
    return Parts(policy, task, encoder, make_engine(config, policy))


def smoke(
    config: Config,
    *,
    steps: int = STEPS,
    plan: PlanFacts | None = None,
    load: Callable[[Config], Parts] = load_parts,
    progress: Progress = lambda record: None,
) -> Smoked:
    """Collect what the gates judge.

    Raises:
        UserError: a reward that cannot be meant, or a reward function that failed.
    """
    from rlforge_cli.rewards import check_reward

    check_reward(config.reward, config.rollout.max_tokens)
    try:
        parts = load(config)
    except UserError as error:
        why = f"no model to run: {error}"
        return Smoked(Evidence(config=config, plan=plan, missing=why), str(error))
    session = Session(config, parts, plan)
    try:
        session.before_training()
        if steps and not session.stopped:
            with session.ended_by_spoiled_weights():
                session.train(steps, progress)
    finally:
        parts.engine.close()
    return Smoked(session.evidence())


def check_rewards(config: Config, *, load: Callable[[Config], Parts] = load_parts) -> Smoked:
    """What `rlforge smoke --rewards` judges: probes and samples of the untrained model.

    Raises:
        UserError: see :func:`smoke`.
    """
    from rlforge_cli.rewards import check_reward

    check_reward(config.reward, config.rollout.max_tokens)
    try:
        parts = load(config)
    except UserError as error:
        return Smoked(Evidence(config=config, missing=f"no model to run: {error}"), str(error))
    session = Session(config, parts, None)
    try:
        session.static()
        session.make_trainer()
        session.rewards(session.sample())
    finally:
        parts.engine.close()
    return Smoked(session.evidence())


class Session:
    """A smoke under way: its parts, and what it has measured so far."""

    def __init__(self, config: Config, parts: Parts, plan: PlanFacts | None) -> None:
        self.config = config
        self.parts = parts
        self.plan = plan
        self.found: dict[str, Any] = {}
        self.records: list[dict[str, Any]] = []
        self.stopped = ""
        self.problems = parts.encoder.fitting(difficulty.chosen(parts.task.problems("train"), config.data))
        held_out = parts.encoder.fitting(parts.task.problems("validation"))
        # under a band of difficulty held-out problems would be of another kind
        self.probes: Sequence[Problem] = (self.problems if config.data.difficulty else held_out)[:PROBE_GROUPS]

    def evidence(self) -> Evidence:
        return Evidence(
            config=self.config, records=self.records, plan=self.plan, probes=Probes(**self.found),
            missing=self.stopped or "smoke ended before this was measured",
        )  # fmt: skip

    def static(self) -> None:
        """Prompts, golds and what fixed answers are paid: no generation."""
        from rlforge_cli import probing

        policy, task, encoder = self.parts.policy, self.parts.task, self.parts.encoder
        self.found["trainable"] = sum(p.numel() for p in policy.trainable().values())
        self.found["parameters"] = policy.parameter_count
        self.found["bos"] = probing.bos_probe(encoder, self.problems)
        self.found["golds"] = reward_check.gold_probe(task, self.problems)
        self.found["earnings"] = reward_check.earnings(
            task, self.probes[: reward_check.PROBLEMS], config=self.config,
            length=lambda text: len(encoder.tokenizer(text, add_special_tokens=False)["input_ids"]) + 1,
        )  # fmt: skip

    def make_trainer(self) -> None:
        from rlforge_cli.trainer import Trainer

        policy, task, encoder, engine = self.parts
        self.trainer: Trainer = Trainer(
            self.config, policy=policy, engine=engine, task=task, encoder=encoder, problems=self.problems
        )
        params = self.trainer.params
        share = max(params.logprob_share, LOGPROB_SHARE)
        self.trainer.params = msgspec.structs.replace(params, logprob_share=share)
        engine.sync_weights(step=0)

    def sample(self) -> list[RolloutGroup]:
        """G completions of every probe problem; always with the same random numbers."""
        return self.trainer.sample_groups(self.probes, seed=derive(self.config.train.seed, "smoke", "probe"))

    def rewards(self, groups: Sequence[RolloutGroup]) -> None:
        """What the model's own completions are paid."""
        self.found["earnings"] = [*self.found["earnings"], *reward_check.sampled_earnings(groups)]
        self.found["components"] = reward_check.component_uses(groups)
        self.found["totals"], self.found["unscored"] = reward_check.sampled_levels(groups)

    def before_training(self) -> None:
        """Everything that is measured on untouched weights; may end the smoke."""
        from rlforge_cli import probing

        self.static()
        if not self.found["trainable"]:
            self.stopped = "stopped: no parameter is trainable"
            return
        self.make_trainer()
        level = getattr(self.parts.engine, "sleep_level", None)
        awake = probing.greedy(self.trainer, self.probes) if level is not None else []
        self.parts.engine.offload()  # as in a step: the update has the memory
        self.found["longest"], self.found["gradient_path"] = probing.longest_batch(self.trainer)
        if not self.found["longest"].fits or not self.found["gradient_path"]:
            fits = self.found["longest"].fits
            self.stopped = f"stopped: {'no gradient reaches a weight' if fits else 'the longest batch does not fit'}"
            return
        self.parts.engine.sync_weights(step=0)
        if level is not None:
            self.found["sleep"] = probing.sleep_probe(level, awake, probing.greedy(self.trainer, self.probes))
        self.found["seeds"] = probing.seed_probe(self.trainer, self.probes)
        self.start = self.sample()
        self.rewards(self.start)
        self.found["ends"] = probing.end_probe(self.parts.policy, self.start)
        self.found["groups"] = probing.group_probe(self.start)
        self.tokens = probing.Tokens(self.trainer, self.start)
        self.start_logprobs = self.tokens.logprobs()
        self.found["agreement"] = probing.agreement(self.tokens.engine, self.start_logprobs)
        self.found["padding_gap"] = self.tokens.padding_gap(self.start_logprobs)

    @contextlib.contextmanager
    def ended_by_spoiled_weights(self) -> Iterator[None]:
        """They are what the gates judge, not an error of smoke's."""
        try:
            yield
        except NotNumbers as error:
            self.records.append({"step": len(self.records) + 1, "_nonfinite": ["sampling_logprobs"]})
            self.stopped = f"stopped: {error}"

    def train(self, steps: int, progress: Progress) -> None:
        """The steps, and then the same probes again."""
        from rlforge_cli import probing
        from rlforge_cli.grpo.loss import kl_estimate

        before = probing.checksum(self.parts.engine)
        for _ in range(steps):
            record = self.trainer.train_step()
            self.records.append(record)
            progress(record)
            if self.trainer.optimizer.updates == 2 and "adapters" not in self.found and self.parts.policy.is_adapter:
                self.found["adapters"] = probing.adapters(self.parts.policy)
        after = probing.checksum(self.parts.engine)
        end = self.sample()
        pairs = zip(probing.mean_rewards(self.start), probing.mean_rewards(end), strict=True)
        scored = [(a, b) for a, b in pairs if not math.isnan(a) and not math.isnan(b)]
        self.found["rewards_before"], self.found["rewards_after"] = [a for a, _ in scored], [b for _, b in scored]
        self.found["policy_kl"] = float(kl_estimate(self.start_logprobs, self.tokens.logprobs()).mean())
        moved = any(record.get("weights_changed_fraction") for record in self.records)
        self.found["movement"] = probing.movement(
            probing.Tokens(self.trainer, end), identical=moved and probing.same_completions(self.start, end),
            checksum_moved=None if before is None or not moved else before != after,
        )  # fmt: skip
