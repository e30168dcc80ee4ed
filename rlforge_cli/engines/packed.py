"""The decoding step of :mod:`rlforge_cli.engines.lean` for a small model on a CPU, where launches are the time.

Projections that read the same input are one matrix, scales are folded in, and attention is two products (the
library's fused attention is made for long queries, not for one token a row). The RMS norm of a CPU is seven launches;
(x, -x) has mean 0, so one layer norm of it begins with RMSNorm(x). A head (a, b) mirrored as (-b, a, b, -a) is normed
the same way and has its rotary partner (-b, a) beside it.

The packed weights are copies, made anew for every ``generate``, so they cannot be stale.
"""

from __future__ import annotations

from typing import Any

import msgspec
import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from rlforge_cli.engines.kv_cache import DecodeCache


class PackedLayer(msgspec.Struct, frozen=True, kw_only=True):
    """One layer's weights, each matrix as [in, out]: the layout that the product reads fastest."""

    qkv: Tensor
    """The input norm's weight is in it, as the next norm's is in ``gate_up``."""
    qkv_bias: Tensor | None
    qk_scale: Tensor
    """[heads + kv heads, 2 * head_dim]: the norms' weights, and the attention's scale on the queries."""
    qk_epsilon: float | None
    """Of the norm of queries and keys, in models that have one."""
    out: Tensor
    gate_up: Tensor
    down: Tensor
    activation: Any
    heads: int
    width: int


def packable(decoder: Any) -> bool:
    """Whether every projection is a plain float32 matrix on the CPU (an adapter or a 4-bit layer is not)."""
    return all(
        type(module) is nn.Linear
        and module.weight.dtype == torch.float32
        and module.weight.device.type == "cpu"
        and (module.bias is None or name.endswith(("q_proj", "k_proj", "v_proj")))
        for layer in decoder.layers
        for name, module in layer.named_modules()
        if name.endswith("_proj")
    )


def pack(decoder: Any) -> list[PackedLayer]:
    """The layers of a :func:`packable` decoder, with the weights of this moment."""
    return [pack_layer(layer) for layer in decoder.layers]


def pack_layer(layer: Any) -> PackedLayer:
    attention, mlp = layer.self_attn, layer.mlp
    width = attention.head_dim
    heads, shared = attention.q_proj.out_features // width, attention.k_proj.out_features // width
    normed = hasattr(attention, "q_norm")
    ones = torch.ones(width)
    weights = (attention.q_norm.weight, attention.k_norm.weight) if normed else (ones, ones)
    query, key = (torch.cat((b, a, b, a)) for a, b in (weight.chunk(2) for weight in weights))
    three = (attention.q_proj, attention.k_proj, attention.v_proj)
    return PackedLayer(
        qkv=side_by_side(*three, scale=layer.input_layernorm.weight),
        qkv_bias=None if three[0].bias is None else torch.cat([module.bias for module in three]),
        qk_scale=torch.cat(((query * attention.scaling).expand(heads, -1), key.expand(shared, -1))),
        qk_epsilon=attention.q_norm.variance_epsilon if normed else None,
        out=side_by_side(attention.o_proj),
        gate_up=side_by_side(mlp.gate_proj, mlp.up_proj, scale=layer.post_attention_layernorm.weight),
        down=side_by_side(mlp.down_proj),
        activation=mlp.act_fn,
        heads=heads,
        width=width,
    )


def side_by_side(*modules: nn.Linear, scale: Tensor | None = None) -> Tensor:
    """[in, out of all], the inputs scaled."""
    joined = torch.cat([module.weight for module in modules])
    return (joined if scale is None else joined * scale).t().contiguous()


class PositionTable(msgspec.Struct, frozen=True):
    """What depends on a token's position alone, for every slot."""

    rotary: Tensor
    """[slots, 2, 1, head_dim]: cosines and sines."""
    bias: Tensor
    """[slots, 1, 1, slots]: 0 for a slot that the token sees, -inf after it."""


def position_table(table: tuple[Tensor, Tensor]) -> PositionTable:
    """From the cosines and sines [slots, head_dim] of :func:`rlforge_cli.engines.lean.rotary_table`."""
    slots = len(table[0])
    bias = torch.full((slots, slots), -torch.inf).triu(1)
    return PositionTable(torch.stack(table, dim=1).unsqueeze(2), bias[:, None, None])


def packed_step(
    layers: list[PackedLayer], decoder: Any, tokens: Tensor, slots: Tensor, *, cache: DecodeCache, table: PositionTable
) -> Tensor:
    """Last hidden states [B, D] after [B] tokens, which are stored at [B] slots."""
    count, epsilon = len(tokens), decoder.norm.variance_epsilon
    hidden = decoder.embed_tokens(tokens)
    cos, sin = table.rotary.index_select(0, slots).unbind(1)
    bias = table.bias.index_select(0, slots)[..., : cache.window]
    for index, layer in enumerate(layers):
        heads, width = layer.heads, layer.width
        half, both = width // 2, len(layer.qk_scale)
        shared = both - heads
        joint = torch.mm(unscaled_norm(hidden, epsilon), layer.qkv)
        if layer.qkv_bias is not None:
            joint = joint + layer.qkv_bias
        joint = joint.view(count, both + shared, width)
        query_key = joint[:, :both]
        turned = -query_key
        mirrored = torch.cat((turned[..., half:], query_key, turned[..., :half]), dim=-1)
        if layer.qk_epsilon is not None:
            mirrored = layer_norm(mirrored, (2 * width,), None, None, layer.qk_epsilon)
        mirrored = mirrored * layer.qk_scale
        placed = torch.addcmul(mirrored[..., half : half + width] * cos, mirrored[..., :width], sin)
        keys, values = cache.update(placed[:, heads:, None], joint[:, both:, None], index)
        folded = placed[:, :heads].reshape(count, shared, heads // shared, width)
        weights = torch.matmul(folded, keys.transpose(-1, -2)).add_(bias).softmax(-1)
        mixed = torch.matmul(weights, values).view(count, heads * width)
        hidden = torch.addmm(hidden, mixed, layer.out)
        gate, up = torch.mm(unscaled_norm(hidden, epsilon), layer.gate_up).chunk(2, dim=-1)
        hidden = torch.addmm(hidden, layer.activation(gate) * up, layer.down)
    return unscaled_norm(hidden, epsilon) * decoder.norm.weight


def unscaled_norm(hidden: Tensor, epsilon: float) -> Tensor:
    """RMSNorm without its weight, [B, D]."""
    width = hidden.shape[1]
    return layer_norm(torch.cat((hidden, -hidden), dim=1), (2 * width,), None, None, epsilon)[:, :width]
