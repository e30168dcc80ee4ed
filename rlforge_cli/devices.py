"""Which device a process computes on."""

from __future__ import annotations

import torch

from rlforge_cli.distributed import place
from rlforge_cli.errors import UserError


def resolve_device(name: str) -> torch.device:
    """``auto`` is cuda where there is one; of several processes each has the CUDA device of its rank.

    Raises:
        UserError: not a device, or not there, or not one for each process.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UserError(f"model.device = {name!r}: not a device; use auto, cpu or cuda") from None
    if device.type == "cuda" and (not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count()):
        raise UserError(f"model.device = {name!r}: no such CUDA device here; use --set device=cpu")
    if device.type not in ("cpu", "cuda") and not reachable(device):
        raise UserError(f"model.device = {name!r}: no such device here; use --set device=cpu")
    rank, size = place()
    if device.type != "cuda" or size == 1:
        return device
    if device.index is not None:
        raise UserError(f"model.device = {name!r}: one device for {size} processes; use --set device=cuda or cpu")
    if size > (count := torch.cuda.device_count()):
        raise UserError(
            f"{size} processes, and {count} CUDA device{'s' * (count > 1)} here: each process needs one; use "
            f"torchrun --nproc-per-node {count}, or --set device=cpu"
        )
    return torch.device("cuda", rank)


def reachable(device: torch.device) -> bool:
    """Whether torch can put a number there and read it again."""
    try:
        return bool(torch.ones(1, device=device).item())
    except (RuntimeError, AssertionError):  # not built in, or nothing is plugged in
        return False
