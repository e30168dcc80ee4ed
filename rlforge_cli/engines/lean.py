"""One decoding step of the common decoder architecture, without the framework around it.

Llama, Qwen2 and Qwen3 share one layer: norm, attention with rotary positions, norm, gated MLP. With one token a row
the arithmetic is small and the time goes into launching it; called directly, the same modules (adapters and 4-bit
layers included) need less than half of the launches. The result is that of the model's own forward pass.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import rms_norm, scaled_dot_product_attention

from rlforge_cli.engines.kv_cache import DecodeCache
from rlforge_cli.triton_support import has_triton

ARCHITECTURES = frozenset({"llama", "qwen2", "qwen3"})
ROPE_TYPES = ("default", "linear", "llama3", "yarn")


def is_lean(config: Any) -> bool:
    """Whether :func:`lean_step` computes what this model's own forward pass would."""
    rope = getattr(config, "rope_parameters", None) or {}
    return config.model_type in ARCHITECTURES and rope.get("rope_type", "default") in ROPE_TYPES


@cache
def fused_kernels() -> Any:
    """:mod:`rlforge_cli.engines.fused`; None where Triton cannot be used."""
    if not has_triton():
        return None
    from rlforge_cli.engines import fused

    return fused


def is_fusable(config: Any, device: torch.device) -> bool:
    """Whether ``fused.fused_step`` computes what :func:`lean_step` would, on this device."""
    return (
        device.type == "cuda"
        and is_lean(config)
        and config.hidden_act in ("silu", "swish")
        and fused_kernels() is not None
    )


def rotary_table(decoder: Any, *, slots: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines [slots, head_dim] of every position."""
    like = decoder.embed_tokens.weight[:1]
    cos, sin = decoder.rotary_emb(like, position_ids=torch.arange(slots, device=like.device)[None])
    return cos[0], sin[0]


def lean_step(
    decoder: Any, tokens: Tensor, slots: Tensor, mask: Tensor, *, cache: DecodeCache, table: tuple[Tensor, Tensor]
) -> Tensor:
    """Last hidden states [B, D] after [B] tokens, which are stored at [B] slots; ``mask`` [B, 1, 1, window]."""
    hidden = decoder.embed_tokens(tokens)
    cos, sin = (values.index_select(0, slots).unsqueeze(1) for values in table)
    for index, layer in enumerate(decoder.layers):
        attention = layer.self_attn
        normed = norm(layer.input_layernorm, hidden)
        width = attention.head_dim
        query, key, value = (
            projection(normed).view(len(tokens), -1, width)
            for projection in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        if hasattr(attention, "q_norm"):
            query, key = norm(attention.q_norm, query), norm(attention.k_norm, key)
        heads, shared = query.shape[1], key.shape[1]
        both = torch.cat((query, key), dim=1)
        half = width // 2
        both = both * cos + torch.cat((-both[..., half:], both[..., :half]), dim=-1) * sin
        keys, values = cache.update(both[:, heads:, None], value.unsqueeze(2), index)
        folded = both[:, :heads].reshape(len(tokens), shared, heads // shared, width)
        mixed = scaled_dot_product_attention(folded, keys, values, attn_mask=mask, scale=attention.scaling)
        hidden = hidden + attention.o_proj(mixed.reshape(len(tokens), heads * width))
        hidden = hidden + layer.mlp(norm(layer.post_attention_layernorm, hidden))
    return norm(decoder.norm, hidden)


def norm(module: Any, hidden: Tensor) -> Tensor:
    """The module's RMS norm; in float32 in one call, in bfloat16 with the module's own two roundings."""
    if hidden.dtype == torch.float32:
        return rms_norm(hidden, module.weight.shape, module.weight, module.variance_epsilon)
    return module(hidden)
