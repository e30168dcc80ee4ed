"""Choosing the next token from logits: temperature, top-k, top-p, and the log-probability of what was chosen.

By inverse cumulative distribution: one uniform number a row and position decides, drawn before decoding starts. So a
completion does not depend on which other rows are still running.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rlforge_cli.engines.lean import fused_kernels

BELOW_ONE = 1 - 1e-6
"""The most of a distribution's total that is looked up, so that a token of probability 0 is never reached."""


def filtered_logits(logits: Tensor, *, temperature: float, top_p: float = 1.0, top_k: int = 0) -> Tensor:
    """[B, V] logits / temperature with everything outside top-k and the top-p nucleus at -inf.

    The nucleus is the smallest set of likeliest tokens whose probability reaches ``top_p`` (arXiv 1904.09751).
    """
    logits = logits.float()
    if temperature != 1.0:
        logits = logits / temperature
    if top_k and top_k < logits.shape[-1]:
        logits = logits.masked_fill(logits < logits.topk(top_k, dim=-1).values[..., -1:], -torch.inf)
    if top_p < 1.0:
        ordered, places = logits.softmax(-1).sort(dim=-1, descending=True)
        outside = ordered.cumsum(-1) - ordered >= top_p
        logits = logits.masked_fill(torch.zeros_like(outside).scatter(-1, places, outside), -torch.inf)
    return logits


def sample(
    logits: Tensor, uniform: Tensor, *, temperature: float, top_p: float = 1.0, top_k: int = 0
) -> tuple[Tensor, Tensor]:
    """Tokens [B] and their log-probabilities [B] under the distribution sampled from; temperature 0 takes the top one.

    ``uniform`` [B] in [0, 1) decides. Greedy log-probabilities are those at temperature 1.
    """
    fused = fused_kernels() if logits.is_cuda else None
    if fused is not None and temperature and not top_k and top_p == 1.0:
        chosen: tuple[Tensor, Tensor] = fused.sample(logits, uniform, temperature=temperature)
        return chosen
    if temperature == 0:
        logprobs = torch.log_softmax(logits.float(), dim=-1)
        tokens = logits.argmax(-1)
    else:
        logprobs = torch.log_softmax(filtered_logits(logits, temperature=temperature, top_p=top_p, top_k=top_k), dim=-1)
        cumulative = logprobs.exp().cumsum(-1)
        target = uniform.clamp(max=BELOW_ONE).unsqueeze(-1) * cumulative[:, -1:]
        tokens = torch.searchsorted(cumulative, target, right=True).squeeze(-1)
        tokens = tokens.clamp(max=logits.shape[-1] - 1)  # past the end where the logits are NaN
    return tokens, logprobs.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
