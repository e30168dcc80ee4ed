"""How right is the grader: a person checks a stratified sample of graded answers, and the result is reweighted.

Strata: ``right`` (graded right), ``near`` (graded wrong, with the gold answer somewhere in the text) and ``wrong`` (the
rest). Bias = graded minus true accuracy; it is what `rlforge compare` allows for. Answers are kept one by one beside
the run, so an audit can be left and taken up again, and a larger ``n`` goes on from a smaller one.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from rlforge_cli.audit_estimates import estimate, items_to_halve
from rlforge_cli.audit_sample import STRATA, Item, digest, draw, read_items
from rlforge_cli.comparison.audit import audit_file
from rlforge_cli.errors import UserError, nearest
from rlforge_cli.run_dir import RunDir, write_json
from rlforge_cli.stats.stratified import Stratum


class Audit(msgspec.Struct):
    """An audit under way: every graded item, those drawn (in the order of asking), and the answers so far."""

    run: RunDir
    evaluation: str
    n: int
    seed: int
    items: list[Item]
    drawn: list[Item]
    answers: dict[str, dict[str, Any]]
    """By key: ``{"right": bool, "text": digest}``; also earlier ones that are not drawn this time."""
    second: dict[str, Any] | None = None

    @property
    def file(self) -> Path:
        """``audit.json`` is what `rlforge compare` reads; other evaluations are audited apart."""
        return audit_file(self.run.path, self.evaluation)

    def right(self, item: Item) -> bool | None:
        """What the person said; None when not asked yet."""
        known = self.answers.get(item.key)
        return known["right"] if known is not None and known["text"] == item.text else None

    @property
    def open(self) -> list[Item]:
        return [item for item in self.drawn if self.right(item) is None]

    def record(self, item: Item, right: bool) -> None:
        self.answers[item.key] = {"right": right, "text": item.text}


def begin(run: RunDir, *, n: int, seed: int, evaluation: str) -> Audit:
    """Draw the items, and take over what was answered before.

    Raises:
        UserError: no such evaluation, or one without texts.
    """
    items = read_items(run, evaluation)
    audit = Audit(run, evaluation, n, seed, items, draw(items, n=n, seed=seed), {})
    try:
        before = json.loads(audit.file.read_bytes())
        answers = before["answers"]
        audit.answers = {key: {"right": bool(a["right"]), "text": str(a["text"])} for key, a in answers.items()}
        if before.get("results") == digest(items) and "keys" in (before.get("second_grader") or {}):
            audit.second = before["second_grader"]
    except FileNotFoundError:
        pass
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UserError(f"{audit.file}: damaged; remove it to start this audit again") from None
    return audit


def take_answers(audit: Audit, path: Path) -> list[str]:
    """Record what a file of ``{"id", "right": true|false}`` lines says; null or no ``right`` leaves an item open.

    Returns:
        Ids that were graded but not drawn: answers about hand-picked items would not be a sample.

    Raises:
        UserError: unreadable, or a line that is no answer, or about an unknown item.
    """
    try:
        lines = path.read_bytes().decode("utf-8-sig").split("\n")
    except OSError as error:
        raise UserError(
            f"--answers {path}: cannot be read: {error.strerror}; --export {path} writes one to fill in"
        ) from None
    except UnicodeDecodeError as error:
        raise UserError(f"--answers {path}: is not UTF-8 (byte {error.start}); convert it first") from None
    drawn = {item.key: item for item in audit.drawn}
    known = {item.key for item in audit.items}
    left_out = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{where}: not valid JSON: {error}") from None
        right = record.get("right") if isinstance(record, dict) else ...
        if right not in (True, False, None) or not isinstance(right, (bool, type(None))) or "id" not in record:
            raise UserError(f'{where}: expected {{"id": "...", "right": true or false}}')
        key = str(record["id"])
        if key not in known:
            raise UserError(f"{where}: no graded item {key!r}{nearest(key, known)}")
        if key not in drawn:
            left_out.append(key)
        elif right is not None:
            audit.record(drawn[key], right)
    return left_out


def export(audit: Audit, path: Path, prompts: dict[str, str]) -> None:
    """Write the drawn items as a file of answers to fill in, without what the grader thinks of them."""
    lines = [
        json.dumps(
            {
                "id": item.key, "right": audit.right(item), "answer": item.answer,
                "prompt": prompts.get(item.id), "completion": item.completion,
            }
        )
        for item in audit.drawn
    ]  # fmt: skip
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
    except OSError as error:
        raise UserError(f"--export {path}: cannot be written: {error.strerror}") from None


def ask_all(audit: Audit, ask: Callable[[Item, int, int], bool | None]) -> None:
    """Ask about every open item, keeping each answer at once; ``ask`` returns None to stop."""
    for item in audit.open:
        total = len(audit.drawn)
        answer = ask(item, total - len(audit.open) + 1, total)
        if answer is None:
            return
        audit.record(item, answer)
        save(audit)


def estimates(audit: Audit) -> dict[str, Any]:
    """Sensitivity, specificity and bias with 95 % intervals, reweighted to all items; empty until every answer is in.

    Bias in points (graded minus true accuracy), everything else in 0..1. ``items_to_halve``: how many checked items in
    all would make each interval half as wide.
    """
    if audit.open:
        return {}
    total = len(audit.items)
    sizes = Counter(item.stratum for item in audit.items)
    asked = Counter(item.stratum for item in audit.drawn)
    yes = Counter(item.stratum for item in audit.drawn if audit.right(item))
    strata = {
        name: Stratum(weight=sizes[name] / total, size=sizes[name], asked=asked[name], yes=yes[name])
        for name in STRATA
        if sizes[name]
    }
    return estimate(strata) | {"items_to_halve": items_to_halve(strata)}


def result(audit: Audit) -> dict[str, Any]:
    """What `rlforge audit --json` prints, and what is stored."""
    strata = {}
    for name in STRATA:
        drawn = [item for item in audit.drawn if item.stratum == name]
        said = [right for item in drawn if (right := audit.right(item)) is not None]
        size = sum(item.stratum == name for item in audit.items)
        strata[name] = {"size": size, "drawn": len(drawn), "answered": len(said), "right": sum(said)}
    return {
        "run": audit.run.id,
        "eval": audit.evaluation,
        "n": len(audit.drawn),
        "seed": audit.seed,
        "answered": len(audit.drawn) - len(audit.open),
        "complete": not audit.open,
        "graded_accuracy": sum(item.graded for item in audit.items) / len(audit.items),
        **estimates(audit),
        "strata": strata,
        "errors": [
            {"id": item.key, "graded": item.graded, "right": right}
            for item in audit.drawn
            if (right := audit.right(item)) is not None and right != item.graded
        ],
        "second_grader": audit.second,
        "path": str(audit.file),
    }


def save(audit: Audit) -> None:
    try:
        write_json(audit.file, result(audit) | {"results": digest(audit.items), "answers": audit.answers})
    except OSError as error:
        raise UserError(f"{audit.file}: cannot be written: {error.strerror}; copy the run to where it can") from None
