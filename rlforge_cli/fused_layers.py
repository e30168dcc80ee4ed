"""Gated MLP and rotary embedding as one kernel each on a CUDA device, from liger-kernel where it is installed.

A small model's update waits for its many small kernels as much as for its matrix products.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from rlforge_cli.fused_norm import fuse_norms
from rlforge_cli.triton_support import has_triton

MLPS = frozenset({"LlamaMLP", "MistralMLP", "Qwen2MLP", "Qwen3MLP"})
ROTARY = "apply_rotary_pos_emb"


@cache
def kernels() -> tuple[Any, Callable[..., tuple[Tensor, Tensor]]] | None:
    """liger-kernel's gated activation (an autograd function) and rotary embedding; None where it cannot be used."""
    if find_spec("liger_kernel") is None or not has_triton():
        return None
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)  # it names every backend that this machine is not
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from liger_kernel.ops.rope import LigerRopeFunction
            from liger_kernel.ops.swiglu import LigerSiLUMulFunction
    finally:
        logging.disable(level)
    return LigerSiLUMulFunction, LigerRopeFunction.apply


class GatedMLP(nn.Module):
    gate_proj: nn.Module
    up_proj: nn.Module
    down_proj: nn.Module

    def forward(self, x: Tensor) -> Tensor:
        found = kernels()
        assert found is not None
        mixed: Tensor = self.down_proj(found[0].apply(self.gate_proj(x), self.up_proj(x)))
        return mixed


def fuse_layers(model: nn.Module, device: torch.device) -> None:
    """Swap the class of norms, and on a CUDA device of gated MLPs; names, weights and saved files stay as they are.

    The rotary embedding is a function of the model's module, and is replaced there, for CUDA tensors.
    """
    fuse_norms(model)
    config: Any = getattr(model, "config", None)
    if device.type != "cuda" or getattr(config, "hidden_act", "") not in ("silu", "swish") or kernels() is None:
        return
    for module in model.modules():
        if type(module).__name__ in MLPS:
            home: Any = sys.modules[type(module).__module__]
            if not hasattr(getattr(home, ROTARY), "plain"):
                setattr(home, ROTARY, rotary(getattr(home, ROTARY)))
            module.__class__ = GatedMLP


def rotary(plain: Callable[..., tuple[Tensor, Tensor]]) -> Callable[..., tuple[Tensor, Tensor]]:
    """``plain`` (q, k, cos, sin), by one kernel where the tensors are on a CUDA device."""

    def apply_rotary_pos_emb(
        q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        found = kernels()
        if not q.is_cuda or found is None or args or kwargs or q.shape[-1] != cos.shape[-1]:
            return plain(q, k, cos, sin, *args, **kwargs)
        return found[1](q, k, cos, sin)

    vars(apply_rotary_pos_emb)["plain"] = plain
    return apply_rotary_pos_emb
