"""What a run will cost before it starts: prompts, completions, updates, tokens; and equal budgets between runs."""

from __future__ import annotations

from typing import Any

import msgspec

from rlforge_cli.config import Config, completions_per_step, groups_per_round
from rlforge_cli.errors import UserError


def planned_completions(config: Config) -> int:
    """Completions that the run generates when no step needs a refill."""
    return config.train.steps * completions_per_step(config)


def equal_samples(config: Config, *, control_completions: int) -> Config:
    """``config`` with as many steps as the control's generated completions pay for, and that number as its limit.

    Example: a control of 200 steps x 64 completions gives 400 steps at G = 4, 133 with dynamic sampling at 1.5.

    Raises:
        UserError: the budget does not pay for one step.
    """
    per_step = completions_per_step(config)
    steps = control_completions // per_step
    if steps < 1:
        raise UserError(
            f"--equal-samples: the control generated {control_completions} completions and one step of this run "
            f"generates {per_step}; make the control longer or the step smaller"
        )
    train = msgspec.structs.replace(config.train, steps=steps, max_completions=control_completions)
    return msgspec.structs.replace(config, train=train)


def plan(config: Config) -> dict[str, Any]:
    """The plan of a run, as ``--dry-run`` prints it."""
    rollout, train = config.rollout, config.train
    per_step = completions_per_step(config)
    trained = rollout.prompts * rollout.group_size
    return {
        "steps": train.steps,
        "prompts_per_step": rollout.prompts,
        "group_size": rollout.group_size,
        "groups_sampled_per_step": groups_per_round(config),
        "completions_per_step": per_step,
        "completions_trained_per_step": trained,
        "micro_batch_size": train.micro_batch_size,
        "accumulation": -(-trained // (config.grpo.updates * train.micro_batch_size)),
        "updates": train.steps * config.grpo.updates,
        "completions": planned_completions(config),
        "completion_tokens_at_most": planned_completions(config) * rollout.max_tokens,
        "validations": 1 + (train.steps // config.eval.every if config.eval.every else 0),
    } | predicted(config)


def predicted(config: Config) -> dict[str, Any]:
    """Peak memory and time on the device here, or on the reference experiment's card; empty for an unknown model.

    A CPU has no prediction: what fits there depends on what else runs, and `rlforge smoke` measures the time.
    """
    from rlforge_cli import memory

    device = None if config.model.device == "cpu" else memory.device_gib()
    forecast = memory.predict_for(config, gpu_gib=device[0] if device else memory.REFERENCE_GIB)
    if forecast is None:
        return {}
    return {
        "predicted_peak_gib": round(forecast.peak_gib, 2),
        "predicted_seconds_per_step": round(forecast.seconds_per_step, 2),
        "predicted_for": device[1] if device else f"a card of {memory.REFERENCE_GIB:g} GiB (none is here)",
    }
