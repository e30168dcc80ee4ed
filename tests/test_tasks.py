from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlforge_cli.config import DataConfig
from rlforge_cli.errors import UserError
from rlforge_cli.tasks.base import SPLITS, Problem, problems_hash
from rlforge_cli.tasks.registry import load_task
from rlforge_cli.tasks.splits import hold_out


def write(path: Path, rows: list) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), encoding="utf-8"
    )
    return path


def jsonl(path: Path, **options):
    return load_task(DataConfig(task="jsonl", path=str(path), **options))


def many(count: int, start: int = 0) -> list[dict]:
    return [{"prompt": f"what is {i}?", "answer": i} for i in range(start, start + count)]


def test_one_file_is_split_by_a_rank_that_order_does_not_change():
    a = jsonl(write(Path("a.jsonl"), many(100)), validation=10)
    b = jsonl(write(Path("b/a.jsonl"), many(100)[::-1]), validation=10)
    for split in SPLITS:
        assert {p.id for p in a.problems(split)} == {p.id for p in b.problems(split)}
    prompts = [{p.prompt for p in a.problems(split)} for split in SPLITS]
    assert [len(part) for part in prompts] == [70, 10, 20]
    assert len(set().union(*prompts)) == 100


def test_a_prompt_of_test_is_left_out_of_train():
    write(Path("d/train.jsonl"), many(30))
    write(Path("d/test.jsonl"), many(10, start=25))
    task = jsonl(Path("d"), validation=5)
    train, held, test = ({p.prompt for p in task.problems(split)} for split in SPLITS)
    assert (len(train), len(held), len(test)) == (20, 5, 10)
    assert not train & held
    assert not train & test
    assert not held & test


def test_problems_that_differ_in_white_space_alone_are_one():
    write(Path("d/train.jsonl"), many(30))
    write(Path("d/test.jsonl"), [{"prompt": f" what  is\n{i}? ", "answer": i} for i in range(25, 35)])
    task = jsonl(Path("d"), validation=5)
    train, held, test = ({" ".join(p.prompt.split()) for p in task.problems(split)} for split in SPLITS)
    assert (len(train), len(held), len(test)) == (20, 5, 10)
    assert not test & (train | held)


def test_a_given_validation_file_is_used():
    write(Path("d/train.jsonl"), many(30))
    write(Path("d/test.jsonl"), many(10, start=100))
    write(Path("d/validation.jsonl"), many(20, start=200))
    held = jsonl(Path("d"), validation=50).problems("validation")
    assert {p.prompt for p in held} == {f"what is {i}?" for i in range(200, 220)}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("not json", "a.jsonl:2: not valid JSON"),
        ("[1]", "a.jsonl:2: expected a JSON object"),
        ({"answer": "1"}, "a.jsonl:2: needs a text 'prompt'"),
        ({"prompt": "x"}, "a.jsonl:2: needs a non-empty 'answer'"),
        ({"prompt": "x", "answer": ""}, "a.jsonl:2: needs a non-empty 'answer'"),
        ({"prompt": " ", "answer": "1"}, "a.jsonl:2: needs a text 'prompt'"),
        ("[" * 100_000, "a.jsonl:2: nested too deeply"),
        ({"prompt": "a\ud800b", "answer": "1"}, r"a.jsonl:2: holds '\\ud800', half of a surrogate pair"),
        ({"prompt": "x", "answer": "\udfff"}, r"a.jsonl:2: holds '\\udfff'"),
        ({"prompt": "x", "answer": "1", "id": "\udc00"}, r"a.jsonl:2: holds '\\udc00'"),
        ({"prompt": "x", "answer": True}, "a.jsonl:2: needs a non-empty 'answer'"),
    ],
)
def test_a_bad_line_names_file_and_line(row, message):
    with pytest.raises(UserError, match=message):
        jsonl(write(Path("a.jsonl"), [many(1)[0], row]))


def test_an_id_that_stands_twice_is_refused():
    rows = [{"id": 1, "prompt": "x", "answer": "1"}, {"id": 1, "prompt": "y", "answer": "1"}]
    with pytest.raises(UserError, match=r"a\.jsonl:2: id '1' stands twice"):
        jsonl(write(Path("a.jsonl"), rows))


def test_line_separators_stay_inside_a_text():
    rows = [{"prompt": f"a\u2028b\u0085 {i}", "answer": "1"} for i in range(20)]
    path = Path("a.jsonl")
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    assert sum(len(jsonl(path, validation=4).problems(split)) for split in SPLITS) == 20


@pytest.mark.parametrize(
    ("content", "message"), [(b"\xff\xfe", "not UTF-8"), (b"", "holds no problems"), (b"\n\n", "holds no problems")]
)
def test_a_file_that_is_no_text_or_empty(content, message):
    Path("a.jsonl").write_bytes(content)
    with pytest.raises(UserError, match=message):
        jsonl(Path("a.jsonl"))


def test_too_few_problems_for_three_splits():
    with pytest.raises(UserError, match=r"no train problems.*data\.validation"):
        jsonl(write(Path("a.jsonl"), many(10)), validation=50)


@pytest.mark.parametrize(
    ("task", "nearest"), [("gms8k", "gsm8k"), ("arithmetics", "arithmetic"), ("", "arithmetic, gsm8k")]
)
def test_an_unknown_task_names_the_nearest(task, nearest):
    with pytest.raises(UserError, match=nearest):
        load_task(DataConfig(task=task))


def test_gsm8k_gold_without_a_number_names_the_line():
    write(Path("g/train.jsonl"), [{"question": "q", "answer": "no number here"}])
    write(Path("g/test.jsonl"), [{"question": "q", "answer": "#### 1"}])
    with pytest.raises(UserError, match=r"train\.jsonl:1: .*number"):
        load_task(DataConfig(task="gsm8k", path="g"))


def test_gsm8k_without_network_says_how_to_give_a_folder():
    with pytest.raises(UserError, match=r"--set data\.path=FOLDER") as caught:
        load_task(DataConfig(task="gsm8k"))
    assert "\n" not in str(caught.value)


def test_gsm8k_as_published(gsm8k):
    task = load_task(DataConfig(task="gsm8k", path=str(gsm8k), validation=400))
    sizes = {split: len(task.problems(split)) for split in SPLITS}
    assert sizes["test"] == 1319
    assert sizes["validation"] == 400
    assert 7060 <= sizes["train"] <= 7473 - 400
    prompts = [{p.prompt for p in task.problems(split)} for split in SPLITS]
    assert not prompts[0] & prompts[1]
    assert not prompts[0] & prompts[2]
    assert not prompts[1] & prompts[2]
    first = task.problems("test")[0]
    assert (first.id, first.answer) == ("gsm8k-test-0000", "18")
    assert task.grade("So she makes $18.\n#### 18", first).correct_strict


def test_hash_is_of_ids_prompts_and_answers_in_order():
    a, b = Problem("a", "x", "1"), Problem("b", "y", "2")
    assert problems_hash([a, b]) == problems_hash([Problem("a", "x", "1"), b])
    different = ([a, b], [b, a], [a], [Problem("a", "x", "2"), b], [Problem("a", "x1", ""), b])
    assert len({problems_hash(problems) for problems in different}) == 5


def test_validation_does_not_depend_on_the_order_of_train():
    problems = [Problem(str(i), f"q{i}", "1") for i in range(50)]
    splits = [hold_out(p, problems[:5], validation=7, task="t") for p in (problems, problems[::-1])]
    assert splits[0]["validation"] == splits[1]["validation"]


def test_reasoning_gym_generators_and_scorers():
    pytest.importorskip("reasoning_gym")
    task = load_task(DataConfig(task="gym:basic_arithmetic", validation=50))
    problem = task.problems("test")[0]
    assert task.grade(f"thinking\n#### {problem.answer}", problem).correct_strict
    assert not task.grade("#### 123456789", problem).correct
    assert not task.grade("", problem).correct
    assert not {p.prompt for p in task.problems("train")} & {p.prompt for p in task.problems("test")}
    with pytest.raises(UserError, match="basic_arithmetic"):
        load_task(DataConfig(task="gym:basic_arithmetics"))
