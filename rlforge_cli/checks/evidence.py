"""What gates judge: the configuration, the logged steps, and probes: what smoke measured that no step logs.

A probe that was not measured is None, and its gate is skipped.
"""

from __future__ import annotations

from typing import Any

import msgspec

from rlforge_cli.config import Config


class PlanFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known before any step."""

    completions: int
    updates: int
    tokens: int
    """Completion tokens, at most."""
    predicted_gib: float | None = None
    """Peak memory; None when the architecture is not known without the model."""
    largest_parts: str = ""
    device_gib: float | None = None
    """Memory of the device that would run it; None where there is none to compare with."""
    device: str = ""
    fits: str = ""
    seconds_per_step: float | None = None
    """Predicted; None where no speed of the device is assumed."""
    time_basis: str = ""


class LongestBatch(msgspec.Struct, frozen=True):
    """Forward and backward of a micro-batch in which every row has the longest prompt and the longest completion."""

    rows: int
    tokens: int
    """A row."""
    fits: bool
    fitting: int | None = None
    """The largest micro-batch that did fit."""
    peak_gib: float | None = None


class Adapters(msgspec.Struct, frozen=True):
    """LoRA B matrices (0 at the start) after two updates."""

    total: int
    unmoved: list[str]


class BosProbe(msgspec.Struct, frozen=True):
    """How prompts begin. ``counts``: number of prompts by the number of BOS at their start."""

    token: str | None
    wanted: bool
    """Whether the tokenizer or the chat template puts one there."""
    counts: dict[int, int]


class EndProbe(msgspec.Struct, frozen=True):
    """Which tokens end a completion."""

    declared: list[str]
    template_end: str | None
    """The special token with which the chat template ends an answer, when it is not declared."""
    completions: int = 0
    ended: int = 0
    """Completions that an end token or a stop text ended."""
    undeclared: dict[str, float] = {}
    """Special tokens inside completions that ended nothing, with the share of completions that hold them."""


class GoldProbe(msgspec.Struct, frozen=True):
    """Gold answers, each graded against itself in the asked format."""

    n: int
    wrong: list[str]
    """Examples of ids and answers that are not found right."""
    n_wrong: int = 0


class Earning(msgspec.Struct, frozen=True, kw_only=True):
    """What one kind of completion is paid, over several problems. Example: the empty answer, wrong 16 times, 0.0."""

    name: str
    n: int
    right: int
    """How many of them the grader found right."""
    most_wrong: float | None = None
    """The most that one of those found wrong was paid; None when there is none."""
    least_right: float | None = None
    """The least that one of those found right was paid."""
    truncated: bool = False
    wanted: bool | None = None
    """Whether the grader ought to find it right; None where either is defensible."""
    components: dict[str, float | None] = {}
    """Of the example."""
    text: str = ""
    """An example, the one that ``most_wrong`` (else ``least_right``) speaks of."""


class ComponentUse(msgspec.Struct, frozen=True):
    """How a reward component pays over sampled completions: ``success`` x ``value`` = ``product``, its mean.

    ``success`` is the share of completions for which it is not 0, ``value`` its mean over those.
    """

    name: str
    success: float
    value: float
    product: float


class SeedProbe(msgspec.Struct, frozen=True):
    same_equal: bool
    other_differs: bool
    order_differs: bool
    chance: float = 0.0
    """Probability that another draw gives the same samples, by the engine's own account; 0 where it gives none."""


class SleepProbe(msgspec.Struct, frozen=True):
    """Greedy tokens of a few prompts before the engine slept and after it woke with the same weights."""

    level: int
    prompts: int
    changed: int
    """Prompts whose tokens are not the same."""


class Agreement(msgspec.Struct, frozen=True):
    """Engine against trainer on freshly sampled tokens: |difference| of log-probabilities, and the KL (k3)."""

    mean: float
    largest: float
    kl: float
    tokens: int
    rms: float = 0.0


class Groups(msgspec.Struct, frozen=True):
    """The probe problems under the untrained policy."""

    groups: int
    dead: int
    """Without reward spread."""
    success: float
    """Share of right completions."""
    group_size: int


class Movement(msgspec.Struct, frozen=True):
    """Did the engine follow the trainer? On tokens sampled after the last step.

    ``slope`` regresses (engine - start) on (trainer - start) log-probabilities: 1 = the engine has the new weights,
    0 = the old ones. ``moved`` is the rms of (trainer - start). Without a reference only ``identical`` is known:
    whether the engine repeats its first completions exactly although the weights changed.
    """

    slope: float | None
    slope_se: float | None
    moved: float | None
    identical: bool
    checksum_moved: bool | None = None
    """The engine's own checksum of its weights changed; None for an engine that has none."""


class Probes(msgspec.Struct, frozen=True, kw_only=True):
    trainable: int | None = None
    parameters: int | None = None
    longest: LongestBatch | None = None
    gradient_path: bool | None = None
    adapters: Adapters | None = None
    bos: BosProbe | None = None
    ends: EndProbe | None = None
    golds: GoldProbe | None = None
    earnings: list[Earning] | None = None
    components: list[ComponentUse] | None = None
    totals: int | None = None
    """Different total rewards among the sampled completions."""
    unscored: float | None = None
    """Share of sampled completions that have no reward."""
    seeds: SeedProbe | None = None
    sleep: SleepProbe | None = None
    agreement: Agreement | None = None
    padding_gap: float | None = None
    """Largest |difference| of the trainer's log-probabilities of the same tokens in other batch shapes."""
    groups: Groups | None = None
    rewards_before: list[float] | None = None
    """Mean reward of each probe problem under the untrained policy."""
    rewards_after: list[float] | None = None
    """The same problems and the same random numbers after the last step."""
    movement: Movement | None = None
    policy_kl: float | None = None
    """KL of the start to the policy after the last step, on the start's samples, nats a token."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Example: ``Evidence(config=Config(), records=run.metrics())`` judges an old run."""

    config: Config
    records: list[dict[str, Any]] = []
    """Logged steps from 1 on."""
    plan: PlanFacts | None = None
    probes: Probes = Probes()
    missing: str = "needs the model, not only what a run logged: run `rlforge smoke` with its preset"
    """Why probes that are None were not measured."""

    def series(self, name: str) -> list[float]:
        """The logged values of a metric; steps without it are left out, and so is what was not finite."""
        return [float(r[name]) for r in self.records if isinstance(r.get(name), (int, float))]

    @property
    def exact(self) -> bool:
        """Whether weights are float32: thresholds of agreement are ten times tighter."""
        return self.config.model.dtype == "float32"
