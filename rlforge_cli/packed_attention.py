"""The attention of a policy that can train on packed sequences: rows are laid out again for it alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from rlforge_cli.grpo.packing import Packing, repack, unpack

ATTENTION = "rlforge_train"
ARCHITECTURES = frozenset({"llama", "qwen2", "qwen3"})
"""Decoders that hand what they do not know on to their attention."""


def attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, *,
    packing: Packing | None = None, scaling: float | None = None, dropout: float = 0.0, **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """transformers' own, unless a ``packing`` comes with the call: then [1, heads, N, D] are the tokens of its rows."""
    if packing is None:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
    heads, shared, width = query.shape[1], key.shape[1], query.shape[3]
    joint = torch.cat((query[0], key[0], value[0])).transpose(0, 1).reshape(query.shape[2], -1)
    rows = unpack(joint, packing).view(packing.rows, packing.length, -1, width).transpose(1, 2)
    queries, keys, values = rows.split((heads, shared, shared), dim=1)
    mixed = scaled_dot_product_attention(
        queries, keys, values, is_causal=True, scale=scaling, dropout_p=dropout, enable_gqa=heads > shared
    )
    flat = repack(mixed.transpose(1, 2).reshape(packing.rows, packing.length, -1), packing)
    return flat.view(1, query.shape[2], heads, width), None


def enable_packing(decoder: Any) -> bool:
    """Make a decoder ready for :func:`packed_hidden`; False where padded rows are better.

    On a CPU time follows the tokens. A GPU's step is bound by launches and by attention on whole rows, and packing
    adds to both.
    """
    config = decoder.config
    if config.model_type not in ARCHITECTURES or decoder.embed_tokens.weight.device.type != "cpu":
        return False
    register_attention(ATTENTION, attention)
    config._attn_implementation = ATTENTION
    return True


def packed_hidden(decoder: Any, input_ids: Tensor, packing: Packing) -> Tensor:
    """Last hidden states [1, N, D] of packed ids [1, N]."""
    return decoder(
        input_ids=input_ids, position_ids=packing.positions, attention_mask=unread_mask(input_ids.device),
        use_cache=False, packing=packing,
    ).last_hidden_state  # fmt: skip


def register_attention(name: str, function: Callable[..., tuple[Tensor, Tensor | None]]) -> None:
    """Make an attention known to transformers under ``name``; a model switches to it by that."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(name, function)
    AttentionMaskInterface.register(name, sdpa_mask)


def unread_mask(device: torch.device) -> Tensor:
    """For an attention that reads no mask: a 4-d one passes through transformers as it is."""
    return torch.ones(1, 1, 1, 1, dtype=torch.bool, device=device)
