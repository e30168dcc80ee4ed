"""One completion on its way through the updates of a step, and rows of different length as one tensor."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Row:
    """One completion that is trained on: [prompt, completion], its advantage, and the engine's log-probabilities."""

    __slots__ = ("advantage", "completion", "current", "old", "prompt", "sampling")

    def __init__(
        self, prompt: list[int], completion: list[int], advantage: float, sampling: list[float] | None
    ) -> None:
        self.prompt = prompt
        self.completion = completion
        self.advantage = advantage
        self.sampling = sampling
        """As the engine reported; None or empty when it reported none."""
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


def padded_sampling(rows: Sequence[Row], *, like: Tensor) -> Tensor:
    """The engine's log-probabilities in ``like``'s shape: NaN where none was reported, -inf where it reported a NaN."""
    result = torch.full(like.shape, torch.nan)
    for place, row in enumerate(rows):
        if row.sampling:
            reported = torch.tensor(row.sampling)
            result[place, : len(reported)] = reported.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)
    return result.to(device=like.device, dtype=like.dtype)
