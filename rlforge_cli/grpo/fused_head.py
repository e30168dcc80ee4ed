"""The chunked head on a CUDA device: what follows the matrix product is one pass over the logits, forward and backward.

The logits stay in the 16 bits that the product gives them in and become their own gradient in place; sums are in
float32. With x = z / T and p = softmax(x): log p[t] = x[t] - lse, H = lse - sum(p x) taken relative to the maximum,
and dz = (g onehot(t) - p (g + gH (x - lse + H))) / T for upstream gradients g of log p[t] and gH of H.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096
LOWEST = tl.constexpr(-1e30)
"""Stands for minus infinity, which would make 0 times it a NaN; a NaN stays one."""


@triton.jit
def _read(logits, row, columns, inverse_temperature, vocabulary, past):  # type: ignore[no-untyped-def]
    x = tl.load(logits + row * vocabulary + columns, mask=columns < vocabulary, other=past).to(tl.float32)
    x = x * inverse_temperature
    return tl.where(x < LOWEST, LOWEST, x)


@triton.jit
def _forward(logits, targets, lse, logprobs, entropies, inverse_temperature, vocabulary, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    # a lane's own maximum, sum of exp(x - maximum), and that sum weighted by x - maximum
    top = tl.full([BLOCK], LOWEST, tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    weighted = tl.zeros([BLOCK], tl.float32)
    for start in range(0, vocabulary, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = _read(logits, row, columns, inverse_temperature, vocabulary, float("-inf"))
        higher = tl.maximum(top, x)
        shrink = tl.exp(top - higher)
        e = tl.where(columns < vocabulary, tl.exp(x - higher), 0.0)
        weighted = shrink * (weighted + (top - higher) * total) + e * (x - higher)
        total = total * shrink + e
        top = higher
    highest = tl.max(top, axis=0)
    shrink = tl.exp(top - highest)
    weighted = tl.sum(shrink * (weighted + (top - highest) * total), axis=0)
    total = tl.sum(total * shrink, axis=0)
    wanted = tl.load(logits + row * vocabulary + tl.load(targets + row)).to(tl.float32) * inverse_temperature
    tl.store(lse + row, highest + tl.log(total))
    tl.store(logprobs + row, wanted - highest - tl.log(total))
    tl.store(entropies + row, tl.log(total) - weighted / total)


@triton.jit
def _backward(  # type: ignore[no-untyped-def]
    logits, targets, lse, entropies, grad_logprobs, grad_entropies, inverse_temperature, vocabulary,
    HAS_ENTROPY: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    logp = _read(logits, row, columns, inverse_temperature, vocabulary, float("-inf")) - tl.load(lse + row)
    upstream = tl.load(grad_logprobs + row)
    slope = upstream
    if HAS_ENTROPY:
        slope += tl.load(grad_entropies + row) * (logp + tl.load(entropies + row))
    grad = -tl.exp(logp) * slope + tl.where(columns == tl.load(targets + row), upstream, 0.0)
    tl.store(logits + row * vocabulary + columns, grad * inverse_temperature, mask=columns < vocabulary)


class FusedHead(torch.autograd.Function):
    """The same function as the chunked head's, for 16-bit tensors on a CUDA device."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, head_weight: Tensor, targets: Tensor, temperature: float, chunk: int
    ) -> tuple[Tensor, Tensor]:
        lse, logprobs, entropies = (torch.empty(len(targets), device=hidden.device) for _ in range(3))
        for start in range(0, len(targets), chunk):
            part = slice(start, start + chunk)
            logits = hidden[part] @ head_weight.T
            _forward[(len(logits),)](
                logits, targets[part], lse[part], logprobs[part], entropies[part], 1 / temperature, logits.shape[1],
                BLOCK=BLOCK, num_warps=8,
            )  # fmt: skip
        ctx.save_for_backward(hidden, head_weight, targets, lse, entropies)
        ctx.temperature, ctx.chunk = temperature, chunk
        ctx.set_materialize_grads(False)  # an entropy without a use is left out
        return logprobs, entropies

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden, head_weight, targets, lse, entropies = ctx.saved_tensors
        grad_entropies = None if grads[1] is None else grads[1].contiguous()
        grad_logprobs = torch.zeros_like(lse) if grads[0] is None else grads[0].contiguous()
        wants_hidden, wants_weight = ctx.needs_input_grad[:2]
        hidden_grad = torch.empty_like(hidden) if wants_hidden else None
        weight_grad = torch.zeros_like(head_weight, dtype=torch.float32) if wants_weight else None
        for start in range(0, len(targets), ctx.chunk):
            part = slice(start, start + ctx.chunk)
            logits = hidden[part] @ head_weight.T
            _backward[(len(logits), triton.cdiv(logits.shape[1], BLOCK))](
                logits, targets[part], lse[part], entropies[part], grad_logprobs[part],
                lse[part] if grad_entropies is None else grad_entropies[part], 1 / ctx.temperature, logits.shape[1],
                HAS_ENTROPY=grad_entropies is not None, BLOCK=BLOCK, num_warps=8,
            )  # fmt: skip
            if hidden_grad is not None:
                torch.mm(logits, head_weight, out=hidden_grad[part])
            if weight_grad is not None:  # over many chunks a sum in 16 bits would lose the small terms
                torch.addmm(weight_grad, logits.T, hidden[part], out_dtype=torch.float32, out=weight_grad)
        return hidden_grad, None if weight_grad is None else weight_grad.to(head_weight.dtype), None, None, None
