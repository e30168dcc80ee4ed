"""What an audit checks: every graded answer of an evaluation, its stratum, and the sample drawn from them."""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections import Counter
from collections.abc import Iterable

import msgspec

from rlforge_cli.errors import UserError, nearest
from rlforge_cli.jsonl import read_records
from rlforge_cli.run_dir import RunDir
from rlforge_cli.seeding import derive
from rlforge_cli.stats.stratified import allocate

STRATA = ("right", "near", "wrong")
THOUSANDS = re.compile(r"(?<=\d)[, \u00a0\u202f](?=\d{3}(?!\d))")


class Item(msgspec.Struct, frozen=True):
    """One graded answer. Example: ``Item(key="gsm8k-test-0001", ..., graded=False, stratum="near")``."""

    key: str
    """The problem's id, with ``#2`` behind it for the second of several samples."""
    id: str
    answer: str
    """Gold."""
    completion: str
    graded: bool
    stratum: str

    @property
    def text(self) -> str:
        """A digest: an answer about another text is not taken over."""
        return hashlib.sha256(f"{self.answer}\0{self.completion}".encode(errors="surrogatepass")).hexdigest()[:16]


def read_items(run: RunDir, evaluation: str) -> list[Item]:
    path = run.evals / f"{evaluation}.jsonl"
    if not path.is_file():
        there = sorted(found.stem for found in run.evals.glob("*.jsonl"))
        hint = nearest(evaluation, there) if there else f": `rlforge eval {run.id}` makes one"
        raise UserError(f"{run.id} has no evaluation {evaluation!r}{hint}")
    records, _ = read_records(path)
    seen: Counter[str] = Counter()
    items = []
    for record in records:
        answer, completion, graded = (record.get(key) for key in ("answer", "completion", "correct"))
        if not isinstance(answer, str) or not isinstance(completion, str) or not isinstance(graded, bool):
            raise UserError(f"{path}: a result without answer, completion or correct: `rlforge eval {run.id}` again")
        name = str(record.get("id"))
        seen[name] += 1
        key = name if seen[name] == 1 else f"{name}#{seen[name]}"
        stratum = "right" if graded else "near" if states(completion, answer) else "wrong"
        items.append(Item(key, name, answer, completion, graded, stratum))
    if not items:
        raise UserError(f"{path}: holds no results: `rlforge eval {run.id}` again")
    return items


def states(completion: str, answer: str) -> bool:
    """Whether the gold answer stands somewhere in the text, as a number or word of its own."""
    text, gold = (THOUSANDS.sub("", part).casefold() for part in (completion, answer.strip()))
    return re.search(rf"(?<![\w.]){re.escape(gold)}(?!\w|\.\d*[1-9])", text) is not None


def draw(items: list[Item], *, n: int, seed: int) -> list[Item]:
    """A stratified random sample in a random order; a larger ``n`` holds every smaller one of the same seed."""
    if n < 1:
        raise UserError(f"--n {n}: check at least one item")
    by = {name: [item for item in items if item.stratum == name] for name in STRATA}
    counts = allocate({name: len(part) for name, part in by.items()}, n)
    chosen = []
    for name, part in by.items():
        order = sorted(part, key=lambda item: item.key)
        random.Random(derive(seed, "audit", name)).shuffle(order)
        chosen += order[: counts[name]]
    random.Random(derive(seed, "audit")).shuffle(chosen)
    return chosen


def digest(items: Iterable[Item]) -> str:
    """Equal exactly when the graded items are."""
    state = hashlib.sha256()
    for item in items:
        state.update(f"{item.key}\0{item.text}\0{item.graded}\n".encode(errors="surrogatepass"))
    return state.hexdigest()[:16]


def prompts_of(run: RunDir, evaluation: str) -> dict[str, str]:
    """Problem texts by id, where the task can be loaded and asks what the evaluation asked; else nothing."""
    from rlforge_cli.lineage import run_config
    from rlforge_cli.tasks.base import SPLITS, problems_hash
    from rlforge_cli.tasks.registry import load_task

    try:
        summary = json.loads((run.evals / f"{evaluation}.json").read_bytes())
        split = next(name for name in SPLITS if name == summary["split"])
        problems = load_task(run_config(run).data).problems(split)[: summary.get("limit")]
    except (OSError, ValueError, KeyError, TypeError, StopIteration):
        return {}
    return {p.id: p.prompt for p in problems} if problems_hash(problems) == summary.get("task_hash") else {}
