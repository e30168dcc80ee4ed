"""What smoke measures with a model at hand: tokens, seeds, agreement of engine and trainer, how far both moved."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from torch import Tensor

from rlforge_cli.checks.evidence import (
    Adapters,
    Agreement,
    BosProbe,
    EndProbe,
    Groups,
    LongestBatch,
    Movement,
    SeedProbe,
    SleepProbe,
)
from rlforge_cli.grpo.batch import make_batch
from rlforge_cli.grpo.loss import kl_estimate
from rlforge_cli.rollouts import Completion, SamplingParams
from rlforge_cli.rows import Row
from rlforge_cli.seeding import ProblemOrder, derive

if TYPE_CHECKING:
    from rlforge_cli.model import Policy
    from rlforge_cli.prompts import PromptEncoder
    from rlforge_cli.rollouts import RolloutGroup
    from rlforge_cli.tasks.base import Problem
    from rlforge_cli.trainer import Trainer

ROWS = 64
"""Completions whose log-probabilities are compared."""
PADDED_ROWS = 12
"""Of them, those that are read again in one batch of mixed lengths."""
SEED_PROMPTS, SEED_TOKENS = 4, 32
SLEEP_PROMPTS, SLEEP_TOKENS = 4, 32


def bos_probe(encoder: PromptEncoder, problems: Sequence[Problem], *, looked_at: int = 200) -> BosProbe:
    """How many BOS tokens prompts begin with."""
    tokenizer = encoder.tokenizer
    bos = getattr(tokenizer, "bos_token_id", None)
    if bos is None:
        return BosProbe(None, False, {0: min(looked_at, len(problems))})
    chosen = problems[:looked_at]
    counts = Counter(leading(encoder.encode(problem), bos) for problem in chosen)
    written = bool(getattr(tokenizer, "chat_template", None)) and encoder.texts(chosen[:1])[0].startswith(
        tokenizer.bos_token
    )
    return BosProbe(tokenizer.bos_token, encoder.bos is not None or written, dict(counts))


def leading(ids: Sequence[int], token: int) -> int:
    return next((index for index, value in enumerate(ids) if value != token), len(ids))


def end_probe(policy: Policy, groups: Sequence[RolloutGroup]) -> EndProbe:
    """Declared ends, how the chat template ends an answer, and special tokens that ended nothing."""
    tokenizer, ends = policy.tokenizer, set(policy.end_ids)
    special = special_ids(tokenizer)
    completions = [c for group in groups for c in group.completions]
    stray = Counter(token for c in completions for token in set(c.completion_ids) & special - ends)
    after = template_end(tokenizer, special)
    return EndProbe(
        declared=tokenizer.convert_ids_to_tokens(sorted(ends)),
        template_end=None if after is None or after in ends else tokenizer.convert_ids_to_tokens(after),
        completions=len(completions), ended=sum(not c.truncated for c in completions),
        undeclared={tokenizer.convert_ids_to_tokens(t): n / len(completions) for t, n in stray.items()},
    )  # fmt: skip


def special_ids(tokenizer: Any) -> set[int]:
    """Tokens that are no text: their appearance inside a completion is a sign."""
    added = {token for token, entry in tokenizer.added_tokens_decoder.items() if entry.special}
    return (added | set(tokenizer.all_special_ids)) - {getattr(tokenizer, "unk_token_id", None)}


def template_end(tokenizer: Any, special: set[int]) -> int | None:
    """The special token that the chat template writes after an answer, or None."""
    if not getattr(tokenizer, "chat_template", None):
        return None
    said = "ANSWER"
    turns = [{"role": "user", "content": "1"}, {"role": "assistant", "content": said}]
    text = tokenizer.apply_chat_template(turns, tokenize=False)
    ids = tokenizer(text.rpartition(said)[2], add_special_tokens=False)["input_ids"]
    return ids[0] if ids and ids[0] in special else None


def seed_probe(trainer: Trainer, problems: Sequence[Problem]) -> SeedProbe:
    """Short completions under one seed twice, and under the next."""
    seed = trainer.config.train.seed
    prompts = [trainer.encoder.encode(problem) for problem in problems[:SEED_PROMPTS]]
    params = msgspec.structs.replace(
        trainer.params, max_tokens=min(SEED_TOKENS, trainer.params.max_tokens), logprob_share=1.0
    )

    def sampled(number: int) -> list[Completion]:
        groups = trainer.engine.generate(prompts, n=2, params=params, seed=derive(number, "smoke", "seeds"))
        return [c for group in groups for c in group]

    def ids(completions: Sequence[Completion]) -> list[list[int]]:
        return [c.completion_ids for c in completions]

    order = [ProblemOrder(len(trainer.problems), seed=number).draw(16) for number in (seed, seed + 1)]
    first = sampled(seed)
    known = all(len(c.sampling_logprobs) == len(c.completion_ids) for c in first)
    return SeedProbe(
        ids(first) == ids(sampled(seed)), ids(first) != ids(sampled(seed + 1)),
        order[0] != order[1] or len(trainer.problems) < 3,
        chance=math.exp(min(0.0, sum(sum(c.sampling_logprobs) for c in first))) if known else 0.0,
    )  # fmt: skip


def greedy(trainer: Trainer, problems: Sequence[Problem]) -> list[list[int]]:
    """Greedy tokens of a few prompts."""
    prompts = [trainer.encoder.encode(problem) for problem in problems[:SLEEP_PROMPTS]]
    params = SamplingParams(max_tokens=min(SLEEP_TOKENS, trainer.params.max_tokens), temperature=0.0, logprob_share=0.0)
    groups = trainer.engine.generate(prompts, n=1, params=params, seed=0)
    return [c.completion_ids for group in groups for c in group]


def sleep_probe(level: int, before: Sequence[Sequence[int]], after: Sequence[Sequence[int]]) -> SleepProbe:
    return SleepProbe(level, len(before), sum(a != b for a, b in zip(before, after, strict=True)))


def longest_batch(trainer: Trainer) -> tuple[LongestBatch, bool]:
    """Forward and backward of the longest micro-batch, halved until it fits; and whether a gradient arrives."""
    config = trainer.config
    width, limit = config.rollout.max_prompt_tokens, config.rollout.max_tokens
    sample = trainer.encoder.encode(trainer.problems[0])
    row = Row((sample * width)[:width], (sample * limit)[:limit], 1.0, [0.0] * limit)
    wanted = size = min(config.train.micro_batch_size, config.rollout.prompts * config.rollout.group_size)
    cuda = trainer.policy.device.type == "cuda"
    path = True
    while size:
        try:
            loss, _, _ = trainer.updater.micro_loss([row] * size, denominator=size)
            path = loss.requires_grad
            if path:
                loss.backward()
            break
        except torch.OutOfMemoryError:
            size //= 2
        finally:
            trainer.optimizer.zero_grad()
            if cuda:
                torch.cuda.empty_cache()
    peak = torch.cuda.max_memory_allocated(trainer.policy.device) / 2**30 if cuda else None
    return LongestBatch(wanted, width + limit, size == wanted, size or None, peak), path


def adapters(policy: Policy) -> Adapters:
    """Which LoRA B matrices are still 0."""
    found = [(name, p) for name, p in policy.model.named_parameters() if "lora_B" in name]
    return Adapters(len(found), [short(name) for name, p in found if not bool(p.detach().any())])


def short(name: str) -> str:
    return name.removeprefix("base_model.model.").partition(".lora_B")[0]


class Tokens:
    """Some sampled completions, with their log-probabilities by engine, trainer and reference, one flat tensor each."""

    def __init__(self, trainer: Trainer, groups: Sequence[RolloutGroup]) -> None:
        flat = [(group.prompt_ids, c) for group in groups for c in group.completions if c.sampling_logprobs]
        chosen = flat[:: max(1, len(flat) // ROWS)][:ROWS]
        self.trainer = trainer
        self.rows = [(prompt, c.completion_ids) for prompt, c in chosen]
        self.engine = torch.tensor([value for _, c in chosen for value in c.sampling_logprobs], dtype=torch.float64)

    def logprobs(self, *, reference: bool = False) -> Tensor:
        """[tokens] float64 at the sampling temperature, row by row; rows of like length share a forward pass."""
        order = sorted(range(len(self.rows)), key=lambda row: len(self.rows[row][0]) + len(self.rows[row][1]))
        size = self.trainer.config.train.micro_batch_size
        return self._logprobs([order[start : start + size] for start in range(0, len(order), size)], reference)

    def padding_gap(self, known: Tensor) -> float:
        """Largest change of the first rows' ``known`` log-probabilities when rows of any length share a pass."""
        if not self.rows:
            return 0.0
        mixed = self._logprobs([list(range(min(PADDED_ROWS, len(self.rows))))], reference=False)
        return float((mixed - known[: len(mixed)]).abs().max())

    def _logprobs(self, parts: Sequence[Sequence[int]], reference: bool) -> Tensor:
        policy, temperature = self.trainer.policy, self.trainer.params.temperature
        found: list[Tensor] = [torch.empty(0, dtype=torch.float64)] * len(self.rows)
        with torch.no_grad():
            for indices in parts:
                batch = make_batch([self.rows[i][0] for i in indices], [self.rows[i][1] for i in indices])
                values = (
                    policy.reference_logprobs(batch, temperature=temperature)
                    if reference
                    else policy.logprobs(batch, temperature=temperature)[0]
                )
                for place, index in enumerate(indices):
                    found[index] = values[place, : len(self.rows[index][1])].double().cpu()
        return torch.cat(found) if found else torch.empty(0, dtype=torch.float64)


def agreement(engine: Tensor, trainer: Tensor) -> Agreement:
    """Of log-probabilities [tokens] of the same tokens."""
    gap = engine - trainer
    return Agreement(
        mean=float(gap.abs().mean()), largest=float(gap.abs().max()), kl=float(kl_estimate(engine, trainer).mean()),
        tokens=len(gap), rms=float(gap.square().mean().sqrt()),
    )  # fmt: skip


def group_probe(groups: Sequence[RolloutGroup]) -> Groups:
    right = [grade.correct for group in groups for grade in group.grades]
    return Groups(len(groups), sum(not group.live for group in groups), sum(right) / len(right), len(groups[0].grades))


def mean_rewards(groups: Sequence[RolloutGroup]) -> list[float]:
    """A problem's mean reward over its scored completions; NaN when none is."""
    means = []
    for group in groups:
        scored = [reward for reward in group.rewards if not math.isnan(reward)]
        means.append(sum(scored) / len(scored) if scored else math.nan)
    return means


def movement(tokens: Tokens, *, identical: bool, checksum_moved: bool | None) -> Movement:
    """The regression that :class:`Movement` describes; ``tokens`` were sampled after the last step."""
    if not tokens.trainer.policy.has_reference or not tokens.rows:
        return Movement(None, None, None, identical, checksum_moved)
    start = tokens.logprobs(reference=True)
    moved, followed = tokens.logprobs() - start, tokens.engine - start
    square = float(moved.square().sum())
    if square == 0:
        return Movement(None, None, 0.0, identical, checksum_moved)
    slope = float((moved * followed).sum()) / square
    rest = float((followed - slope * moved).square().sum()) / max(1, len(moved) - 1)
    return Movement(slope, math.sqrt(rest / square), math.sqrt(square / len(moved)), identical, checksum_moved)


def same_completions(before: Sequence[RolloutGroup], after: Sequence[RolloutGroup]) -> bool:
    """Whether tokens and log-probabilities are equal to the last digit."""
    return all(
        a.completion_ids == b.completion_ids and a.sampling_logprobs == b.sampling_logprobs
        for x, y in zip(before, after, strict=True)
        for a, b in zip(x.completions, y.completions, strict=True)
    )


def checksum(engine: Any) -> object:
    """The engine's own ``weights_checksum()``; None for one that shares the policy's weights and has none."""
    own = getattr(engine, "weights_checksum", None)
    return own() if own else None
