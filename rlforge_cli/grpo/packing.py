"""Rows without padding and without repeated prompts: what a token needs but attention is computed once.

The completions of a group share their prompt, and its hidden states do not depend on them (attention is causal). So
one sequence [1, N] holds every prompt once and every completion; only attention sees rows [B, L] again, for which
the layout says where each position lies. Values and gradients are those of the padded rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Packing(NamedTuple):
    """Where N packed tokens lie in B padded rows of L positions."""

    positions: Tensor
    """[1, N] int64: of each packed token in its row."""
    source: Tensor
    """[B * L] int64: the packed token of every padded position (of the row's first token past a row's end)."""
    place: Tensor
    """[N] int64: the padded position that stands for each packed token (of a shared prompt: in its first row)."""
    stands: Tensor
    """[B * L, 1] bool: True at those positions."""
    shared: tuple[tuple[int, int, int, int], ...]
    """Of every prompt that several rows share: its first packed token, length, first row and the row past the last."""
    rows: int
    length: int


def pack_rows(prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]) -> tuple[Tensor, Packing]:
    """Packed ids [1, N] and their layout; neighbours with equal prompts share one."""
    ids: list[int] = []
    positions: list[int] = []
    indices: list[list[int]] = []
    place: list[int] = []
    runs: list[list[int]] = []
    length = max(len(p) + len(c) for p, c in zip(prompts, completions, strict=True))
    for row, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
        if row and prompt == prompts[row - 1]:
            runs[-1][3] = row + 1
        else:
            runs.append([len(ids), len(prompt), row, row + 1])
            place.extend(range(row * length, row * length + len(prompt)))
            positions.extend(range(len(prompt)))
            ids.extend(prompt)
        start = runs[-1][0]
        end = len(prompt) + len(completion)
        indices.append([*range(start, start + len(prompt)), *range(len(ids), len(ids) + len(completion))])
        place.extend(range(row * length + len(prompt), row * length + end))
        positions.extend(range(len(prompt), end))
        ids.extend(completion)
    source = torch.tensor([[*row, *[row[0]] * (length - len(row))] for row in indices]).flatten()
    chosen = torch.tensor(place)
    stands = torch.zeros(len(prompts) * length, 1, dtype=torch.bool)
    stands[chosen] = True
    shared = tuple((start, size, first, last) for start, size, first, last in runs if last - first > 1)
    return torch.tensor([ids]), Packing(torch.tensor([positions]), source, chosen, stands, shared, len(prompts), length)


class _Unpack(torch.autograd.Function):
    """[N, F] -> [B, L, F]. A token's gradient is that of its place, a shared prompt's the sum over its rows."""

    @staticmethod
    def forward(ctx: Any, packed: Tensor, packing: Packing) -> Tensor:
        ctx.packing = packing
        return packed.index_select(0, packing.source).view(packing.rows, packing.length, -1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        packing: Packing = ctx.packing
        grad = grads[0]
        # past a row's end nothing is read, so its gradient is 0 and left out
        packed = grad.reshape(packing.rows * packing.length, -1).index_select(0, packing.place)
        for start, size, first, last in packing.shared:
            torch.sum(grad[first:last, :size], dim=0, out=packed[start : start + size])
        return packed, None


class _Repack(torch.autograd.Function):
    """[B, L, F] -> [N, F]; the other copies of a shared prompt are dropped."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, packing: Packing) -> Tensor:
        ctx.packing = packing
        return rows.reshape(packing.rows * packing.length, -1).index_select(0, packing.place)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        packing: Packing = ctx.packing
        spread = grads[0].index_select(0, packing.source) * packing.stands
        return spread.view(packing.rows, packing.length, -1), None


def unpack(packed: Tensor, packing: Packing) -> Tensor:
    """[N, F] -> [B, L, F], for attention."""
    return _Unpack.apply(packed, packing)


def repack(rows: Tensor, packing: Packing) -> Tensor:
    """[B, L, F] -> [N, F]."""
    return _Repack.apply(rows, packing)
