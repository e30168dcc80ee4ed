"""One completion on its way through the updates of a step, and rows of different length as one tensor."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Row:
    """One completion that is trained on: [prompt, completion], its advantage, and the engine's log-probabilities."""

    __slots__ = ("advantage", "completion", "current", "old", "prompt", "sampling")

    def __init__(self, prompt: list[int], completion: list[int], advantage: float, sampling: list[float]) -> None:
        self.prompt = prompt
        self.completion = completion
        self.advantage = advantage
        self.sampling = sampling
        self.old: Tensor | None = None
        """[tokens]: log-probabilities before this step's updates; None when this is the first."""
        self.current: Tensor | None = None
        """[tokens]: log-probabilities of the latest forward pass."""

    @property
    def length(self) -> int:
        return len(self.prompt) + len(self.completion)


def padded(rows: Sequence[Tensor], *, like: Tensor) -> Tensor:
    """Rows of different lengths as one tensor of ``like``'s shape, dtype and device; 0 past a row's end."""
    result = torch.zeros(like.shape)
    for place, row in enumerate(rows):
        result[place, : len(row)] = row
    return result.to(device=like.device, dtype=like.dtype)
