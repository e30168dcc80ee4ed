"""What a rollout is: completions as an engine returns them, in groups, with their rewards; and dynamic sampling.

An engine takes token ids and gives token ids: nothing sampled is decoded and tokenized again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

if TYPE_CHECKING:
    from rlforge_cli.rewards import Scored
    from rlforge_cli.tasks.base import Grade, Problem


SPREAD = 1e-6
"""Rewards closer than this are equal: in float32 the std of eight equal rewards is not 0 (1.3e-7 for 1.2)."""


class Completion(msgspec.Struct, frozen=True):
    """Example: ``Completion(completion_ids=[5, 9], sampling_logprobs=[-.1, -.7], finish_reason="stop", text="42")``."""

    completion_ids: list[int]
    """As sampled, the end token included."""
    sampling_logprobs: list[float]
    """As the engine reported: of the sampled tokens, under the distribution that was sampled from; empty if unasked."""
    finish_reason: Literal["stop", "length"]
    text: str
    """Decoded without special tokens, cut at a stop text."""

    @property
    def truncated(self) -> bool:
        return self.finish_reason == "length"


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """How to decode; temperature 0 is greedy."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    stop: tuple[str, ...] = ()
    logprob_share: float = 1.0
    """At least this share of the completions reports its log-probabilities: to some engines they cost time."""


class RolloutEngine(Protocol):
    """Generates completions with the policy's current weights."""

    def generate(
        self, prompts: Sequence[Sequence[int]], *, n: int, params: SamplingParams, seed: int,
        places: Sequence[int] | None = None,
    ) -> list[list[Completion]]:  # fmt: skip
        """``n`` completions of each prompt, in order. The same seed, prompts and weights give the same completions.

        ``places`` says where each prompt stands among those of a larger call, of which other processes have the rest:
        chance depends on the seed and on that place, not on the process. By default they are a call's own, from 0.
        """
        ...

    def sync_weights(self, *, step: int) -> None:
        """Take over the policy's weights; called before the first generate and after every update."""
        ...

    def offload(self) -> None:
        """Give the device's memory to an update. After it comes :meth:`sync_weights`, before any generate."""
        ...

    def close(self) -> None:
        """Free what the engine holds."""
        ...


class RolloutGroup(msgspec.Struct, frozen=True):
    """G completions of one problem, graded and rewarded."""

    problem: Problem
    prompt_ids: list[int]
    completions: list[Completion]
    grades: list[Grade]
    scores: list[Scored]

    @property
    def rewards(self) -> list[float]:
        """[G] totals; NaN where a reward did not score."""
        return [float("nan") if score.total is None else score.total for score in self.scores]

    @property
    def live(self) -> bool:
        """Whether the rewards have spread, by max - min."""
        scored = [reward for reward in self.rewards if reward == reward]
        return len(scored) > 1 and max(scored) - min(scored) > SPREAD


class Collected(msgspec.Struct, frozen=True):
    """The groups of one step: all that were generated, and the ones to train on."""

    generated: list[RolloutGroup]
    kept: list[RolloutGroup]
    requested: int


def collect(
    sample: Callable[[int, int], list[RolloutGroup]], *, prompts: int, groups: int, dynamic: bool, max_rounds: int
) -> Collected:
    """One step's groups; with ``dynamic``, the first ``prompts`` live ones in sampling order (DAPO, arXiv 2503.14476).

    ``sample(groups, round)`` draws, generates and scores that many groups. While fewer than ``prompts`` live, further
    rounds of the same size are sampled, ``max_rounds`` in all; after that the step trains on what lives.
    """
    generated = sample(groups, 0)
    if not dynamic:
        return Collected(generated, generated, prompts)
    for round_index in range(1, max_rounds):
        if sum(group.live for group in generated) >= prompts:
            break
        generated = generated + sample(groups, round_index)
    kept = [group for group in generated if group.live][:prompts]
    return Collected(generated, kept, prompts)


def mostly_nan(groups: Sequence[Sequence[Completion]]) -> bool:
    """Of the reported log-probabilities: what spoiled weights give. Single ones are the engine's affair."""
    reported = [value for group in groups for c in group for value in c.sampling_logprobs]
    return 2 * sum(map(math.isnan, reported)) > len(reported)


def finish(
    ids: Sequence[int],
    logprobs: Sequence[float],
    *,
    ends: frozenset[int],
    tokenizer: Any,
    stop: Sequence[str] = (),
    hit_limit: bool = True,
) -> Completion:
    """A completion from sampled ids: cut after the first end token, or after the token that completes a stop text.

    A completion that ends exactly at the limit with an end token is not truncated. ``hit_limit`` says that an
    unfinished one ran into max_tokens.
    """
    length = next((index + 1 for index, token in enumerate(ids) if token in ends), None)
    reason: Literal["stop", "length"] = "stop" if length is not None or not hit_limit else "length"
    kept = list(ids[: len(ids) if length is None else length])
    text = tokenizer.decode(kept, skip_special_tokens=True)
    places = [place for word in stop if (place := text.find(word)) >= 0]
    if places:
        text = text[: min(places)]
        kept = kept[: tokens_until(kept, stop, tokenizer)]
        reason = "stop"
    return Completion(kept, [float(value) for value in logprobs[: len(kept)]], reason, text)


def tokens_until(ids: Sequence[int], stop: Sequence[str], tokenizer: Any) -> int:
    """The least number of tokens whose text holds a stop text (bisection: a longer prefix holds it too)."""
    low, high = 1, len(ids)
    while low < high:
        middle = (low + high) // 2
        text = tokenizer.decode(ids[:middle], skip_special_tokens=True)
        if any(word in text for word in stop):
            high = middle
        else:
            low = middle + 1
    return low
