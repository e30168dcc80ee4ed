"""Advantages of a group's completions over their own mean (GRPO, arXiv 2402.03300, section 4.1).

Departs from the paper in one default: a group's rewards are divided by their population standard deviation, so that
a batch in which every group has spread has an advantage spread of about 1 whatever the group size.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rlforge_cli.rollouts import SPREAD


def has_spread(rewards: Float[Tensor, "P G"]) -> Bool[Tensor, P]:
    """Whether a group can teach anything: max - min of its scored rewards exceeds :data:`SPREAD`."""
    unscored = rewards.isnan()
    highest = rewards.masked_fill(unscored, -torch.inf).amax(-1)
    lowest = rewards.masked_fill(unscored, torch.inf).amin(-1)
    return highest - lowest > SPREAD


def group_advantages(
    rewards: Float[Tensor, "P G"],
    *,
    std: Literal["population", "sample", "none"] = "population",
    eps: float = 1e-6,
) -> Float[Tensor, "P G"]:
    """A[p, g] = (r[p, g] - mean_g r[p]) / (std_g r[p] + eps), and exactly 0 in a group without spread.

    NaN marks a completion that was not scored: it gets advantage 0 and leaves its siblings' baseline alone. Groups
    of unequal size are padded with it. ``std="none"`` only centres (Dr. GRPO, arXiv 2503.20783).

    Example: rewards [1, 0, 0, 0] give the first 1.73 (population), 1.50 (sample), 0.75 (none).

    Raises:
        ValueError: ``rewards`` is not two-dimensional.
    """
    if rewards.dim() != 2:
        raise ValueError(f"rewards must be [groups, group size], got shape {tuple(rewards.shape)}")
    scored = ~rewards.isnan()
    exact = rewards.double().masked_fill(~scored, 0.0)
    count = scored.sum(-1, keepdim=True).clamp(min=1)
    centred = (exact - exact.sum(-1, keepdim=True) / count).masked_fill(~scored, 0.0)
    if std != "none":
        degrees = count if std == "population" else (count - 1).clamp(min=1)
        centred = centred / ((centred.square().sum(-1, keepdim=True) / degrees).sqrt() + eps)
    return centred.masked_fill(~has_spread(rewards).unsqueeze(-1), 0.0).to(rewards.dtype)
