"""Log-probabilities of given tokens, without ever holding logits for all of them.

The head is applied a chunk of positions at a time, and again in the backward pass: memory is that of one chunk
instead of [positions, vocabulary], at the price of one more matrix product.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rlforge_cli.triton_support import has_triton

CHUNK_ELEMENTS = 1 << 26
"""Logits held at once: 256 MiB in float32."""
FUSED_CHUNK_ELEMENTS = 1 << 28
"""The same for the fused head, which holds them once and in 16 bits: 512 MiB."""


def token_logprobs(
    hidden: Float[Tensor, "*N D"],
    head_weight: Float[Tensor, "V D"],
    targets: Int[Tensor, "*N"],
    *,
    temperature: float = 1.0,
) -> Float[Tensor, "*N"]:
    """log softmax(hidden @ head_weight.T / temperature)[targets], in float32 (float64 for float64 inputs)."""
    return logprobs_and_entropy(hidden, head_weight, targets, temperature=temperature)[0]


def logprobs_and_entropy(
    hidden: Float[Tensor, "*N D"],
    head_weight: Float[Tensor, "V D"],
    targets: Int[Tensor, "*N"],
    *,
    temperature: float = 1.0,
    chunk: int | None = None,
) -> tuple[Float[Tensor, "*N"], Float[Tensor, "*N"]]:
    """The same, with the entropy (nats) of each position's distribution; both carry gradients.

    ``chunk`` is the number of positions whose logits are held at once; it changes nothing but memory.
    """
    shape = targets.shape
    fused = fused_head() if hidden.is_cuda and hidden.dtype in (torch.bfloat16, torch.float16) else None
    chunk = chunk or max(1, (CHUNK_ELEMENTS if fused is None else FUSED_CHUNK_ELEMENTS) // head_weight.shape[0])
    logprobs, entropy = (fused or _ChunkedHead).apply(
        hidden.reshape(-1, hidden.shape[-1]), head_weight, targets.reshape(-1), temperature, chunk
    )
    return logprobs.reshape(shape), entropy.reshape(shape)


@cache
def fused_head() -> Any:
    """The head in few kernels; None where Triton cannot be used."""
    if not has_triton():
        return None
    from rlforge_cli.grpo.fused_head import FusedHead

    return FusedHead


def _log_softmax(hidden: Tensor, head_weight: Tensor, temperature: float) -> Tensor:
    logits = hidden @ head_weight.T
    logits = logits if logits.dtype == torch.float64 else logits.float()
    return torch.log_softmax(logits / temperature if temperature != 1.0 else logits, dim=-1)


class _ChunkedHead(torch.autograd.Function):
    """With p = softmax(z / T): d logp[t] / dz = (onehot(t) - p) / T, and d H / dz = -p (log p + H) / T."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, head_weight: Tensor, targets: Tensor, temperature: float, chunk: int
    ) -> tuple[Tensor, Tensor]:
        logprobs, entropies = [], []
        for rows, wanted in zip(hidden.split(chunk), targets.split(chunk), strict=True):
            logp = _log_softmax(rows, head_weight, temperature)
            logprobs.append(logp.gather(-1, wanted.unsqueeze(-1)).squeeze(-1))
            entropies.append(torch.special.entr(logp.exp_()).sum(-1))  # -p log p, and 0 where p is 0
        ctx.save_for_backward(hidden, head_weight, targets)
        ctx.temperature, ctx.chunk = temperature, chunk
        ctx.entropy = torch.cat(entropies)
        ctx.set_materialize_grads(False)  # an entropy without a use costs no backward pass
        return torch.cat(logprobs), ctx.entropy

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        grad_logprobs, grad_entropy = grads
        hidden, head_weight, targets = ctx.saved_tensors
        wants_hidden, wants_weight = ctx.needs_input_grad[:2]
        hidden_grads = []
        weight_grad = None
        for start in range(0, len(targets), ctx.chunk):
            part = slice(start, start + ctx.chunk)
            logp = _log_softmax(hidden[part], head_weight, ctx.temperature)
            slope = torch.zeros_like(logp[:, :1])  # the gradient is -p times this, and the upstream one at the target
            if grad_logprobs is not None:
                slope = slope + grad_logprobs[part].unsqueeze(-1)
            if grad_entropy is not None:
                finite = logp.clamp(min=torch.finfo(logp.dtype).min)
                slope = slope + (finite + ctx.entropy[part].unsqueeze(-1)) * grad_entropy[part].unsqueeze(-1)
            grad_logits = logp.exp_().mul_(-slope)
            if grad_logprobs is not None:
                grad_logits.scatter_add_(-1, targets[part].unsqueeze(-1), grad_logprobs[part].unsqueeze(-1))
            if ctx.temperature != 1.0:
                grad_logits /= ctx.temperature
            grad_logits = grad_logits.to(hidden.dtype)
            if wants_hidden:
                hidden_grads.append(grad_logits @ head_weight)
            if wants_weight:
                piece = grad_logits.T @ hidden[part]
                if ctx.chunk < len(targets) and piece.dtype == torch.bfloat16:
                    piece = piece.float()  # over many chunks a bfloat16 sum would lose the small terms
                weight_grad = piece if weight_grad is None else weight_grad.add_(piece)
        return (
            torch.cat(hidden_grads) if wants_hidden else None,
            weight_grad.to(head_weight.dtype) if weight_grad is not None else None,
            None, None, None,
        )  # fmt: skip
