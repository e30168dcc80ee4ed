"""Generation in this process, on the policy's own weights: nothing is copied and nothing can be stale.

A prompt is read once for its whole group. Rows that have ended leave the batch, so the work follows the tokens that
are wanted; on a CUDA device one decoding step is a captured graph.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rlforge_cli.engines.kv_cache import ATTENTION, DecodeCache, register_attention
from rlforge_cli.engines.sampling import sample
from rlforge_cli.rollouts import Completion, SamplingParams, finish

if TYPE_CHECKING:
    from rlforge_cli.model import Policy

SHRINK_AT = 0.8
"""Ended rows are dropped once the running ones are at most this share of the batch: dropping copies the cache."""
SMALL_MODEL = 5_000_000
"""Below this many parameters decoding on a CPU runs on one thread: two only wait for each other."""


class HFEngine:
    """Implements :class:`rlforge_cli.rollouts.RolloutEngine`."""

    def __init__(self, policy: Policy, *, batch_size: int = 256) -> None:
        register_attention()
        self.policy = policy
        self.batch_size = batch_size
        self.ends = frozenset(policy.end_ids)

    def sync_weights(self, *, step: int) -> None:
        """Nothing to do: the weights are the policy's."""

    def close(self) -> None:
        """Nothing to free: the cache lives for one call of generate."""

    def generate(
        self, prompts: Sequence[Sequence[int]], *, n: int, params: SamplingParams, seed: int
    ) -> list[list[Completion]]:
        """``n`` completions of each prompt; see the protocol. Batches hold about ``batch_size`` rows."""
        generator = torch.Generator().manual_seed(seed)
        uniforms = torch.rand(len(prompts), n, params.max_tokens, generator=generator)
        results: list[list[Completion]] = [[] for _ in prompts]
        order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
        size = max(1, self.batch_size // n)
        with torch.inference_mode(), self._decoding():
            for start in range(0, len(order), size):
                chosen = order[start : start + size]
                tokens, logprobs = self._decode([prompts[i] for i in chosen], uniforms[chosen], params)
                for place, index in enumerate(chosen):
                    results[index] = [
                        finish(tokens[place * n + j], logprobs[place * n + j],
                               ends=self.ends, tokenizer=self.policy.tokenizer, stop=params.stop)
                        for j in range(n)
                    ]  # fmt: skip
        return results

    @contextlib.contextmanager
    def _decoding(self) -> Iterator[None]:
        """Evaluation mode, the decoding attention, and one thread where more would hinder."""
        model = self.policy.model
        config = self.policy.backbone.config
        attention, training, threads = config._attn_implementation, model.training, torch.get_num_threads()
        model.eval()
        config._attn_implementation = ATTENTION
        if self.policy.device.type == "cpu" and self.policy.parameter_count < SMALL_MODEL:
            torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
            config._attn_implementation = attention
            model.train(training)

    def _decode(
        self, prompts: Sequence[Sequence[int]], uniforms: Tensor, params: SamplingParams
    ) -> tuple[list[list[int]], list[list[float]]]:
        """Decode P prompts x n rows together; ``uniforms`` [P, n, max_tokens]. Rows hold ids past their end too."""
        n, limit = uniforms.shape[1:]
        state = _Rows(self.policy, prompts, n, uniforms.reshape(-1, limit).to(self.policy.device))
        choose = {"temperature": params.temperature, "top_p": params.top_p, "top_k": params.top_k}
        ends = torch.tensor(sorted(self.ends), device=self.policy.device)
        check_every = 1 if self.policy.device.type == "cpu" else 16
        for position in range(limit):
            tokens, logprobs = sample(state.logits, state.uniforms[:, position], **choose)
            state.record(position, tokens, logprobs, ended=torch.isin(tokens, ends))
            if position + 1 == limit or ((position + 1) % check_every == 0 and state.shrink(SHRINK_AT) == 0):
                break
            state.advance()
        return state.results()


class _Rows:
    """The rows being decoded: their cache, the logits of their next token, and what was sampled so far."""

    def __init__(self, policy: Policy, prompts: Sequence[Sequence[int]], n: int, uniforms: Tensor) -> None:
        device = policy.device
        total, limit = uniforms.shape
        self.policy = policy
        self.uniforms = uniforms
        self.rows = torch.arange(total, device=device)
        self.tokens = torch.zeros(total, limit, dtype=torch.long, device=device)
        self.logprobs = torch.zeros(total, limit, device=device)
        self.lengths = torch.zeros(total, dtype=torch.long, device=device)
        self.ended = torch.zeros(total, dtype=torch.bool, device=device)
        self.cache = DecodeCache()
        longest = max(len(prompt) for prompt in prompts)
        self.cache.capacity = longest + limit
        self.longest = longest
        lengths = torch.tensor([len(prompt) for prompt in prompts])
        ids = torch.zeros(len(prompts), longest, dtype=torch.long)
        for row, prompt in enumerate(prompts):
            ids[row, : len(prompt)] = torch.tensor(prompt)
        positions = torch.arange(longest, device=device).expand(len(prompts), -1)
        hidden = policy.hidden(ids.to(device), position_ids=positions, past_key_values=self.cache)
        last = hidden[torch.arange(len(prompts), device=device), lengths.to(device) - 1]
        self.logits = policy.head(last).repeat_interleave(n, dim=0)
        self.slot = lengths.to(device).repeat_interleave(n)
        self.cache.select(torch.arange(len(prompts), device=device).repeat_interleave(n))
        self.slots = torch.arange(self.cache.capacity, device=device)

    def record(self, position: int, tokens: Tensor, logprobs: Tensor, *, ended: Tensor) -> None:
        self.tokens[self.rows, position] = tokens
        self.logprobs[self.rows, position] = logprobs
        self.lengths[self.rows] += ~self.ended
        self.ended = self.ended | ended
        self.last = tokens

    def shrink(self, share: float) -> int:
        """Drop ended rows when enough have ended; the number of running ones."""
        running = (~self.ended).nonzero().squeeze(-1)
        if 0 < len(running) <= share * len(self.rows):
            self.cache.select(running)
            self.rows, self.uniforms, self.slot = self.rows[running], self.uniforms[running], self.slot[running]
            self.ended, self.last = self.ended[running], self.last[running]
        return len(running)

    def advance(self) -> None:
        """One forward pass: the logits after the tokens recorded last."""
        self.longest += 1
        self.cache.slot, self.cache.window = self.slot, self.longest
        mask = (self.slots[: self.longest] <= self.slot[:, None])[:, None, None]
        hidden = self.policy.hidden(
            self.last[:, None], position_ids=self.slot[:, None], attention_mask=mask, past_key_values=self.cache
        )
        self.logits = self.policy.head(hidden[:, -1])
        self.slot = self.slot + 1

    def results(self) -> tuple[list[list[int]], list[list[float]]]:
        lengths = self.lengths.tolist()
        tokens, logprobs = self.tokens.tolist(), self.logprobs.tolist()
        return (
            [row[:length] for row, length in zip(tokens, lengths, strict=True)],
            [row[:length] for row, length in zip(logprobs, lengths, strict=True)],
        )


def unsupported_reason(config: Any) -> str | None:
    """Why this engine cannot decode a model, or None: attention windows and scaled heads are not in its path."""
    window = getattr(config, "sliding_window", None)
    if window and any(kind != "full_attention" for kind in getattr(config, "layer_types", None) or ["sliding"]):
        return f"its attention has a sliding window of {window}"
    for name in ("final_logit_softcapping", "logits_scaling", "logit_scale"):
        if getattr(config, name, None) not in (None, 1.0):
            return f"its head applies {name}"
    return None
