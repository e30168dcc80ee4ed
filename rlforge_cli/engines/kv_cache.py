"""A preallocated key-value cache in which every row has its own length, and the attention that reads it.

Rows are not padded on the left: a row's new token goes to the slot after its last one, so prompts of different
lengths share a batch, positions are plain counts, and the prefill needs no mask. Grouped-query heads are folded into
the query's length instead of repeating keys and values.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

ATTENTION = "rlforge_decode"


class DecodeCache:
    """Keys and values [rows, kv heads, slots, head_dim] of every layer.

    While ``slot`` is None, :meth:`update` stores whole prompts from slot 0 (prefill); else it stores one token a row
    at ``slot`` [rows] and attention reads the first ``window`` slots.
    """

    is_compileable = False

    def __init__(self) -> None:
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        self.slot: Tensor | None = None
        self.window = 0
        self.capacity = 0

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0  # positions and masks are given explicitly

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if self.slot is None:
            self._store_prompts(keys, values, layer_idx)
            return keys, values
        rows = torch.arange(keys.shape[0], device=keys.device)
        self.keys[layer_idx][rows, :, self.slot] = keys[:, :, 0]
        self.values[layer_idx][rows, :, self.slot] = values[:, :, 0]
        return self.keys[layer_idx][:, :, : self.window], self.values[layer_idx][:, :, : self.window]

    def _store_prompts(self, keys: Tensor, values: Tensor, layer_idx: int) -> None:
        for stored, new in ((self.keys, keys), (self.values, values)):
            assert layer_idx == len(stored), "layers are filled in order, once"
            room = new.new_zeros(new.shape[0], new.shape[1], self.capacity, new.shape[3])
            room[:, :, : new.shape[2]] = new
            stored.append(room)

    def select(self, rows: Tensor) -> None:
        """Keep (or repeat) the given rows."""
        self.keys = [tensor.index_select(0, rows) for tensor in self.keys]
        self.values = [tensor.index_select(0, rows) for tensor in self.values]


def decode_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention of prompts (mask None: causal) or of one token a row (mask [B, 1, 1, window])."""
    batch, heads, length, width = query.shape
    groups = heads // key.shape[1]
    if attention_mask is None:
        output = scaled_dot_product_attention(query, key, value, is_causal=length > 1, scale=scaling, enable_gqa=groups > 1)
    else:
        folded = query.view(batch, key.shape[1], groups, width)
        output = scaled_dot_product_attention(folded, key, value, attn_mask=attention_mask, scale=scaling)
        output = output.view(batch, heads, 1, width)
    return output.transpose(1, 2).contiguous(), None


def register_attention() -> None:
    """Make :data:`ATTENTION` known to transformers; a model switches to it while it decodes."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(ATTENTION, decode_attention)
    AttentionMaskInterface.register(ATTENTION, sdpa_mask)
