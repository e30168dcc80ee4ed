"""A control against any number of runs or files: align, refuse what is unlike, measure, decide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from rlforge_cli.comparison.alike import obstacles
from rlforge_cli.comparison.arms import Arm, Disk, build_arms, seed_groups
from rlforge_cli.comparison.audit import grader_error
from rlforge_cli.comparison.changes import changes_between, same_budget
from rlforge_cli.comparison.measure import Measured, PooledNoise, Unpaired, measure, pooled_noise
from rlforge_cli.comparison.mechanism import Mechanism, average, mechanism_of, read_curves
from rlforge_cli.comparison.options import Options
from rlforge_cli.comparison.reasons import arm_reasons, unlike_training
from rlforge_cli.comparison.result import Comparison, Row
from rlforge_cli.comparison.scores import pass_at_k, score_error, score_interval, strict_accuracy
from rlforge_cli.comparison.verdicts import unpaired_verdict, verdict_of
from rlforge_cli.errors import UserError
from rlforge_cli.stats import holm


def compare(names: Sequence[str], *, options: Options) -> Comparison:
    """Compare ``names[1:]`` with the control ``names[0]``: run ids, run folders, files, or comma-separated arms.

    Raises:
        UserError: fewer than two names, an unknown one, a file without results, or an option out of range.
    """
    options.check()
    if len(names) < 2:
        raise UserError("compare needs a control and at least one other run or file: rlforge compare run-01 run-02")
    disk = Disk(options)
    arms = build_arms(names, disk=disk)
    pooled = pooled_noise(seed_groups(arms, disk=disk) if options.scope == "recipe" else [], options)
    inside, warnings = _mechanisms(arms, options)
    control = arms[0]
    measured = [_against(control, arm, options, pooled) for arm in arms[1:]]
    errors = [grader_error(control, arm, options) for arm in arms[1:]]
    adjusted = iter(holm([m.p for m in measured if isinstance(m, Measured)]))
    rows = [_row(control, inside[0], reasons=arm_reasons(control, inside[0]))]
    for arm, part, found, error in zip(arms[1:], inside[1:], measured, errors, strict=True):
        changes = _changes(control, arm, inside[0], part)
        reasons = arm_reasons(arm, part)
        if isinstance(found, str):
            judged: dict[str, Any] = {"verdict": "not_comparable", "reasons": [found]}
        else:
            reasons += unlike_training(control, arm, changes, before=inside[0], after=part)
            if isinstance(found, Unpaired):
                judged = unpaired_verdict(control, arm, found, options)
            else:
                p = next(adjusted)
                judged = verdict_of(control, arm, found, p, options=options, pooled=pooled, error=error or 0.0)
        rows.append(_row(arm, part, changes=changes, **judged | {"reasons": judged["reasons"] + reasons}))
    recipe = options.scope == "recipe"
    return Comparison(
        control=control.name,
        scope=options.scope,
        margin_pp=options.margin,
        alpha=options.alpha,
        rule=options.rule,
        grader_error_pp=max((error for error in errors if error is not None), default=0.0),
        seed_sd_pp=100 * pooled.noise.sd if recipe else None,
        seed_sd_source=pooled.source if recipe else None,
        rows=_with_selection_warning(rows, options),
        notes=_notes(arms, errors),
        warnings=warnings,
    )


def _mechanisms(arms: Sequence[Arm], options: Options) -> tuple[list[Mechanism], list[str]]:
    """Gauges of every arm, and what to warn about its files."""
    warnings: dict[str, None] = {}
    inside = []
    for arm in arms:
        parts = []
        for entry in arm.entries:
            curves = read_curves(entry.head)
            parts.append(mechanism_of(entry.head, curves))
            warnings.update(dict.fromkeys([*entry.head.warnings, *([curves.problem] if curves.problem else [])]))
            results = f"evals/{options.evaluation}.jsonl" if entry.head.run is not None else entry.head.path.name
            torn = {"metrics.jsonl": curves.incomplete, results: entry.scores.incomplete if entry.scores else 0}
            for where, count in torn.items():
                if count:
                    lines = f"{count} incomplete line{'s' * (count > 1)}"
                    warnings[f"{lines} ignored in {entry.head.name} ({where})"] = None
        inside.append(average(parts))
    return inside, list(warnings)


def _against(control: Arm, arm: Arm, options: Options, pooled: PooledNoise) -> Measured | Unpaired | str:
    if control.problem is not None:
        return f"the control {control.name} cannot be compared: {control.problem}"
    if arm.problem is not None:
        return arm.problem
    ours = {entry.head.path.resolve() for entry in arm.entries}
    theirs = {entry.head.path.resolve(): entry.head.name for entry in control.entries}
    if (shared := ours & theirs.keys()) and ours != theirs.keys():
        return f"on both sides: {', '.join(sorted(theirs[path] for path in shared))}"
    unlike = obstacles(control.named, arm.named)
    return "; ".join(unlike) if unlike else measure(control, arm, options=options, pooled=pooled)


def _changes(control: Arm, arm: Arm, before: Mechanism, after: Mechanism) -> list[dict[str, Any]]:
    return changes_between(
        control.named.head,
        arm.named.head,
        controls=[entry.head.id for entry in control.entries],
        equal_samples=same_budget(before.completions, after.completions),
    )


def _row(arm: Arm, inside: Mechanism, **values: Any) -> Row:
    usable = arm.named.accuracy is not None
    scores = arm.named.scores
    n_items = len(scores.ids) if scores is not None else arm.named.head.summary.get("n")
    values.setdefault("verdict", None if arm.problem is None else "not_comparable")
    if arm.problem is not None and arm.problem not in values["reasons"]:
        values["reasons"] = [arm.problem, *values["reasons"]]
    return Row(
        run=arm.name,
        n_items=n_items if isinstance(n_items, int) else None,
        n_seeds=len(arm.entries),
        accuracy=sum(arm.accuracies) / len(arm.accuracies) if usable else None,
        ci95=score_interval(arm) if usable else None,
        accuracy_strict=strict_accuracy(arm),
        accuracy_se=score_error(arm) if usable else None,
        pass_at_k=pass_at_k(arm) if usable else None,
        runs=[entry.head.name for entry in arm.entries],
        mechanism=inside,
        **values,
    )


def _with_selection_warning(rows: list[Row], options: Options) -> list[Row]:
    """The best of several equal recipes looks better than it is: its row says so until fresh seeds confirm it."""
    candidates = [row for row in rows[1:] if row.delta_pp is not None]
    if len(candidates) < 3 or options.scope != "recipe":
        return rows
    best = max(candidates, key=lambda row: row.delta_pp or 0.0)
    if best.n_seeds > 1 or (best.delta_pp or 0.0) <= 0:
        return rows
    text = (
        f"the best of {len(candidates)} looks better than it is (2.2 pp for the best of 7 equal recipes): "
        "confirm it with fresh seeds, leaving this run out"
    )
    better = msgspec.structs.replace(best, reasons=[*best.reasons, text])
    return [better if row is best else row for row in rows]


def _notes(arms: Sequence[Arm], errors: Sequence[float | None]) -> list[str]:
    notes = []
    if any(error is None for error in errors):
        notes.append("grader error not measured: taken as 0 (`rlforge audit` measures it, --grader-error sets it)")
    entries = [entry for arm in arms for entry in arm.entries if entry.scores is not None]
    silent = [entry.head.name for entry in entries if not entry.head.summary]
    if silent:
        shown = ", ".join(silent[:3]) + (" ..." if len(silent) > 3 else "")
        notes.append(f"no summary beside {shown}: prompts, grader version and decoding are not checked there")
    if any(entry.head.summary.get("split") == "validation" for entry in entries):
        notes.append("scored on validation, where checkpoints are chosen: report the test split")
    return notes
