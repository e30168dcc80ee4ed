"""A preallocated key-value cache in which every row has its own length, and the attention that reads it.

Rows are not padded on the left: a row's new token goes to the slot after its last one, so prompts of different
lengths share a batch, positions are plain counts, and the prefill needs no mask. Grouped-query heads are folded into
the query's length instead of repeating keys and values.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

ATTENTION = "rlforge_decode"


class DecodeCache:
    """Keys and values [rows, kv heads, slots, head_dim] of every layer, kept for later calls that fit in them.

    While ``slot`` is None, :meth:`update` stores whole prompts from slot 0 (prefill); else it stores one token a row
    at ``slot`` [B] in the first B rows, and attention reads their first ``window`` slots. What a former use left
    behind lies past every row's length, where the mask hides it. With ``transposed`` keys lie in memory as
    [rows, kv heads, head_dim, slots], which a CPU's product with queries reads fastest.
    """

    is_compileable = False

    def __init__(self, *, transposed: bool = False) -> None:
        self.transposed = transposed
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        self.rows = self.slots = 0
        self.slot: Tensor | None = None
        self.window = 0

    def reserve(self, *, rows: int, slots: int) -> bool:
        """Make room; True when what was there did not do and is gone."""
        if rows <= self.rows and slots <= self.slots:
            return False
        self.rows, self.slots = max(rows, self.rows), max(slots, self.slots)
        self.keys, self.values = [], []
        return True

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0  # positions and masks are given explicitly

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if self.slot is None:
            if layer_idx == len(self.keys):
                shape = (self.rows, keys.shape[1], self.slots, keys.shape[3])
                self.keys.append(self._new_keys(keys, shape))
                self.values.append(values.new_zeros(shape))
            self.keys[layer_idx][: keys.shape[0], :, : keys.shape[2]] = keys
            self.values[layer_idx][: keys.shape[0], :, : keys.shape[2]] = values
            return keys, values
        count = keys.shape[0]
        all_keys, all_values = self.keys[layer_idx], self.values[layer_idx]
        place = self.slot.view(count, 1, 1, 1).expand_as(keys)
        all_keys[:count].scatter_(2, place, keys)
        all_values[:count].scatter_(2, place, values)
        return all_keys[:count, :, : self.window], all_values[:count, :, : self.window]

    def _new_keys(self, like: Tensor, shape: tuple[int, ...]) -> Tensor:
        if self.transposed:
            return like.new_zeros(*shape[:2], shape[3], shape[2]).transpose(-1, -2)
        return like.new_zeros(shape)

    def select(self, rows: Tensor, *, length: int) -> None:
        """Move (or repeat) the given rows to the front; only the first ``length`` slots hold anything."""
        for tensor in (*self.keys, *self.values):
            used = tensor[:, :, :length]
            if tensor.stride(-1) != 1:  # copied in the order of the memory
                used = used.transpose(-1, -2)
            used[: len(rows)] = used.index_select(0, rows)


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
    """Causal attention of whole prompts, or of one token a row to what ``attention_mask`` [B, 1, 1, window] shows."""
    batch, heads, length, width = query.shape
    groups = heads // key.shape[1]
    if length > 1:
        output = scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling, enable_gqa=groups > 1)
    else:
        folded = query.view(batch, key.shape[1], groups, width)
        output = scaled_dot_product_attention(folded, key, value, attn_mask=attention_mask, scale=scaling)
        output = output.reshape(batch, heads, 1, width)
    return output.transpose(1, 2).contiguous(), None
