"""Importance correction for a sampler that is not quite the trainer: other kernels, another precision.

Completions come from the engine's distribution, gradients from the trainer's. The weight old / sampling repairs that
in expectation. It stands apart from the ratio that is clipped (logprobs / old): that one follows the updates, this one
is constant. Truncated a token: Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL
training" (fengyao.notion.site/off-policy-rl). Masked a token, on both sides: IcePop (arXiv 2510.18855). A sequence,
truncated or masked: Liu, Li et al. 2025, "When speed kills stability" (richardli.xyz/rl-collapse).

Departs from others in two points. Masks are two-sided by [1 / cap, cap], as verl's rejection is, whereas TRL 1.x has
no lower bound unless one is set. A masked token stays in the loss's denominator, as in TRL, whereas verl takes it out:
so masking never raises what the other tokens weigh.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rlforge_cli.grpo.loss import kl_estimate

Correction = Literal["token-truncate", "token-mask", "sequence-truncate", "sequence-mask"]
MEANS = ("kl_sampling", "correction_weight", "correction_fraction")
"""Metrics that are means over the reported tokens."""


def importance_weights(
    old_logprobs: Float[Tensor, "B T"],
    sampling_logprobs: Float[Tensor, "B T"],
    completion_mask: Bool[Tensor, "B T"],
    *,
    mode: Correction,
    cap: float = 2.0,
) -> tuple[Float[Tensor, "B T"], Bool[Tensor, "B T"]]:
    """w = exp(old - sampling), a token or over a sequence's sum; ``truncate``: min(w, cap); ``mask``: 0 outside
    [1 / cap, cap]. Without gradient.

    In ``sampling_logprobs`` NaN means that the engine reported none: such a token has weight 1, except that at the
    sequence level it shares the weight that its sequence has from the tokens that were reported. An infinite one was
    reported and cannot be true: that token (or sequence) is masked in every mode. A NaN in ``old_logprobs`` reaches
    the weight, and so the loss.

    Example: ratios [4, 0.25, 1] at cap 2 give [2, 0.25, 1] (token-truncate), [0, 0, 1] (token-mask), [1, 1, 1]
    (both sequence modes, for their product is 1).

    Returns:
        The weights, 0 outside ``completion_mask``; and which trained, reported tokens were truncated or masked.

    Raises:
        ValueError: ``cap`` is not above 1.
    """
    if not cap > 1:
        raise ValueError(f"cap must be above 1, got {cap}")
    mask = completion_mask.bool()
    reported = reported_tokens(sampling_logprobs, mask)
    unusable = reported & sampling_logprobs.isinf()
    used = reported & ~unusable
    old = old_logprobs.detach()
    # in float64, so that how far a row is padded cannot move a sum across the cap
    log_ratio = torch.where(used, old.double() - sampling_logprobs.double(), 0.0)
    if mode.startswith("sequence"):
        log_ratio = log_ratio.sum(-1, keepdim=True).expand_as(old)
        unusable = unusable.any(-1, keepdim=True).expand_as(old)
    if mode.endswith("truncate"):
        outside = (log_ratio > math.log(cap)) | unusable
        weights = log_ratio.exp().clamp(max=cap).masked_fill(unusable, 0.0)
    else:
        outside = (log_ratio.abs() > math.log(cap)) | unusable
        weights = log_ratio.exp().masked_fill(outside, 0.0)
    return torch.where(mask, weights, 0.0).to(old.dtype), outside & reported


def reported_tokens(
    sampling_logprobs: Float[Tensor, "B T"], completion_mask: Bool[Tensor, "B T"]
) -> Bool[Tensor, "B T"]:
    """The trained tokens whose log-probability the engine reported."""
    return completion_mask & ~sampling_logprobs.isnan()


def sampling_metrics(
    old_logprobs: Float[Tensor, "B T"],
    sampling_logprobs: Float[Tensor, "B T"],
    completion_mask: Bool[Tensor, "B T"],
    *,
    weights: Float[Tensor, "B T"] | None = None,
    outside: Bool[Tensor, "B T"] | None = None,
) -> dict[str, Tensor]:
    """How engine and trainer differ, summed over the reported tokens and divided by the trained ones.

    So micro-batches add up by their trained tokens; :func:`over_reported` then makes means over the reported ones.
    Keys: kl_sampling, reported_fraction; with ``weights`` correction_weight and correction_fraction too.
    """
    reported = reported_tokens(sampling_logprobs, completion_mask)
    tokens = completion_mask.sum().clamp(min=1)

    def total(values: Tensor) -> Tensor:
        return torch.where(reported, values.to(old_logprobs.dtype), 0.0).sum() / tokens

    metrics = {
        "kl_sampling": total(kl_estimate(sampling_logprobs, old_logprobs)),
        "reported_fraction": total(reported),
    }
    if weights is not None and outside is not None:
        metrics |= {"correction_weight": total(weights), "correction_fraction": total(outside)}
    return metrics


def over_reported(record: dict[str, float]) -> dict[str, float]:
    """``record`` with means over the reported tokens, where :func:`sampling_metrics` left means over the trained ones.

    What nothing was reported for is left out: it is unknown, not 0.
    """
    share = record["reported_fraction"]
    if not share:
        return {key: value for key, value in record.items() if key not in (*MEANS, "sampling_diff_max")}
    return {key: value / share if key in MEANS else value for key, value in record.items()}
