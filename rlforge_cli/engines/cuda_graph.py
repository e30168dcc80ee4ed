"""A decoding step as a captured CUDA graph: the host launches one thing instead of a thousand.

Graphs read the weights where they lie, so an update in place needs no new capture.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

ROWS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
"""Batch sizes that get a graph; others are filled up."""
WINDOW = 128
"""Attention windows are multiples of this many slots."""


class GraphedForward:
    """``forward(tokens [B], slots [B], window) -> logits [B, V]``, captured for each (B, window) that occurs."""

    def __init__(self, forward: Callable[[Tensor, Tensor, int], Tensor]) -> None:
        self.forward = forward
        self.captured: dict[tuple[int, int], tuple[torch.cuda.CUDAGraph, Tensor, Tensor, Tensor]] = {}
        self.pool: Any = None

    def clear(self) -> None:
        """Forget every graph: the cache they wrote to has moved."""
        self.captured = {}
        self.pool = None  # a pool ends with its last graph

    def __call__(self, tokens: Tensor, slots: Tensor, window: int, *, capacity: int) -> Tensor:
        """Logits [B, V], valid until the next call. ``capacity`` bounds the window, rounded up to a captured size."""
        count = len(tokens)
        place = bisect_left(ROWS, count)
        size = ROWS[place] if place < len(ROWS) else count
        window = min(capacity, -(-window // WINDOW) * WINDOW)
        if (size, window) not in self.captured:
            self.captured[size, window] = self._capture(size, window, tokens.device)
        graph, token_input, slot_input, logits = self.captured[size, window]
        token_input[:count].copy_(tokens)
        slot_input[:count].copy_(slots)
        slot_input[count:].zero_()  # rows that only fill up write to a slot that nothing reads
        graph.replay()
        return logits[:count]

    def _capture(
        self, size: int, window: int, device: torch.device
    ) -> tuple[torch.cuda.CUDAGraph, Tensor, Tensor, Tensor]:
        tokens = torch.zeros(size, dtype=torch.long, device=device)
        slots = torch.zeros(size, dtype=torch.long, device=device)
        # libraries set themselves up, and kernels are compiled, on first use, which a capture does not allow
        side = torch.cuda.Stream(device)
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            self.forward(tokens, slots + (window - 1), window)  # a slot that holds nothing yet
        torch.cuda.current_stream(device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        # a capture on another device than the tensors' is empty, and its replay leaves the first logits where they are
        with torch.cuda.device(device), torch.cuda.graph(graph, pool=self.pool):
            logits = self.forward(tokens, slots, window)
        self.pool = self.pool or graph.pool()
        return graph, tokens, slots, logits
