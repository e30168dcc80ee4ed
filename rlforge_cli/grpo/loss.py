"""The clipped policy-gradient loss of GRPO, with KL to a reference and an entropy bonus.

Departs from the paper (arXiv 2402.03300): the clip has a low and a high side (DAPO, arXiv 2503.14476), and the
normaliser can be given, so that the sum over micro-batches equals the loss of the whole batch.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Aggregation = Literal["sequence", "token", "constant"]
LOG_RATIO_LIMIT = 20.0
"""Log-ratios are clamped before the exponential: clamping after it leaves a NaN gradient behind a finite value."""


def kl_estimate(
    logprobs: Float[Tensor, "*shape"],
    ref_logprobs: Float[Tensor, "*shape"],
    *,
    estimator: Literal["k1", "k2", "k3"] = "k3",
) -> Float[Tensor, "*shape"]:
    """KL(policy || reference) from the policy's own samples, a token (Schulman, joschu.net/blog/kl-approx.html).

    With d = ref_logprobs - logprobs: k1 = -d, k2 = d^2 / 2, k3 = exp(d) - d - 1 (of which exp(d) - 1 in one piece: in
    float32 the sum would be wrong by 6e-8, which is what k3 is at d = 0.0003).
    """
    d = (ref_logprobs - logprobs).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    if estimator == "k1":
        return -d
    return d.square() / 2 if estimator == "k2" else d.expm1() - d


def loss_denominator(completion_mask: Bool[Tensor, "B T"], *, aggregation: Aggregation) -> Tensor:
    """What the summed loss is divided by: sequences with a trained token, trained tokens, or B x T."""
    if aggregation == "sequence":
        return completion_mask.any(-1).sum()
    if aggregation == "token":
        return completion_mask.sum()
    return torch.tensor(completion_mask.numel(), device=completion_mask.device)


def grpo_loss(
    logprobs: Float[Tensor, "B T"],
    old_logprobs: Float[Tensor, "B T"],
    advantages: Float[Tensor, B] | Float[Tensor, "B T"],
    completion_mask: Bool[Tensor, "B T"],
    *,
    clip_low: float,
    clip_high: float,
    kl_coef: float = 0.0,
    ref_logprobs: Float[Tensor, "B T"] | None = None,
    kl_estimator: Literal["k1", "k2", "k3"] = "k3",
    entropy: Float[Tensor, "B T"] | None = None,
    entropy_coef: float = 0.0,
    aggregation: Aggregation = "sequence",
    denominator: Tensor | float | int | None = None,
    weights: Float[Tensor, "B T"] | None = None,
) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
    """-w min(r A, clip(r, 1 - clip_low, 1 + clip_high) A) + kl_coef KL - entropy_coef H, with r = exp(logprobs - old).

    ``denominator`` is that of the whole batch (:func:`loss_denominator`) when this is one micro-batch of it; by
    default it is this call's own. Positions outside ``completion_mask`` (True = trained token) count nowhere, whatever
    they hold; a NaN inside it reaches the loss, for the caller to refuse. With no trained token the loss is 0.
    ``weights`` w, 1 by default, correct for the sampler (:func:`rlforge_cli.grpo.correction.importance_weights`).

    Returns:
        The loss, and detached means over the trained tokens: clip_fraction (low and high apart), ratio_mean,
        kl_old, and kl_ref and entropy where given; tokens_in_loss is their count.

    Raises:
        ValueError: ``kl_coef`` > 0 without ``ref_logprobs``, or ``entropy_coef`` > 0 without ``entropy``.
    """
    if kl_coef and ref_logprobs is None:
        raise ValueError("kl_coef > 0 needs ref_logprobs")
    if entropy_coef and entropy is None:
        raise ValueError("entropy_coef > 0 needs entropy")
    mask = completion_mask.bool()
    if advantages.dim() == 1:
        advantages = advantages.unsqueeze(-1)

    def trained(values: Tensor) -> Tensor:
        return torch.where(mask, values, torch.zeros_like(values))  # multiplying by 0 would keep a NaN

    logprobs, old_logprobs = trained(logprobs), trained(old_logprobs)
    advantages = trained(advantages.expand_as(logprobs))
    log_ratio = (logprobs - old_logprobs).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    loss = -torch.minimum(ratio * advantages, clipped * advantages)
    if weights is not None:
        loss = loss * trained(weights)
    if ref_logprobs is not None:
        ref_logprobs = trained(ref_logprobs)
        if kl_coef:
            loss = loss + kl_coef * kl_estimate(logprobs, ref_logprobs, estimator=kl_estimator)
    if entropy is not None:
        entropy = trained(entropy)
        if entropy_coef:
            loss = loss - entropy_coef * entropy
    loss = trained(loss)
    if denominator is None:
        denominator = loss_denominator(mask, aggregation=aggregation)
    divisor = torch.as_tensor(denominator, device=loss.device).clamp(min=1).to(loss.dtype)
    if aggregation == "sequence":
        loss = loss.sum(-1) / mask.sum(-1).clamp(min=1)
    total = loss.sum() / divisor

    with torch.no_grad():
        tokens = mask.sum()

        def mean(values: Tensor) -> Tensor:
            return trained(values.to(logprobs.dtype)).sum() / tokens.clamp(min=1)

        metrics = {
            "tokens_in_loss": tokens,
            "clip_fraction_low": mean((ratio < 1 - clip_low) & (advantages < 0)),
            "clip_fraction_high": mean((ratio > 1 + clip_high) & (advantages > 0)),
            "ratio_mean": mean(ratio),
            "kl_old": mean(kl_estimate(logprobs, old_logprobs)),
        }
        metrics["clip_fraction"] = metrics["clip_fraction_low"] + metrics["clip_fraction_high"]
        if ref_logprobs is not None:
            metrics["kl_ref"] = mean(kl_estimate(logprobs, ref_logprobs))
        if entropy is not None:
            metrics["entropy"] = mean(entropy)
    return total, metrics
