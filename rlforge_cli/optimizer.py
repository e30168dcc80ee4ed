"""AdamW over float32 masters of the trainable weights, and the learning-rate schedule.

A bfloat16 weight has 8 bits of mantissa: at lr 1e-6 an update is smaller than half its last bit for nearly every
weight, and training silently does nothing. So gradients are summed, and steps taken, in float32; the bfloat16 weight
is the rounded master.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from rlforge_cli.errors import UserError

if TYPE_CHECKING:
    from rlforge_cli.config import OptimizerConfig
    from rlforge_cli.distributed import Ranks


SAMPLED = 4096
"""Weights of a tensor whose change is looked at: a copy of all would cost as much memory as the tensors."""


def require_states(config: OptimizerConfig, device: torch.device) -> None:
    """
    Raises:
        UserError: paged 8-bit moments without a CUDA device or bitsandbytes.
    """
    if config.states == "float32":
        return
    if device.type != "cuda":
        raise UserError("optimizer.states = 'paged-8bit' needs a CUDA device; use --set optimizer.states=float32")
    if find_spec("bitsandbytes") is None:
        raise UserError("optimizer.states = 'paged-8bit' needs bitsandbytes: pip install 'rlforge[qlora]'")


def adamw(masters: list[Tensor], config: OptimizerConfig) -> torch.optim.Optimizer:
    """AdamW with float32 moments, or with paged 8-bit ones (arXiv 2110.02861).

    Raises:
        UserError: see :func:`require_states`.
    """
    options: dict[str, Any] = {
        "lr": config.lr, "betas": (config.beta1, config.beta2), "eps": config.eps, "weight_decay": config.weight_decay,
    }  # fmt: skip
    for device in {master.device for master in masters}:
        require_states(config, device)
    if config.states == "float32":
        fused = all(master.device.type in ("cuda", "cpu") for master in masters)
        return torch.optim.AdamW(masters, fused=fused, **options)
    from bitsandbytes.optim import PagedAdamW8bit

    made: torch.optim.Optimizer = PagedAdamW8bit(masters, **options)
    return made


def spacing(size: int) -> int:
    """Every so manieth of a tensor's ``size`` weights is looked at."""
    return max(1, size // SAMPLED)


def sampled(tensors: Sequence[Tensor]) -> Tensor:
    """Evenly spaced weights of each tensor, in one flat copy: :data:`SAMPLED` of it to twice that, or all of fewer."""
    flat = [tensor.detach().view(-1) for tensor in tensors]
    return torch.cat([weights[:: spacing(len(weights))] for weights in flat])


def changed_share(tensors: Sequence[Tensor], *, before: Tensor) -> Tensor:
    """The share of all their weights (a scalar, 0 to 1) that differ from ``before``, judged by :func:`sampled`."""
    sizes = [tensor.numel() for tensor in tensors]
    counts = [len(range(0, size, spacing(size))) for size in sizes]
    size, count = torch.tensor([sizes, counts], dtype=torch.float64, device=before.device)
    changed_up_to = (sampled(tensors) != before).cumsum(0)[count.cumsum(0).long() - 1]
    changed = changed_up_to.diff(prepend=torch.zeros_like(changed_up_to[:1]))
    return (size / count * changed).sum() / size.sum()


class MasterAdamW:
    """Steps ``parameters`` (by name); those not in float32 (or float64) through a float32 master."""

    def __init__(self, parameters: dict[str, nn.Parameter], config: OptimizerConfig, *, planned_updates: int) -> None:
        self.config = config
        self.planned_updates = planned_updates
        self.updates = 0
        self.parameters = parameters
        self.masters: dict[str, Tensor] = {}
        for name, parameter in parameters.items():
            if parameter.dtype in (torch.float32, torch.float64):
                self.masters[name] = parameter
                continue
            self.masters[name] = parameter.detach().float().requires_grad_()
            parameter.register_post_accumulate_grad_hook(self._summing_into(self.masters[name]))
        self.adamw = adamw(list(self.masters.values()), config)

    @staticmethod
    def _summing_into(master: Tensor) -> Any:
        def add(parameter: Tensor) -> None:
            assert parameter.grad is not None
            # the sum takes the bfloat16 gradient as it is: no float32 copy of it
            master.grad = parameter.grad.float() if master.grad is None else master.grad.add_(parameter.grad)
            parameter.grad = None

        return add

    def lr_at(self, update: int) -> float:
        """The learning rate of update ``update`` (from 0): linear warm-up, then constant, linear or cosine to 0."""
        config = self.config
        if update < config.warmup_steps:
            return config.lr * (update + 1) / config.warmup_steps
        if config.schedule == "constant":
            return config.lr
        progress = min(1.0, (update - config.warmup_steps) / max(1, self.planned_updates - config.warmup_steps))
        return config.lr * (1 - progress if config.schedule == "linear" else (1 + math.cos(math.pi * progress)) / 2)

    def grad_norm(self) -> float:
        """Global L2 norm of the summed gradient; 0 when there is none."""
        grads = [master.grad for master in self.masters.values() if master.grad is not None]
        return float(torch.nn.utils.get_total_norm(grads)) if grads else 0.0

    def sum_gradients(self, ranks: Ranks) -> None:
        """Over all ranks, in the masters' precision; a weight without a gradient in any of them keeps none."""
        if ranks.size == 1:
            return
        known = ranks.gather({name for name, master in self.masters.items() if master.grad is not None})
        anywhere = [master for name, master in self.masters.items() if any(name in names for names in known)]
        for master in anywhere:
            if master.grad is None:
                master.grad = torch.zeros_like(master)
        ranks.add_up([master.grad for master in anywhere if master.grad is not None])

    def fingerprint(self) -> list[int]:
        """Of the weights as the optimizer keeps them: a sum of the bits of each, equal where they are equal."""
        whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}
        sums = [m.detach().view(whole[m.element_size()]).sum(dtype=torch.int64) for m in self.masters.values()]
        return torch.stack(sums).tolist()

    def step(self, *, grad_norm: float) -> dict[str, float]:
        """Clip, take one update, and give the share of weights whose stored value changed and, where these are kept in
        fewer bits, the share of their float32 masters that did.

        Only an update moves the schedule: a skipped step does not.
        """
        limit = self.config.max_grad_norm
        if limit and grad_norm > limit:
            torch._foreach_mul_([m.grad for m in self.masters.values() if m.grad is not None], limit / grad_norm)
        for group in self.adamw.param_groups:
            group["lr"] = self.lr_at(self.updates)
        weights = list(self.parameters.values())
        rounded = [name for name, parameter in self.parameters.items() if self.masters[name] is not parameter]
        masters = [self.masters[name] for name in rounded]
        looked_at = {"weights_changed_fraction": weights} | ({"masters_changed_fraction": masters} if rounded else {})
        before = {name: sampled(tensors) for name, tensors in looked_at.items()}
        self.adamw.step()
        self.zero_grad()
        self.updates += 1
        with torch.no_grad():
            if rounded:
                torch._foreach_copy_([self.parameters[name] for name in rounded], masters)
            shares = [changed_share(tensors, before=before[name]) for name, tensors in looked_at.items()]
        return dict(zip(looked_at, torch.stack(shares).tolist(), strict=True))

    def between_updates(self) -> list[Tensor]:
        """What only :meth:`step` reads: float32 masters and moments."""
        own = [master for name, master in self.masters.items() if master is not self.parameters[name]]
        if self.config.states != "float32":
            return own  # their pages move by themselves
        moments = [v for state in self.adamw.state.values() for v in state.values() if isinstance(v, Tensor)]
        return [*own, *(moment for moment in moments if moment.dim())]

    def zero_grad(self) -> None:
        self.adamw.zero_grad(set_to_none=True)
        for parameter in self.parameters.values():
            parameter.grad = None

    def state_dict(self) -> dict[str, Any]:
        """Masters (where they differ from the weights), moments and the count of updates."""
        masters = {name: m.detach() for name, m in self.masters.items() if m is not self.parameters[name]}
        return {"updates": self.updates, "masters": masters, "adamw": self.adamw.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.updates = state["updates"]
        self.adamw.load_state_dict(state["adamw"])
        with torch.no_grad():
            for name, saved in state["masters"].items():
                self.masters[name].copy_(saved)
                self.parameters[name].copy_(self.masters[name])
