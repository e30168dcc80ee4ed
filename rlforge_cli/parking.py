"""Tensors that wait in pinned host memory while nobody reads them: the device has room for something else meanwhile.

Both ways go over a stream of their own, so that the device works on. What a tensor holds is the same afterwards; while
it is parked it is a tensor of the host, and can be saved as one.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class NoParking:
    """Everything stays where it is."""

    def leave(self, changed: Sequence[Tensor], constant: Sequence[Tensor] = ()) -> None:
        """Start to take tensors from the device."""

    def wait_left(self) -> None:
        """Their memory is free afterwards."""

    def fetch(self, tensors: Sequence[Tensor]) -> None:
        """Start to bring them back."""

    def wait_fetched(self) -> None:
        """They may be read afterwards."""


class Parking(NoParking):
    """In the host's memory, from one CUDA device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device)
        self.places: dict[int, tuple[Tensor, Tensor]] = {}
        """Tensors with their place on the host, by identity."""
        self.leaving: list[Tensor] = []

    def leave(self, changed: Sequence[Tensor], constant: Sequence[Tensor] = ()) -> None:
        """Start to copy what is on the device; ``constant`` tensors only the first time. Until :meth:`wait_left` they
        may be read, not written."""
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.stream):
            for tensors, copied_again in ((changed, True), (constant, False)):
                for tensor in tensors:
                    if tensor.is_cuda and self._needs_copy(tensor, again=copied_again):
                        self.places[id(tensor)][1].copy_(tensor.detach(), non_blocking=True)
                    self.leaving.append(tensor)

    def _needs_copy(self, tensor: Tensor, *, again: bool) -> bool:
        """Makes its place where it has none yet."""
        if id(tensor) in self.places:
            return again
        self.places[id(tensor)] = (tensor, torch.empty_like(tensor, device="cpu", pin_memory=True))
        return True

    def wait_left(self) -> None:
        """Give the device memory back of what :meth:`leave` was given."""
        self.stream.synchronize()
        for tensor in self.leaving:
            if tensor.is_cuda:
                tensor.data = self.places[id(tensor)][1]
        self.leaving.clear()

    def fetch(self, tensors: Sequence[Tensor]) -> None:
        """Start to bring back those that are parked; until :meth:`wait_fetched` nothing may read them."""
        parked = [tensor for tensor in tensors if not tensor.is_cuda]
        back = [torch.empty_like(tensor, device=self.device) for tensor in parked]
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.stream):
            for tensor, there in zip(parked, back, strict=True):
                there.copy_(tensor.detach(), non_blocking=True)
                tensor.data = there

    def wait_fetched(self) -> None:
        """The device waits, not the host."""
        torch.cuda.current_stream(self.device).wait_stream(self.stream)
