"""The difference of two arms at the asked scope, with the seed noise it rests on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from rlforge_cli.comparison.arms import Arm
from rlforge_cli.comparison.options import Options
from rlforge_cli.stats import (
    PRIOR_DF,
    PRIOR_SD,
    Contrast,
    PairedTable,
    SeedNoise,
    known_noise_contrast,
    mcnemar_exact,
    paired_means,
    paired_se,
    paired_table,
    pool_seed_noise,
    recipe_contrast,
    variance_parts,
    welch_contrast,
    with_known_noise,
)


class PooledNoise(msgspec.Struct, frozen=True):
    """The seed noise used where an arm has one seed, and a sentence saying where it comes from."""

    noise: SeedNoise
    source: str
    measured: bool
    """Not the prior alone."""


class Unpaired(msgspec.Struct, frozen=True):
    """Two scores that cannot be paired, and why."""

    reason: str


class Measured(msgspec.Struct, frozen=True):
    """One difference. ``table`` only for one run of one sample each."""

    contrast: Contrast
    table: PairedTable | None
    p_of: Callable[[int, int], float] | None
    """p-value for any counts of exclusive wins: what two checkpoints do not show, two recipes cannot either."""
    item_se: float
    """Item part of the standard error (proportion), as far as it can be separated."""
    seed_source: str | None
    """Which seed noise was used; None at checkpoint scope."""
    spread: float = 0.0
    """Mean square difference of an item between one run of either arm: of single answers the discordant share."""

    @property
    def p(self) -> float:
        if self.table is None or self.p_of is None:
            return self.contrast.p
        return self.p_of(self.table.only_a, self.table.only_b)


def pooled_noise(groups: Sequence[Sequence[float]], options: Options) -> PooledNoise:
    if options.seed_sd is not None:
        given = SeedNoise(sd=options.seed_sd / 100, df=float("inf"))
        return PooledNoise(noise=given, source="--seed-sd", measured=True)
    noise = pool_seed_noise(groups)
    prior = f"prior {100 * PRIOR_SD:.2f} pp worth {PRIOR_DF} df"
    if not groups:
        return PooledNoise(noise=noise, source=f"{prior}, no seeds measured", measured=False)
    runs = sum(len(group) for group in groups)
    arms = f"{len(groups)} arm{'s' * (len(groups) > 1)}"
    return PooledNoise(noise=noise, source=f"{prior}, pooled with {runs} runs of {arms} of this task", measured=True)


def matrix(arm: Arm, ids: tuple[str, ...]) -> NDArray[np.float64]:
    """[seeds, items] mean score of each item, items in the order of ``ids``."""
    rows = [entry.scores.reordered(ids) for entry in arm.entries if entry.scores is not None]
    return np.stack([scores.right / scores.samples for scores in rows])


def measure(control: Arm, arm: Arm, *, options: Options, pooled: PooledNoise) -> Measured | Unpaired:
    """The difference arm - control, or the reason why there is none."""
    first, second = control.named.scores, arm.named.scores
    if first is None or second is None:
        return _measure_summaries(control, arm, options)
    if len(first.ids) < 2:
        return Unpaired(reason="a single problem says nothing about others")
    a, b = matrix(control, first.ids), matrix(arm, first.ids)
    spread = float((a**2).mean() + (b**2).mean() - 2 * (a.mean(axis=0) * b.mean(axis=0)).mean())
    single = len(a) == 1 and len(b) == 1
    table = paired_table(a[0] > 0, b[0] > 0) if single and first.samples == 1 and second.samples == 1 else None
    if options.scope == "checkpoint":
        contrast: Contrast = table or paired_means(a.mean(axis=0), b.mean(axis=0))
        return Measured(
            contrast=contrast, table=table, p_of=mcnemar_exact, item_se=contrast.se, seed_source=None, spread=spread
        )
    if options.seed_sd is None and min(len(a), len(b)) > 1:
        parts = variance_parts(a, b)
        sds = f"{100 * a.mean(axis=1).std(ddof=1):.2f} and {100 * b.mean(axis=1).std(ddof=1):.2f} pp"
        return Measured(
            contrast=recipe_contrast(a, b),
            table=None,
            p_of=None,
            item_se=parts.pure_item**0.5,
            seed_source=f"seed SD {sds}, measured on the {len(a)} and {len(b)} runs compared",
            spread=spread,
        )
    noise = pooled.noise
    n = len(first.ids)

    def p_of(only_a: int, only_b: int) -> float:
        item = paired_se(only_a, only_b, n) ** 2
        found = with_known_noise((only_b - only_a) / n, item, n=n, seeds=(len(a), len(b)), noise=noise)
        return max(mcnemar_exact(only_a, only_b), found.p)

    return Measured(
        contrast=known_noise_contrast(a, b, noise=noise),
        table=table,
        p_of=p_of,
        item_se=variance_parts(a, b).item ** 0.5,
        seed_source=f"seed SD {100 * noise.sd:.2f} pp ({pooled.source})",
        spread=spread,
    )


def _measure_summaries(control: Arm, arm: Arm, options: Options) -> Measured | Unpaired:
    """Without per-problem results nothing can be paired: seeds of both arms can still be compared as numbers."""
    without = control.name if control.named.scores is None else arm.name
    a, b = control.accuracies, arm.accuracies
    if options.scope == "recipe" and min(len(a), len(b)) > 1:
        return Measured(
            contrast=welch_contrast(a, b),
            table=None,
            p_of=None,
            item_se=0.0,
            seed_source=f"Welch's t on the scores of {len(a)} and {len(b)} runs: {without} has no per-problem results",
        )
    return Unpaired(
        reason=f"not paired: {without} has a summary but no per-problem results (`rlforge eval` writes them)"
    )
