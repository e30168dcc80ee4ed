"""What is known of a run before its model is loaded: its plan, predicted memory and time, and the device it meets."""

from __future__ import annotations

from typing import Any

from rlforge_cli import memory
from rlforge_cli.architecture import architecture_of
from rlforge_cli.checks.evidence import PlanFacts
from rlforge_cli.config import Config
from rlforge_cli.planning import plan


def plan_facts(config: Config) -> PlanFacts:
    """For smoke's gates; asks the driver for the device."""
    planned = plan(config)
    device = memory.device_gib() if config.model.device != "cpu" else None
    model = architecture_of(config.model.path)
    size = device[0] if device else memory.REFERENCE_GIB
    predicted = memory.predict(config, model, gpu_gib=size) if model else None
    large = sorted(predicted.parts.items(), key=lambda part: -part[1])[:4] if predicted else []
    return PlanFacts(
        completions=planned["completions"], updates=planned["updates"], tokens=planned["completion_tokens_at_most"],
        predicted_gib=predicted.peak_gib if predicted else None,
        largest_parts=", ".join(f"{name} {gib:.1f}" for name, gib in large),
        device_gib=device[0] if device else None, device=device[1] if device else "",
        fits=fits_text(memory.which_fit(config, model)) if model else "",
        seconds_per_step=predicted.seconds_per_step if predicted and device else None,
        time_basis="scaled from the reference experiment's 45 s on a 32 GB card",
    )  # fmt: skip


def fits_text(cards: dict[float, bool]) -> str:
    """``fits 32 and 80 GiB, not 24``."""
    yes = [f"{card:g}" for card, fits in cards.items() if fits]
    no = [f"{card:g}" for card, fits in cards.items() if not fits]
    text = f"fits {', '.join(yes)} GiB" if yes else "fits none of"
    return f"{text}{', not' if yes and no else ''}{' ' + ', '.join(no) if no else ''}{' GiB' if no and not yes else ''}"


def forecast(config: Config, *, gpu_gib: float) -> dict[str, Any]:
    """The JSON object of `rlforge plan`; ``memory`` is None when the model's shape is not known."""
    planned = {key: value for key, value in plan(config).items() if not key.startswith("predicted")}
    model = architecture_of(config.model.path)
    result: dict[str, Any] = {"plan": planned, "gpu_gib": gpu_gib, "memory": None}
    if model is None:
        return result
    predicted = memory.predict(config, model, gpu_gib=gpu_gib)
    return result | {
        "memory": predicted,
        "cards": {f"{card:g}": fits for card, fits in memory.which_fit(config, model).items()},
        "seconds_per_step": predicted.seconds_per_step,
        "seconds": predicted.seconds_per_step * config.train.steps,
        "assumptions": list(memory.ASSUMPTIONS),
    }
