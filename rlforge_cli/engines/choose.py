"""The engine that a configuration names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlforge_cli.errors import UserError

if TYPE_CHECKING:
    from rlforge_cli.config import Config
    from rlforge_cli.model import Policy
    from rlforge_cli.rollouts import RolloutEngine


def require_engine(config: Config) -> None:
    """Refuse an engine that is not there, or not for this device.

    Raises:
        UserError: with the way out.
    """
    if config.rollout.engine == "vllm":
        from rlforge_cli.devices import resolve_device
        from rlforge_cli.engines.vllm import LORA_RANKS, require_temperature
        from rlforge_cli.engines.vllm_library import require_vllm

        require_vllm(resolve_device(config.model.device))
        require_temperature(config.rollout.temperature)
        if config.model.adaptation != "full" and config.model.lora_rank > max(LORA_RANKS):
            raise UserError(
                f"model.lora_rank = {config.model.lora_rank}: vLLM takes {max(LORA_RANKS)} at most; lower it, or use "
                "--set rollout.engine=hf"
            )


def make_engine(config: Config, policy: Policy) -> RolloutEngine:
    """The rollout engine that ``rollout.engine`` names.

    Raises:
        UserError: not available, or it cannot run this model.
    """
    require_engine(config)
    if config.rollout.engine == "vllm":
        from rlforge_cli.engines.vllm import VLLMEngine

        return VLLMEngine(policy, config)
    from rlforge_cli.engines.hf import HFEngine, unsupported_reason

    if reason := unsupported_reason(policy.backbone.config):
        raise UserError(f"model.path = {config.model.path!r}: the hf engine cannot decode it: {reason}")
    return HFEngine(policy, batch_size=config.eval.batch_size)
