from __future__ import annotations

import json

import msgspec
import pytest

from rlforge_cli import difficulty, settings
from rlforge_cli.config import Config, DataConfig
from rlforge_cli.errors import UserError
from rlforge_cli.tasks.base import Problem

PROBLEMS = [Problem(f"p{i}", f"{i}+1=?", str(i + 1)) for i in range(6)]


@pytest.fixture
def results(tmp_path):
    """p0 is never right, p1 in 1 of 4, p2 in 2, p3 in 3, p4 always; p5 was not measured."""
    path = tmp_path / "train-x4.jsonl"
    lines = [{"id": f"p{i}", "correct": sample < i} for i in range(5) for sample in range(4)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def chosen(band, path):
    return [p.id for p in difficulty.chosen(PROBLEMS, DataConfig(difficulty=band, difficulty_from=str(path)))]


@pytest.mark.parametrize(
    ("band", "ids"),
    [("0.1-0.9", ["p1", "p2", "p3"]), ("0.25-0.5", ["p1", "p2"]), ("0-1", ["p0", "p1", "p2", "p3", "p4"])],
)
def test_the_band_includes_its_bounds_and_keeps_the_order(results, band, ids):
    assert chosen(band, results) == ids


def test_without_a_band_everything_is_trained_on():
    assert difficulty.chosen(PROBLEMS, DataConfig()) == PROBLEMS


@pytest.mark.parametrize("text", ["0.9-0.1", "0.1", "a-b", "0.1-1.5", "-0.1-0.5", ""])
def test_bands_that_cannot_be_meant(text):
    with pytest.raises(UserError, match=r"such as 0\.1-0\.9"):
        difficulty.band(text)


def test_results_of_other_problems_under_the_same_ids_are_refused(tmp_path):
    path = tmp_path / "train-x4.jsonl"
    lines = [{"id": f"p{i}", "correct": bool(i % 2), "answer": str(i + 1)} for i in range(5)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    assert chosen("0.5-1", path) == ["p1", "p3"]
    lines[3]["answer"] = "999"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    with pytest.raises(UserError, match="the answer of p3 is '999', here '4'"):
        chosen("0.5-1", path)


def test_a_band_without_problems_says_why(results, tmp_path):
    with pytest.raises(UserError, match="5 of 6 train problems were measured and none lies in it"):
        chosen("0.6-0.7", results)
    other = tmp_path / "other.jsonl"
    other.write_text('{"id": "x", "correct": true}\n', encoding="utf-8")
    with pytest.raises(UserError, match="none of this task's train problems"):
        chosen("0.1-0.9", other)
    other.write_text('{"id": 3}\n', encoding="utf-8")
    with pytest.raises(UserError, match="rlforge eval RUN --split train"):
        chosen("0.1-0.9", other)
    with pytest.raises(UserError, match="no such file"):
        chosen("0.1-0.9", tmp_path / "absent.jsonl")


@pytest.mark.parametrize("key", ["data.difficulty=0.1-0.9", "data.difficulty_from=x.jsonl"])
def test_both_keys_go_together(key):
    with pytest.raises(UserError, match="set both"):
        settings.load("tiny-arith", sets=[key])


def test_the_band_is_one_change_and_the_file_none(results):
    config = settings.load("tiny-arith", sets=["data.difficulty=0.1-0.9", f"data.difficulty_from={results}"])
    control = settings.load("tiny-arith")
    assert [change["key"] for change in settings.changes(control, config)] == ["data.difficulty"]
    watched = msgspec.structs.replace(
        control, train=msgspec.structs.replace(control.train, stop_on_collapse=True)
    )  # fmt: skip
    assert settings.changes(control, watched) == []
    assert Config().train.stop_on_collapse is False
