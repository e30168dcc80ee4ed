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

from rlforge_cli.engines.cuda_graph import ROWS, GraphedForward
from rlforge_cli.engines.kv_cache import ATTENTION, DecodeCache, decode_attention
from rlforge_cli.engines.lean import fused_kernels, is_fusable, is_lean, lean_step, rotary_table
from rlforge_cli.engines.packed import PackedLayer, PositionTable, pack, packable, packed_step, position_table
from rlforge_cli.engines.sampling import sample
from rlforge_cli.packed_attention import register_attention, unread_mask
from rlforge_cli.rollouts import Completion, SamplingParams, finish

if TYPE_CHECKING:
    from rlforge_cli.model import Policy

SHRINK_AT = 0.9
"""Ended rows are dropped once the running ones are at most this share of the batch: dropping copies the cache."""
SMALL_MODEL = 5_000_000
"""Below this many parameters decoding on a CPU runs on one thread: two only wait for each other."""
PACKED_SLOTS = 4096
"""The packed step's table of positions is this long squared at most (64 MiB)."""
ROOM = 64
"""Captured graphs are made anew for a larger cache, so it is a multiple of this many slots."""
CUDA_CHECK_EVERY = 16
"""Steps between looks at which rows have ended: each look waits for the device."""


class HFEngine:
    """Implements :class:`rlforge_cli.rollouts.RolloutEngine`."""

    def __init__(self, policy: Policy, *, batch_size: int = 256) -> None:
        register_attention(ATTENTION, decode_attention)
        self.policy = policy
        self.batch_size = batch_size
        self.ends = frozenset(policy.end_ids)
        self.lean = is_lean(policy.backbone.config)
        self.fused = is_fusable(policy.backbone.config, policy.device)
        self.small = policy.device.type == "cpu" and policy.parameter_count < SMALL_MODEL
        self.packs = self.small and self.lean and packable(policy.backbone)
        self.packed: list[PackedLayer] = []
        self.cache = DecodeCache(transposed=self.packs)
        self.table: tuple[Tensor, Tensor] | PositionTable | None = None
        # 4-bit layers allocate as they run, which a capture does not allow
        graphable = policy.device.type == "cuda" and not getattr(policy.causal, "is_quantized", False)
        self.graphed = GraphedForward(self._forward) if graphable else None

    def sync_weights(self, *, step: int) -> None:
        """Nothing to do: the weights are the policy's."""

    def offload(self) -> None:
        """Nothing to do: the cache is small, and kept for the next rollout."""

    def close(self) -> None:
        """Free the cache and the graphs."""
        self.cache = DecodeCache(transposed=self.packs)
        self.graphed = None

    def generate(
        self, prompts: Sequence[Sequence[int]], *, n: int, params: SamplingParams, seed: int,
        places: Sequence[int] | None = None,
    ) -> list[list[Completion]]:  # fmt: skip
        """``n`` completions of each prompt; see the protocol. Batches hold about ``batch_size`` rows."""
        generator = torch.Generator().manual_seed(seed)
        places = range(len(prompts)) if places is None else places
        # a generator fills a tensor in order, so what a place gets does not depend on how many come after it
        uniforms = torch.rand(max(places, default=-1) + 1, n, params.max_tokens, generator=generator)[list(places)]
        results: list[list[Completion]] = [[] for _ in prompts]
        order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
        size = max(1, self.batch_size // n)
        with torch.inference_mode(), self._decoding():
            self.packed = pack(self.policy.backbone) if self.packs else []
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
        if self.small:
            torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
            config._attn_implementation = attention
            model.train(training)

    def _forward(self, tokens: Tensor, slots: Tensor, window: int) -> Tensor:
        """One decoding step: [B] tokens to be stored at [B] slots -> logits [B, V] of what follows."""
        self.cache.slot, self.cache.window = slots, window
        decoder = self.policy.backbone
        if isinstance(self.table, PositionTable):
            return self.policy.head(
                packed_step(self.packed, decoder, tokens, slots, cache=self.cache, table=self.table)
            )
        if self.fused:
            step = fused_kernels().fused_step
            return self.policy.head(step(decoder, tokens, slots, cache=self.cache, table=self.table))
        mask = (torch.arange(window, device=slots.device) <= slots[:, None])[:, None, None]
        if self.table is not None:
            return self.policy.head(lean_step(decoder, tokens, slots, mask, cache=self.cache, table=self.table))
        hidden = self.policy.hidden(tokens[:, None], position_ids=slots[:, None], attention_mask=mask, cache=self.cache)
        return self.policy.head(hidden[:, -1])

    def _prefill(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Store the prompts in the cache; logits [P, V] after each, and their lengths [P]."""
        device = self.policy.device
        lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)
        ids = torch.zeros(len(prompts), max(map(len, prompts)), dtype=torch.long)
        for row, prompt in enumerate(prompts):
            ids[row, : len(prompt)] = torch.tensor(prompt)
        positions = torch.arange(ids.shape[1], device=device).expand(len(prompts), -1)
        mask = unread_mask(device)  # prompts are causal without one (see decode_attention)
        self.cache.slot = None
        hidden = self.policy.hidden(ids.to(device), position_ids=positions, attention_mask=mask, cache=self.cache)
        return self.policy.head(hidden[torch.arange(len(prompts), device=device), lengths - 1]), lengths

    def _decode(
        self, prompts: Sequence[Sequence[int]], uniforms: Tensor, params: SamplingParams
    ) -> tuple[list[list[int]], list[list[float]]]:
        """Decode P prompts x n rows together; a row may go on past its end token. ``uniforms`` [P, n, max_tokens]."""
        device = self.policy.device
        n, limit = uniforms.shape[1:]
        total, longest = len(prompts) * n, max(map(len, prompts))
        rows, slots = total, longest + limit
        if self.graphed:
            rows, slots = next((size for size in ROWS if size >= total), total), -(-slots // ROOM) * ROOM
        if self.packs and slots > PACKED_SLOTS:
            self.packs, self.packed, self.cache = False, [], DecodeCache()
        if self.cache.reserve(rows=rows, slots=slots):
            if self.lean:
                table = rotary_table(self.policy.backbone, slots=self.cache.slots)
                self.table = position_table(table) if self.packs else table
            if self.graphed:
                self.graphed.clear()
        logits, lengths = self._prefill(prompts)
        groups = torch.arange(len(prompts), device=device).repeat_interleave(n)
        self.cache.select(groups, length=longest)
        state = _Rows(logits=logits[groups], slot=lengths[groups], uniforms=uniforms.reshape(-1, limit).to(device))
        ends = torch.zeros(logits.shape[-1], dtype=torch.bool)
        ends[[end for end in self.ends if end < len(ends)]] = True
        ends = ends.to(device)
        check_every = 1 if device.type == "cpu" else CUDA_CHECK_EVERY
        for position in range(limit):
            state.choose(position, params, ends)
            if position + 1 == limit:
                break
            if (position + 1) % check_every == 0:
                running = state.running()
                if len(running) == 0:
                    break
                if len(running) <= SHRINK_AT * len(state.rows):
                    self.cache.select(running, length=longest + position)
                    state.keep(running)
            # the fused step reads every row's own length: one graph does for all of them
            window = self.cache.slots if self.fused else longest + position + 1
            if self.graphed:
                state.logits = self.graphed(state.last, state.slot, window, capacity=self.cache.slots)
            else:
                state.logits = self._forward(state.last, state.slot, window)
            state.slot = state.slot + 1
        return state.results()


class _Rows:
    """The rows being decoded: the logits of their next token, and what was sampled so far."""

    def __init__(self, *, logits: Tensor, slot: Tensor, uniforms: Tensor) -> None:
        total, limit = uniforms.shape
        device = uniforms.device
        self.logits = logits
        self.slot = slot
        """[B]: where the next token is stored, which is also its position."""
        self.uniforms = uniforms
        self.rows = torch.arange(total, device=device)
        """[B]: which of all rows each one is."""
        self.ended = torch.zeros(total, dtype=torch.bool, device=device)
        self.tokens = torch.zeros(total, limit, dtype=torch.long, device=device)
        self.logprobs = torch.zeros(total, limit, device=device)
        self.lengths = torch.zeros(total, dtype=torch.long, device=device)
        """[all rows]: tokens recorded, those after an end token included."""
        self.pending: list[tuple[Tensor, Tensor]] = []
        """Tokens and log-probabilities [B] of the latest positions, written down together."""
        self.written = 0

    def choose(self, position: int, params: SamplingParams, ends: Tensor) -> None:
        """Sample the token at ``position`` of every row; ``ends`` [V] is True for the end tokens."""
        self.last, logprobs = sample(
            self.logits,
            self.uniforms[:, position],
            temperature=params.temperature,
            top_p=params.top_p,
            top_k=params.top_k,
        )
        self.pending.append((self.last, logprobs))
        self.ended = self.ended | ends.index_select(0, self.last)

    def running(self) -> Tensor:
        return (~self.ended).nonzero().squeeze(-1)

    def keep(self, chosen: Tensor) -> None:
        """Go on with some of the rows."""
        self.write()
        self.rows, self.uniforms, self.slot = self.rows[chosen], self.uniforms[chosen], self.slot[chosen]
        self.ended, self.last = self.ended[chosen], self.last[chosen]

    def write(self) -> None:
        if not self.pending:
            return
        tokens, logprobs = (torch.stack(values, dim=1) for values in zip(*self.pending, strict=True))
        end = self.written + len(self.pending)
        self.tokens[self.rows, self.written : end] = tokens
        self.logprobs[self.rows, self.written : end] = logprobs
        self.lengths[self.rows] = end
        self.written = end
        self.pending = []

    def results(self) -> tuple[list[list[int]], list[list[float]]]:
        """Ids and log-probabilities of every row, up to where it was decoded."""
        self.write()
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
