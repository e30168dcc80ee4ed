"""What an open question still needs: seeds or problems, and the command to paste."""

from __future__ import annotations

import shlex
from typing import Any

from rlforge_cli.comparison.arms import Arm
from rlforge_cli.comparison.measure import Measured
from rlforge_cli.comparison.options import Options
from rlforge_cli.stats import SeedNoise, detectable_effect, exact_items_needed, items_needed, seeds_needed

POWER = 0.8


def needed(
    control: Arm, arm: Arm, measured: Measured, *, options: Options, noise: SeedNoise, grader_error: float
) -> dict[str, Any]:
    """``{"kind", "seeds_per_arm", "items", "effect_pp", "power", "text", "command"}`` for an inconclusive difference.

    ``kind``: seeds, items, or none when nothing can help. The effect is the margin less the grader error; where what is
    there would detect that already, it is the measured difference itself.
    """
    has = min(len(control.entries), len(arm.entries))
    scores = control.named.scores
    n_items = len(scores.ids) if scores is not None else 0
    effect = (options.margin - grader_error) / 100
    observed = abs(measured.contrast.delta) - grader_error / 100
    if effect <= 0:
        reason = (
            f"the grader error of {grader_error:.2f} pp reaches the margin: check more items of both runs "
            "(`rlforge audit RUN --n MORE`), or give --grader-error"
        )
        return _result("none", reason, effect=effect)
    if options.scope == "checkpoint":
        return _items(measured, effect, observed, n_items)
    for goal in (effect, observed):
        if goal <= 0:
            continue
        seeds = seeds_needed(
            goal, seed_sd=noise.sd, item_se=measured.item_se, n_items=max(2, n_items), power=POWER, alpha=options.alpha
        )
        points = f"{100 * goal:.1f} pp"
        if seeds is None:
            items = _items_for_share(measured, goal, n_items)
            text = f"no number of seeds: the item noise alone is above {points}"
            if items is not None:
                text += f"; about {items:,} problems detect it in the same checkpoints (has {n_items:,})"
            return _result("items" if items else "none", text, effect=goal, items=items)
        if seeds > has:
            there = f"has {len(control.entries)} and {len(arm.entries)}"
            text = f"{seeds} seeds an arm detect {points} with {POWER:.0%} power ({there})"
            command = _seeds_command(control, arm, seeds, options)
            return _result("seeds", text, effect=goal, seeds=seeds, command=command)
    text = f"these seeds already detect {100 * effect:.1f} pp; the difference lies too near the margin to call"
    return _result("none", text, effect=effect)


def _items(measured: Measured, effect: float, observed: float, n_items: int) -> dict[str, Any]:
    for goal in (effect, observed):
        items = _items_for_share(measured, goal, n_items) if goal > 0 else None
        if items is not None and items > n_items:
            text = f"about {items:,} problems detect {100 * goal:.1f} pp with {POWER:.0%} power (has {n_items:,})"
            return _result("items", text, effect=goal, items=items)
    text = f"{n_items:,} problems already detect {100 * effect:.1f} pp; the difference lies too near the margin to call"
    return _result("none", text, effect=effect)


def _items_for_share(measured: Measured, goal: float, n_items: int) -> int | None:
    """Problems that detect ``goal`` at the spread seen here (for single answers the spread is the discordance)."""
    if n_items < 2:
        return None
    if measured.table is not None:
        return exact_items_needed(goal, measured.table.discordance, power=POWER)
    return items_needed(goal, measured.item_se**2 * n_items + measured.contrast.delta**2, power=POWER)


def detectable(control: Arm, measured: Measured, options: Options) -> float | None:
    """The smallest difference in points that these problems detect between two checkpoints at the spread seen.

    Connor's formula solved for the effect. None where nothing differs: no spread is known then.
    """
    scores = control.named.scores
    if scores is None or measured.spread < 1e-12:  # rounding leaves a hair of it
        return None
    return 100 * detectable_effect(len(scores.ids), min(1.0, measured.spread), power=POWER, alpha=options.alpha)


def _seeds_command(control: Arm, arm: Arm, seeds: int, options: Options) -> str | None:
    heads = (control.named.head, arm.named.head)
    if any(head.run is None for head in heads):
        return None
    # a fresh seed confirms the run that it is a seed of, and counts for it
    source = heads[1].info.get("seed_of")
    chosen = source if source and (options.runs_dir / source / "run.json").is_file() else heads[1].name
    command = ["rlforge", "seeds", chosen, "--n", str(seeds), "--control", heads[0].name]
    if str(options.runs_dir) != "runs":
        command += ["--runs-dir", str(options.runs_dir)]
    return shlex.join(command)


def _result(
    kind: str,
    text: str,
    *,
    effect: float,
    seeds: int | None = None,
    items: int | None = None,
    command: str | None = None,
) -> dict[str, Any]:
    return {
        "kind": kind,
        "seeds_per_arm": seeds,
        "items": items,
        "effect_pp": round(100 * effect, 6),
        "power": POWER,
        "text": text,
        "command": command,
    }
