"""Whether two evaluations may be compared at all, and if not, why."""

from __future__ import annotations

from typing import Any

from rlforge_cli.comparison.entries import Entry
from rlforge_cli.comparison.samples import Scores

DECODING = ("temperature", "top_p", "top_k", "max_tokens", "samples", "thinking", "stop")
"""What decides how answers are drawn; the sampling seed does not."""


def obstacles(a: Entry, b: Entry) -> list[str]:
    """Reasons why ``a`` and ``b`` are not comparable; empty when they are. What a summary does not say is not held
    against it."""
    first, second = a.head.summary, b.head.summary
    reasons = [
        f"{entry.head.name} is scored on training data"
        for entry in (a, b)
        if entry.head.summary.get("split") == "train"
    ]
    for key, what, way_out in (
        ("split", "scored on different splits", "evaluate both on test"),
        ("task", "different tasks", ""),
        ("task_hash", "different problems", "evaluate both again on the same ones"),
        ("prompt_hash", "different prompts", "evaluate both with one prompt"),
        ("grader", "graded by different versions", "evaluate both again with this version"),
    ):
        if key in first and key in second and first[key] != second[key]:
            reasons.append(f"{what} ({first[key]} and {second[key]})" + (f": {way_out}" if way_out else ""))
    reasons += _decoding(first.get("decoding"), second.get("decoding"))
    if a.scores is not None and b.scores is not None:
        reasons += _items(a.scores, b.scores, a.head.name, b.head.name)
    return reasons


def _decoding(first: Any, second: Any) -> list[str]:
    if not isinstance(first, dict) or not isinstance(second, dict):
        return []
    greedy = first.get("temperature") == 0 and second.get("temperature") == 0
    keys = [key for key in DECODING if key in first and key in second and first[key] != second[key]]
    differ = [key for key in keys if not (greedy and key in ("top_p", "top_k"))]
    if not differ:
        return []
    return ["decoded differently (" + ", ".join(f"{key} {first[key]} and {second[key]}" for key in differ) + ")"]


def _items(a: Scores, b: Scores, name_a: str, name_b: str) -> list[str]:
    if a.ids != b.ids:
        left, right = set(a.ids), set(b.ids)
        if left != right:
            return [
                f"different items: {len(left & right)} shared, {len(left - right)} only in {name_a}, "
                f"{len(right - left)} only in {name_b}; unpaired scores are not compared"
            ]
        b = b.reordered(a.ids)
    reasons = []
    if a.samples != b.samples:
        reasons.append(f"different numbers of samples a problem ({a.samples} and {b.samples})")
    for what, first, second in (("gold answers", a.golds, b.golds), ("prompts", a.prompts, b.prompts)):
        if first == second:
            continue
        unlike = [i for i, (x, y) in enumerate(zip(first, second, strict=True)) if x != y and None not in (x, y)]
        if unlike:
            reasons.append(f"{what} differ on {len(unlike)} items (first: {a.ids[unlike[0]]!r})")
    return reasons
