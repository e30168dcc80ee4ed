"""Sample logs of lm-evaluation-harness (``--log_samples``): one filter of one task."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlforge_cli.comparison.samples import Sample, binary, normal_id
from rlforge_cli.errors import UserError, nearest

DEFAULT_FILTER = "flexible-extract"
STRICT_FILTER = "strict-match"
METRICS = ("exact_match", "acc", "pass@1", "math_verify")
"""Metrics that say right or wrong, in order of preference; ``acc_norm`` and its kin only when alone."""


def is_log(record: dict[str, Any]) -> bool:
    return "doc_id" in record and "correct" not in record


def read(records: Sequence[dict[str, Any]], *, filter: str | None, path: Path) -> list[Sample]:
    """One sample a record of the chosen filter; the strict-match filter, where logged, becomes the strict score.

    Raises:
        UserError: the filter or a right/wrong metric is not in the log.
    """
    names = list(dict.fromkeys(str(record["filter"]) for record in records if "filter" in record))
    wanted = _choose_filter(names, filter, path)
    chosen = [record for record in records if wanted is None or str(record.get("filter")) == wanted]
    metric = _metric(chosen[0], path)
    _refuse_unnamed_filters(chosen, path)
    strict: dict[str | None, list[bool | None]] = {}
    if STRICT_FILTER in names:
        for record in records:
            if record.get("filter") == STRICT_FILTER:
                strict.setdefault(normal_id(record.get("doc_id")), []).append(binary(record.get(metric)))
    samples, seen = [], dict.fromkeys(strict, 0)
    for record in chosen:
        item, correct = normal_id(record.get("doc_id")), binary(record.get(metric))
        if item is None or correct is None:
            raise UserError(
                f"{path}: doc_id {record.get('doc_id')!r}: {metric} is {record.get(metric)!r}, expected 0 or 1"
            )
        answers = strict.get(item, [])
        turn = seen.get(item, 0)
        seen[item] = turn + 1
        samples.append(
            Sample(
                id=item,
                correct=correct,
                strict=answers[turn] if turn < len(answers) else None,
                gold=_text(record.get("target_hash", record.get("target"))),
                prompt=_text(record.get("prompt_hash")),
            )
        )
    return samples


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _choose_filter(names: list[str], asked: str | None, path: Path) -> str | None:
    if not names:
        if asked is not None:
            raise UserError(f"{path}: --filter {asked}: this log names no filters; leave --filter out")
        return None
    wanted = asked or DEFAULT_FILTER
    if wanted in names:
        return wanted
    if asked is None and len(names) == 1:
        return names[0]
    raise UserError(f"{path}: no filter {wanted!r}{nearest(wanted, names)}; choose one with --filter")


def _metric(record: dict[str, Any], path: Path) -> str:
    known = next((name for name in METRICS if binary(record.get(name)) is not None), None)
    named = record.get("metrics")
    listed = [n for n in named if binary(record.get(str(n))) is not None] if isinstance(named, list) else []
    if known is None and len(listed) == 1:
        known = str(listed[0])
    if known is None:
        raise UserError(
            f"{path}: no metric that is right or wrong ({', '.join(METRICS)}) in this lm-evaluation-harness log; "
            "convert it to lines of id and correct"
        )
    return known


def _refuse_unnamed_filters(records: Sequence[dict[str, Any]], path: Path) -> None:
    """Old logs write each filter's verdict on the same response without naming it: those are no repeated samples."""
    seen: dict[str | None, list[Any]] = {}
    for record in records:
        responses = seen.setdefault(normal_id(record.get("doc_id")), [])
        if "filter" not in record and record.get("resps") is not None and record["resps"] in responses:
            raise UserError(
                f"{path}: doc_id {record.get('doc_id')!r} has one response graded twice by filters without names; "
                "keep one filter's lines"
            )
        responses.append(record.get("resps"))
