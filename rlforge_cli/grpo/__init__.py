"""The GRPO core: pure functions of tensors, without I/O and without configuration."""

from rlforge_cli.grpo.advantages import group_advantages, has_spread
from rlforge_cli.grpo.correction import importance_weights
from rlforge_cli.grpo.logprobs import logprobs_and_entropy, token_logprobs
from rlforge_cli.grpo.loss import grpo_loss

__all__ = [
    "group_advantages",
    "grpo_loss",
    "has_spread",
    "importance_weights",
    "logprobs_and_entropy",
    "token_logprobs",
]
