"""Flipped problems: which are shown, with which texts, and where their prompts come from."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from report_files import write_full_run

from rlforge_cli.report.facts import Facts, gather
from rlforge_cli.report.flips import Flips, find_flips
from rlforge_cli.report.prompts import prompts_of
from rlforge_cli.run_dir import RunDir
from rlforge_cli.tasks.arithmetic import Arithmetic
from rlforge_cli.tasks.base import problems_hash


def facts_of(runs: Path) -> Facts:
    return gather(RunDir.all(runs), runs_dir=runs)


def flips_of(facts: Facts) -> Flips:
    found = find_flips(facts.control, facts.arms[0], prompts=prompts_of(facts.control))
    assert found is not None
    return found


def test_five_each_way_drawn_by_the_hash_of_their_ids(tmp_path: Path) -> None:
    control = [1] * 20 + [0] * 8 + [1] * 30
    arm = [0] * 20 + [1] * 8 + [1] * 30
    write_full_run(tmp_path, "run-01", control)
    write_full_run(tmp_path, "run-02", arm, config={"optimizer.lr": 2e-6})
    found = flips_of(facts_of(tmp_path))
    assert (found.lost_count, found.won_count) == (20, 8)

    def first(ids: list[str]) -> list[str]:
        return sorted(ids, key=lambda item: hashlib.sha256(item.encode()).digest())[:5]

    assert [flip.id for flip in found.lost] == first([f"q{i}" for i in range(20)])
    assert [flip.id for flip in found.won] == first([f"q{i}" for i in range(20, 28)])
    flip = found.lost[0]
    number = int(flip.id[1:])
    assert flip.gold == flip.control.prediction == str(number)
    assert flip.arm.prediction == str(number + 1)
    assert flip.prompt is None


def asked(run: Path, **values: Any) -> None:
    """Give a run the arithmetic task's first problems as those it was evaluated on."""
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(
        json.dumps(config | {"data": {"task": "arithmetic", "path": "", "validation": 200}})
    )
    problems = Arithmetic().problems("test")[:40]
    records = [json.loads(line) for line in (run / "evals" / "test.jsonl").read_text().split("\n")[:-1]]
    lines = [
        json.dumps(record | {"id": problem.id, "answer": problem.answer}) + "\n"
        for record, problem in zip(records, problems, strict=True)
    ]
    (run / "evals" / "test.jsonl").write_text("".join(lines))
    summary = json.loads((run / "evals" / "test.json").read_text())
    new = {"split": "test", "task": "arithmetic", "task_hash": problems_hash(problems), "limit": 40}
    (run / "evals" / "test.json").write_text(json.dumps(summary | new | values))


@pytest.mark.parametrize(("values", "known"), [({}, True), ({"task_hash": "0" * 16}, False), ({"split": "?"}, False)])
def test_prompts_are_shown_only_when_they_are_those_that_were_asked(
    tmp_path: Path, values: dict[str, Any], known: bool
) -> None:
    for name, right in (("run-01", [1, 0] * 20), ("run-02", [0, 1] * 20)):
        asked(write_full_run(tmp_path, name, right), **values)
    (tmp_path / "run-02" / "run.json").write_text(json.dumps({"id": "run-02", "status": "completed", "seed": 1}))
    prompts = prompts_of(facts_of(tmp_path).control)
    texts = {problem.id: problem.prompt for problem in Arithmetic().problems("test")[:40]}
    assert prompts == (texts if known else {})


def test_a_prompt_in_the_results_is_taken_from_there(tmp_path: Path) -> None:
    for name, right, lr in (("run-01", [1, 0] * 20, 1e-6), ("run-02", [0, 1] * 20, 2e-6)):
        path = write_full_run(tmp_path, name, right, config={"optimizer.lr": lr}) / "evals" / "test.jsonl"
        lines = [json.loads(line) | {"prompt": f"ask {i}"} for i, line in enumerate(path.read_text().split("\n")[:-1])]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for flip in flips_of(facts_of(tmp_path)).won:
        assert flip.prompt == f"ask {flip.id[1:]}"


def test_problems_of_a_local_file_are_read_and_a_missing_one_is_no_error(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for split in ("train", "test"):
        rows = [{"id": f"{split}{i}", "prompt": f"{split} {i}?", "answer": str(i)} for i in range(300)]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = write_full_run(tmp_path / "runs", "run-01", [1, 0] * 20)
    config = json.loads((run / "config.json").read_text())
    from rlforge_cli.tasks.jsonl import jsonl_task

    problems = jsonl_task(folder, validation=50).problems("test")
    summary = json.loads((run / "evals" / "test.json").read_text())
    (run / "evals" / "test.json").write_text(json.dumps(summary | {"task_hash": problems_hash(problems)}))
    for path, count in ((str(folder), 300), (str(tmp_path / "gone"), 0), ("", 0)):
        data = {"data": {"task": "jsonl", "path": path, "validation": 50}}
        (run / "config.json").write_text(json.dumps(config | data))
        assert len(prompts_of(facts_of(tmp_path / "runs").control)) == count
