"""Token lists as the tensors a forward pass takes: padded on the right, so that causal attention needs no mask; or
packed, for a policy whose attention can lay them out again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rlforge_cli.grpo.packing import Packing, pack_rows


class Batch(NamedTuple):
    """Sequences of prompt and completion; B rows, L the longest row, T the longest completion."""

    input_ids: Tensor
    """[B, L] int64, positions past a row's end hold 0; or packed [1, N]."""
    completion_mask: Tensor
    """[B, T] bool, True where the row has a completion token. From lengths, never from the ids."""
    targets: Tensor
    """[tokens] int64: the completion tokens, row by row."""
    slots: Tensor
    """[tokens] int64: their places in the flattened [B, T]."""
    source: Tensor
    """[tokens] int64: where in the flattened ``input_ids`` the hidden state lies that predicts each completion token
    (the position before the token)."""
    packing: Packing | None = None

    def to(self, device: torch.device) -> Batch:
        """The same on ``device``."""
        if self.input_ids.device == device:
            return self
        packing: Any = self.packing
        if packing is not None:
            packing = type(packing)(*(to_device(p, device) if isinstance(p, Tensor) else p for p in packing))
        tensors = {name: to_device(part, device) for name, part in self._asdict().items() if isinstance(part, Tensor)}
        return self._replace(packing=packing, **tensors)


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A host tensor on ``device``; the host does not wait until the device is done with what it was given before."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def make_batch(
    prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], *, packed: bool = False
) -> Batch:
    """Rows as tensors; every prompt has at least one token (the first completion token is predicted from it)."""
    assert all(prompts), "an empty prompt predicts nothing"
    mask = torch.zeros(len(prompts), max(1, max(map(len, completions))), dtype=torch.bool)
    for row, completion in enumerate(completions):
        mask[row, : len(completion)] = True
    targets = torch.tensor([token for completion in completions for token in completion], dtype=torch.long)
    slots = mask.flatten().nonzero().squeeze(1)
    length = max(len(p) + len(c) for p, c in zip(prompts, completions, strict=True))
    source = torch.cat([
        torch.arange(len(prompt) - 1, len(prompt) + len(completion) - 1) + row * length
        for row, (prompt, completion) in enumerate(zip(prompts, completions, strict=True))
    ])  # fmt: skip
    if packed:
        input_ids, packing = pack_rows(prompts, completions)
        return Batch(input_ids, mask, targets, slots, packing.source[source], packing)
    input_ids = torch.zeros(len(prompts), length, dtype=torch.long)
    for row, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
        input_ids[row, : len(prompt) + len(completion)] = torch.tensor([*prompt, *completion])
    return Batch(input_ids, mask, targets, slots, source)


def micro_batches(lengths: Sequence[int], *, size: int, overhead: int = 0) -> list[list[int]]:
    """Row indices in micro-batches of at most ``size``, the longest rows first.

    Rows of like length share a micro-batch, and the cuts are those of least cost: padded positions, plus ``overhead``
    positions for every micro-batch (what launching one costs). The longest row comes first, so that memory that does
    not suffice shows at once. The cuts change no result.
    """
    order = sorted(range(len(lengths)), key=lambda row: (-lengths[row], row))
    least = [0] + [0] * len(order)  # least[n]: cost of the first n rows in order
    first = [0] * (len(order) + 1)  # first[n]: where the last micro-batch of that best cut begins
    for end in range(1, len(order) + 1):
        starts = range(max(0, end - size), end)
        costs = [least[start] + (end - start) * lengths[order[start]] + overhead for start in starts]
        least[end] = min(costs)
        first[end] = starts[costs.index(least[end])]
    parts = []
    end = len(order)
    while end:
        parts.append(order[first[end] : end])
        end = first[end]
    return parts[::-1]
