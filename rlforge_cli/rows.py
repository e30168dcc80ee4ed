"""One completion on its way through the updates of a step, and rows of different length as one tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rlforge_cli.grpo.batch import micro_batches

if TYPE_CHECKING:
    from rlforge_cli.rollouts import Collected

LAUNCH_OVERHEAD = {"cpu": 128, "cuda": 1024}
"""What one more micro-batch costs, in token positions: below that, padding is cheaper."""


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


def trained_rows(
    collected: Collected, advantages: Sequence[Sequence[float]], *, mask_truncated: bool = False
) -> list[list[Row]]:
    """The rows to train on, kept group by kept group; ``advantages`` are of all generated groups."""
    kept = {id(group) for group in collected.kept}
    return [
        [
            Row(group.prompt_ids, c.completion_ids, advantage, c.sampling_logprobs)
            for c, advantage in zip(group.completions, values, strict=True)
            if not (mask_truncated and c.truncated)
        ]
        for group, values in zip(collected.generated, advantages, strict=True)
        if id(group) in kept
    ]


def cut(rows: Sequence[Row], *, size: int, packed: bool, device_type: str) -> list[list[int]]:
    """Indices of ``rows``, micro-batch by micro-batch; packed ones keep neighbours, who share their prompt."""
    if packed:
        return [list(range(start, min(start + size, len(rows)))) for start in range(0, len(rows), size)]
    return micro_batches([row.length for row in rows], size=size, overhead=LAUNCH_OVERHEAD.get(device_type, 0))


def padded(rows: Sequence[Tensor], *, like: Tensor) -> Tensor:
    """Rows of different lengths as one tensor of ``like``'s shape; 0 past a row's end."""
    result = torch.zeros_like(like)
    for place, row in enumerate(rows):
        result[place, : len(row)] = row
    return result


def padded_sampling(rows: Sequence[Row], *, shape: Sequence[int]) -> Tensor:
    """The engine's log-probabilities [B, T]: NaN where none was reported, -inf where it reported a NaN."""
    result = torch.full(tuple(shape), torch.nan)
    for place, row in enumerate(rows):
        if row.sampling:
            reported = torch.tensor(row.sampling)
            result[place, : len(reported)] = reported.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)
    return result
