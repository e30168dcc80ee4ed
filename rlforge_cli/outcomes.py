"""What a study found, in the terms it was asked in: hypothesis -> outcome, and the arm to go on with."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Literal

import msgspec

from rlforge_cli.rounds import PlannedArm, StudyPlan
from rlforge_cli.run_dir import RunDir
from rlforge_cli.study import ArmSpec, RoundSpec

if TYPE_CHECKING:
    from rlforge_cli.comparison import Comparison, Row

Outcome = Literal["as expected", "not as expected", "open", "not run"]
FRESH = 3
"""Fresh seeds of a winner, where the comparison does not say how many it needs."""


class ArmOutcome(msgspec.Struct, frozen=True):
    """One arm: what was expected, what came. Differences in points."""

    arm: str
    run: str | None
    changes: list[dict[str, object]]
    phenomenon: str
    expect: str | None
    verdict: str | None
    delta_pp: float | None
    delta_ci95_pp: tuple[float, float] | None
    outcome: Outcome
    note: str = ""


class RoundOutcome(msgspec.Struct, frozen=True):
    """One round; ``outcome`` sums up its arms: refuted by one, open while one is, else as expected."""

    round: str
    hypothesis: str
    expectation: str
    conclusion: str
    outcome: Outcome
    sentence: str
    arms: list[ArmOutcome]


class Proposal(msgspec.Struct, frozen=True):
    """What to take as the next control, and the command that confirms it (None: keep the control)."""

    arm: str | None
    run: str | None
    sentence: str
    command: str | None


def outcome_of(spec: ArmSpec, row: Row | None) -> Outcome:
    """A verdict against what was expected; an inconclusive one leaves the question open, whatever its sign."""
    if row is None or row.verdict is None:
        return "not run"
    if row.verdict in ("inconclusive", "not_comparable"):
        return "open"
    # a real difference that is shown to be smaller than the margin is also no material one
    hit = row.verdict == spec.expect or (spec.expect == "no_material_difference" and row.below_margin)
    return "as expected" if hit else "not as expected"


def row_of(arm: PlannedArm, comparison: Comparison | None) -> Row | None:
    run = arm.run
    if comparison is None or run is None:
        return None
    return next((row for row in comparison.rows[1:] if row.run == run.id), None)


def outcomes(plan: StudyPlan, comparison: Comparison | None) -> list[RoundOutcome]:
    """Every round with its arms."""
    return [round_outcome(part, plan, comparison) for part in plan.study.rounds]


def round_outcome(part: RoundSpec, plan: StudyPlan, comparison: Comparison | None) -> RoundOutcome:
    arms = []
    for arm in plan.arms:
        if arm.part is not part or arm.spec is None:
            continue
        row = row_of(arm, comparison)
        arms.append(
            ArmOutcome(
                arm=arm.name,
                run=arm.run.id if arm.run else None,
                changes=list(arm.run.info().get("changes") or []) if arm.run else [],
                phenomenon=arm.spec.phenomenon,
                expect=arm.spec.expect,
                verdict=row.verdict if row else None,
                delta_pp=row.delta_pp if row else None,
                delta_ci95_pp=row.delta_ci95_pp if row else None,
                outcome=outcome_of(arm.spec, row),
                note=unlearned(arm.run) if arm.run else "",
            )
        )
    outcome, sentence = summed(arms)
    return RoundOutcome(part.name, part.hypothesis, part.expectation, part.conclusion, outcome, sentence, arms)


def unlearned(run: RunDir) -> str:
    """A warning where the scored checkpoint is the model before training."""
    from rlforge_cli import series

    summary = series.summary(run) or {}
    start = (run.info().get("best") or {}).get("step") == 0 and summary.get("checkpoint") == "best"
    return "the starting model was the best on validation, so that is what was scored" if start else ""


def summed(arms: list[ArmOutcome]) -> tuple[Outcome, str]:
    """One arm against it refutes a hypothesis; one arm that is open keeps it open."""
    by: dict[str, list[str]] = {}
    for arm in arms:
        by.setdefault(arm.outcome, []).append(arm.arm)

    def those(outcome: Outcome) -> str:
        return ", ".join(by.get(outcome, []))

    if "not as expected" in by:
        left = f"; still open: {those('open')}" if "open" in by else ""
        return "not as expected", f"did not come as expected: {those('not as expected')}{left}"
    if "not run" in by:
        return "not run", f"not run yet: {those('not run')}"
    if "open" in by:
        rest = f"; as expected: {those('as expected')}" if "as expected" in by else ""
        return "open", f"open, neither shown nor refuted: {those('open')}{rest}"
    return "as expected", "every arm came as expected"


def proposal(plan: StudyPlan, comparison: Comparison | None) -> Proposal:
    """The arm with the highest score, as the next control: how sure that is, and how to make sure."""
    scored = [(arm, row) for arm in plan.arms if (row := row_of(arm, comparison)) and row.delta_pp is not None]
    if not scored or comparison is None:
        return Proposal(None, None, "nothing is compared yet", None)
    arm, row = max(scored, key=lambda pair: pair[1].delta_pp or 0.0)
    control = comparison.control
    if (row.delta_pp or 0.0) <= 0 or row.verdict in ("worse", "no_material_difference"):
        best = f"the highest is {arm.name} ({row.run}) at {row.delta_pp:+.1f} pp"
        return Proposal(None, None, f"keep the control {control}: no arm is materially above it; {best}", None)
    seeds = (row.needed or {}).get("seeds_per_arm") or FRESH
    command = ["rlforge", "seeds", row.run, "--n", str(seeds), "--control", control]
    if str(plan.runs_dir) != "runs":
        command += ["--runs-dir", str(plan.runs_dir)]
    sure = (
        "better than the control, but chosen among several: confirm it with fresh seeds"
        if row.verdict == "better"
        else "the highest, but not shown to be better than the control: fresh seeds decide"
    )
    role = "next control" if row.verdict == "better" else "candidate for the next control"
    text = f"{role}: {arm.name} ({row.run}), {row.delta_pp:+.1f} pp: {sure}"
    return Proposal(arm.name, row.run, text, shlex.join(command))
