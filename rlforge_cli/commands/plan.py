"""rlforge plan"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import typer

from rlforge_cli.commands.common import Json, Preset, Sets

if TYPE_CHECKING:
    from rlforge_cli.memory import Prediction


def plan(
    preset: Preset = None,
    sets: Sets = None,
    gpu: Annotated[
        float | None, typer.Option(min=1.0, help="Memory of the card, in GiB; default: the one here, else 32.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Predict what a run generates, its peak memory by part, and its time; needs neither GPU nor weights."""
    from rlforge_cli import forecast, memory, output, settings, show
    from rlforge_cli.checks.plan_gates import hours
    from rlforge_cli.errors import UserError

    if gpu is not None and not math.isfinite(gpu):
        raise UserError(f"--gpu {gpu:g}: give the card's memory in GiB, such as --gpu 32")
    name = preset or settings.default_preset()
    config = settings.load(preset, sets=sets or [])
    device = None if gpu else memory.device_gib()
    size = gpu or (device[0] if device else memory.REFERENCE_GIB)
    result = forecast.forecast(config, gpu_gib=size)
    if result["memory"] is None:
        raise UserError(
            f"model.path = {config.model.path!r}: its shape is not known here; give a folder with its config.json, or "
            f"one of {', '.join(sorted(memory.KNOWN))}"
        )
    if as_json:
        output.print_json({"preset": name} | result)
        return
    predicted: memory.Prediction = result["memory"]
    show.pairs([(key, value) for key, value in result["plan"].items() if value is not None], title=f"plan of {name}")
    rows = [[part, f"{gib:.2f}"] for part, gib in sorted(predicted.parts.items(), key=lambda item: -item[1])]
    rows += [["peak while training", f"{predicted.training_gib:.2f}"]]
    rows += [["peak while generating", f"{predicted.generating_gib:.2f}"]]
    output.stdout().print(output.table(["memory", "GiB"], rows, right=(1,)))
    cards = {float(card): fits for card, fits in result["cards"].items()}
    show.pairs(
        [
            ("parameters", f"{predicted.parameters:,}, {predicted.trainable:,} trained"),
            ("peak", f"{predicted.peak_gib:.1f} of {size:g} GiB: {fit(predicted)}"),
            ("cards", forecast.fits_text(cards)),
            ("KV cache", f"{predicted.cache_tokens:,} tokens"),
            (
                "time",
                f"{predicted.seconds_per_step:,.{0 if predicted.seconds_per_step >= 100 else 1}f} s a step, "
                f"{hours(result['seconds'])} in all",
            ),
        ]
    )
    for text in result["assumptions"]:
        output.stdout().print(output.cell(f"  assumed: {text}"))


def fit(predicted: Prediction) -> str:
    """In words; a peak below the card's size is not enough."""
    if predicted.fits:
        return "fits"
    if predicted.peak_gib > predicted.gpu_gib:
        return "does not fit"
    return (
        "does not fit: the engine's share has no room for the keys and values of one sequence; raise "
        "rollout.memory_share, or shorten rollout.max_tokens"
    )
