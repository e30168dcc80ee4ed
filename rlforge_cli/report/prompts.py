"""The texts of the problems that an evaluation asked: results hold ids only.

Read from the task when that needs neither network nor a heavy library, and believed only when the problems' hash is
the one that the evaluation stored.
"""

from __future__ import annotations

from typing import Any

import msgspec

from rlforge_cli.config import DataConfig
from rlforge_cli.errors import UserError
from rlforge_cli.report.facts import Subject
from rlforge_cli.tasks.base import SPLITS, problems_hash


def prompts_of(subject: Subject) -> dict[str, str]:
    """Prompt by problem id; empty when the problems are not at hand or are not those that were asked."""
    summary = subject.head.summary
    split = next((name for name in SPLITS if name == summary.get("split")), None)
    data = {key.partition(".")[2]: value for key, value in subject.head.config.items() if key.startswith("data.")}
    if split is None or not _at_hand(data):
        return {}
    from rlforge_cli.tasks.registry import load_task

    try:
        problems = load_task(msgspec.convert(data, type=DataConfig)).problems(split)
    except (UserError, msgspec.ValidationError):
        return {}
    limit = summary.get("limit")
    problems = problems[:limit] if isinstance(limit, int) else problems
    same = problems_hash(problems) == summary.get("task_hash")
    return {problem.id: problem.prompt for problem in problems} if same else {}


def _at_hand(data: dict[str, Any]) -> bool:
    return data.get("task") == "arithmetic" or (data.get("task") in ("gsm8k", "jsonl") and bool(data.get("path")))
