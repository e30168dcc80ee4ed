"""The decoding step of :mod:`rlforge_cli.engines.lean` on a CUDA device, and the choice of its token, in few kernels.

With one token a row a kernel's time is its launch and the memory it reads. So what lies between two matrix products
is one kernel: residual and norm; norm, rotation and storing of the heads; the gate. Attention reads every row's own
length and no mask (softmax by running maximum, arXiv 2205.14135), which makes one captured graph do for all lengths.
Projections are the modules' own, adapters and 4-bit layers included.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from rlforge_cli.engines.kv_cache import DecodeCache
from rlforge_cli.engines.sampling import BELOW_ONE

SLOTS, TILE_BYTES = 64, 16_384
"""Of the cache, that attention looks at together: at most, and what their keys may take of a processor's own memory."""
LEAST = 16
"""Rows, columns and depth of the smallest product in a kernel."""
CHUNK = 1024
"""Of the vocabulary: the token's chunk is chosen first, then the token in it."""
MOST = tl.constexpr(BELOW_ONE)


@triton.jit
def _add_norm(  # type: ignore[no-untyped-def]
    hidden, more, weight, total, normed, epsilon, WIDTH: tl.constexpr, BLOCK: tl.constexpr, ADDS: tl.constexpr
):
    columns = tl.arange(0, BLOCK)
    inside = columns < WIDTH
    place = tl.program_id(0).to(tl.int64) * WIDTH + columns
    x = tl.load(hidden + place, mask=inside, other=0.0)
    if ADDS:
        x += tl.load(more + place, mask=inside, other=0.0)
        tl.store(total + place, x, mask=inside)
    exact = x.to(tl.float32)
    exact *= tl.rsqrt(tl.sum(exact * exact, axis=0) / WIDTH + epsilon)
    tl.store(normed + place, exact * tl.load(weight + columns, mask=inside, other=0.0), mask=inside)


@triton.jit
def _place(  # type: ignore[no-untyped-def]
    query, key, value, query_weight, key_weight, cosines, sines, slots, placed, keys, values, epsilon,
    row_stride, head_stride, HEADS: tl.constexpr, SHARED: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
    NORMS: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    HALF: tl.constexpr = WIDTH // 2
    columns = tl.arange(0, BLOCK)
    inside = columns < HALF
    slot = tl.load(slots + row)
    if head < HEADS:
        source, weight = query + (row * HEADS + head) * WIDTH, query_weight
        target = placed + (row * HEADS + head) * WIDTH
    else:
        of_row, in_cache = (row * SHARED + head - HEADS) * WIDTH, row * row_stride + (head - HEADS) * head_stride
        source, weight = key + of_row, key_weight
        target = keys + in_cache + slot * WIDTH
        for half in tl.static_range(2):
            moved = tl.load(value + of_row + half * HALF + columns, mask=inside)
            tl.store(values + in_cache + slot * WIDTH + half * HALF + columns, moved, mask=inside)
    first = tl.load(source + columns, mask=inside, other=0.0)
    second = tl.load(source + HALF + columns, mask=inside, other=0.0).to(tl.float32)
    kind = first.dtype
    first = first.to(tl.float32)
    if NORMS:
        scale = tl.rsqrt((tl.sum(first * first, axis=0) + tl.sum(second * second, axis=0)) / WIDTH + epsilon)
        first = (first * scale * tl.load(weight + columns, mask=inside, other=0.0)).to(kind).to(tl.float32)
        second = (second * scale * tl.load(weight + HALF + columns, mask=inside, other=0.0)).to(kind).to(tl.float32)
    # a table's halves are equal: a pair turns by one angle
    cosine = tl.load(cosines + slot * WIDTH + columns, mask=inside, other=0.0)
    sine = tl.load(sines + slot * WIDTH + columns, mask=inside, other=0.0)
    tl.store(target + columns, first * cosine - second * sine, mask=inside)
    tl.store(target + HALF + columns, second * cosine + first * sine, mask=inside)


@triton.jit
def _attend(  # type: ignore[no-untyped-def]
    query, keys, values, slots, mixed, scale, row_stride, head_stride, GROUP: tl.constexpr, ROWS: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, SLOTS: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    last = tl.load(slots + row)
    members, columns = tl.arange(0, ROWS), tl.arange(0, BLOCK)
    inside = columns < WIDTH
    place = ((row * tl.num_programs(1) + head) * GROUP + members[:, None]) * WIDTH + columns[None, :]
    wanted = (members[:, None] < GROUP) & inside[None, :]
    q = tl.load(query + place, mask=wanted, other=0.0)
    start_of = row * row_stride + head * head_stride
    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    sums = tl.zeros([ROWS, BLOCK], tl.float32)
    for start in range(0, last + 1, SLOTS):
        seen = start + tl.arange(0, SLOTS)
        there = start_of + seen[:, None] * WIDTH + columns[None, :]
        readable = (seen[:, None] <= last) & inside[None, :]
        k = tl.load(keys + there, mask=readable, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        scores = tl.where(seen[None, :] <= last, scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, axis=1))
        shrink, weights = tl.exp(top - higher), tl.exp(scores - higher[:, None])
        v = tl.load(values + there, mask=readable, other=0.0)
        total = total * shrink + tl.sum(weights, axis=1)
        sums = sums * shrink[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        top = higher
    tl.store(mixed + place, sums / total[:, None], mask=wanted)


@triton.jit
def _gate(gate, up, gated, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    x = tl.load(gate + place, mask=inside, other=0.0)
    exact = x.to(tl.float32)
    silu = (exact / (1 + tl.exp(-exact))).to(x.dtype)
    tl.store(gated + place, silu * tl.load(up + place, mask=inside, other=0.0), mask=inside)


@triton.jit
def _chunk_sums(logits, peaks, sums, temperature, vocabulary, CHUNK: tl.constexpr):  # type: ignore[no-untyped-def]
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    columns = chunk * CHUNK + tl.arange(0, CHUNK)
    x = tl.load(logits + row * vocabulary + columns, mask=columns < vocabulary, other=float("-inf"))
    x = x.to(tl.float32) / temperature
    peak = tl.max(x, axis=0)
    place = row * tl.num_programs(1) + chunk
    tl.store(peaks + place, peak)
    tl.store(sums + place, tl.sum(tl.exp(x - tl.where(peak == float("-inf"), 0.0, peak)), axis=0))


@triton.jit
def _choose(logits, chunks, targets, largest, chosen, values, temperature, vocabulary, CHUNK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    start = tl.load(chunks + row)
    start *= CHUNK
    columns = tl.arange(0, CHUNK)
    x = tl.load(logits + row * vocabulary + start + columns, mask=start + columns < vocabulary, other=float("-inf"))
    x = x.to(tl.float32) / temperature
    reached = tl.cumsum(tl.exp(x - tl.load(largest + row)), axis=0)
    # of the chunk's own sum, as rounded here
    target = tl.minimum(tl.maximum(tl.load(targets + row), 0.0), tl.max(reached, axis=0) * MOST)
    place = tl.sum((reached <= target).to(tl.int32), axis=0)
    place = tl.minimum(place, tl.minimum(CHUNK, vocabulary - start) - 1)  # past the end where the logits are NaN
    tl.store(chosen + row, start + place)
    tl.store(values + row, tl.sum(tl.where(columns == place, x, 0.0), axis=0))


def add_norm(hidden: Tensor, more: Tensor | None, module: Any) -> tuple[Tensor, Tensor]:
    """``hidden + more`` [B, D] and the module's RMS norm of it."""
    total = hidden if more is None else torch.empty_like(hidden)
    normed = torch.empty_like(hidden)
    width = hidden.shape[1]
    _add_norm[(len(hidden),)](
        hidden, more, module.weight, total, normed, module.variance_epsilon, WIDTH=width,
        BLOCK=triton.next_power_of_2(width), ADDS=more is not None,
    )  # fmt: skip
    return total, normed


def place_heads(
    attention: Any, query: Tensor, key: Tensor, value: Tensor, slots: Tensor, *, table: tuple[Tensor, Tensor],
    keys: Tensor, values: Tensor,
) -> Tensor:  # fmt: skip
    """Norm (in models that have it) and rotate ``query`` and ``key`` [B, heads * head_dim]; store keys and values.

    ``keys`` and ``values`` [rows, kv heads, slots, head_dim] take row b's at slot ``slots[b]``. Returns the queries.
    """
    width, (cosines, sines) = attention.head_dim, table
    heads, shared = query.shape[1] // width, key.shape[1] // width
    normed = hasattr(attention, "q_norm")
    placed = torch.empty_like(query)
    _place[(len(query), heads + shared)](
        query, key, value, attention.q_norm.weight if normed else None, attention.k_norm.weight if normed else None,
        cosines, sines, slots, placed, keys, values, attention.q_norm.variance_epsilon if normed else 0.0,
        keys.stride(0), keys.stride(1), HEADS=heads, SHARED=shared, WIDTH=width,
        BLOCK=triton.next_power_of_2(width // 2), NORMS=normed,
    )  # fmt: skip
    return placed


def attend(query: Tensor, keys: Tensor, values: Tensor, slots: Tensor, *, scale: float) -> Tensor:
    """What ``query`` [B, heads * head_dim] finds in its row's slots 0 to ``slots[b]``, [B, heads * head_dim]."""
    shared, width = keys.shape[1], keys.shape[3]
    group = query.shape[1] // (shared * width)
    mixed = torch.empty_like(query)
    block = max(LEAST, triton.next_power_of_2(width))
    _attend[(len(query), shared)](
        query, keys, values, slots, mixed, scale, keys.stride(0), keys.stride(1), GROUP=group,
        ROWS=max(LEAST, triton.next_power_of_2(group)), WIDTH=width, BLOCK=block,
        SLOTS=max(LEAST, min(SLOTS, TILE_BYTES // (block * keys.element_size()))), num_warps=4, num_stages=2,
    )  # fmt: skip
    return mixed


def gated(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up."""
    product = torch.empty_like(gate)
    _gate[(triton.cdiv(gate.numel(), CHUNK),)](gate, up, product, gate.numel(), BLOCK=CHUNK)
    return product


def fused_step(
    decoder: Any, tokens: Tensor, slots: Tensor, *, cache: DecodeCache, table: tuple[Tensor, Tensor]
) -> Tensor:
    """Last hidden states [B, D] after [B] tokens, which are stored at [B] slots."""
    hidden, more = decoder.embed_tokens(tokens), None
    for layer, keys, values in zip(decoder.layers, cache.keys, cache.values, strict=True):
        attention, mlp = layer.self_attn, layer.mlp
        hidden, normed = add_norm(hidden, more, layer.input_layernorm)
        query, key, value = (module(normed) for module in (attention.q_proj, attention.k_proj, attention.v_proj))
        query = place_heads(attention, query, key, value, slots, table=table, keys=keys, values=values)
        mixed = attend(query, keys, values, slots, scale=attention.scaling)
        hidden, normed = add_norm(hidden, attention.o_proj(mixed), layer.post_attention_layernorm)
        more = mlp.down_proj(gated(mlp.gate_proj(normed), mlp.up_proj(normed)))
    return add_norm(hidden, more, decoder.norm)[1]


def sample(logits: Tensor, uniform: Tensor, *, temperature: float) -> tuple[Tensor, Tensor]:
    """Tokens [B] and their log-probabilities [B] by inverse cumulative distribution at a temperature above 0.

    One pass over ``logits`` [B, V] gives the probability of each chunk; ``uniform`` [B] in [0, 1) decides on the chunk
    and then on the token in it.
    """
    rows, vocabulary = logits.shape
    logits = logits.contiguous()
    peaks, sums = logits.new_empty(2, rows, triton.cdiv(vocabulary, CHUNK), dtype=torch.float32)
    _chunk_sums[peaks.shape](logits, peaks, sums, temperature, vocabulary, CHUNK=CHUNK)
    largest = peaks.amax(1)
    weights = sums * (peaks - largest[:, None]).exp()
    reached = weights.cumsum(1)
    target = uniform.clamp(max=BELOW_ONE)[:, None] * reached[:, -1:]
    chunks = torch.searchsorted(reached, target, right=True).clamp(max=peaks.shape[1] - 1)
    target = target - (reached.gather(1, chunks) - weights.gather(1, chunks))
    tokens, values = torch.empty_like(chunks[:, 0]), torch.empty_like(largest)
    _choose[(rows,)](logits, chunks, target, largest, tokens, values, temperature, vocabulary, CHUNK=CHUNK)
    return tokens, values - largest - reached[:, -1].log()
