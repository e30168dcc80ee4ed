"""Token lists as the tensors a forward pass takes: padded on the right, so that causal attention needs no mask; or
packed, for a policy whose attention can lay them out again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from rlforge_cli.grpo.packing import Packing, pack_rows


class Batch(NamedTuple):
    """Sequences of prompt and completion; B rows, L the longest row, T the longest completion."""

    input_ids: Tensor
    """[B, L] int64, positions past a row's end hold 0; or packed [1, N]."""
    completion_mask: Tensor
    """[B, T] bool, True where the row has a completion token. From lengths, never from the ids."""
    completion_ids: Tensor
    """[B, T] int64."""
    source: Tensor
    """[tokens] int64: where in the flattened ``input_ids`` the hidden state lies that predicts each completion token,
    row by row (the position before the token)."""
    packing: Packing | None = None


def make_batch(
    prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], *, packed: bool = False
) -> Batch:
    """Rows as tensors; every prompt has at least one token (the first completion token is predicted from it)."""
    packing = None
    length = max(len(p) + len(c) for p, c in zip(prompts, completions, strict=True))
    width = max(1, max(len(c) for c in completions))
    input_ids = torch.zeros(len(prompts), length, dtype=torch.long)
    completion_ids = torch.zeros(len(prompts), width, dtype=torch.long)
    mask = torch.zeros(len(prompts), width, dtype=torch.bool)
    source = []
    for row, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
        assert prompt, "an empty prompt predicts nothing"
        end = len(prompt) + len(completion)
        input_ids[row, :end] = torch.tensor([*prompt, *completion])
        completion_ids[row, : len(completion)] = torch.tensor(completion, dtype=torch.long)
        mask[row, : len(completion)] = True
        source.append(torch.arange(len(prompt) - 1, end - 1) + row * length)
    predicting = torch.cat(source)
    if packed:
        input_ids, packing = pack_rows(prompts, completions)
        predicting = packing.source[predicting]
    return Batch(input_ids, mask, completion_ids, predicting, packing)


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
