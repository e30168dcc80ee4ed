from __future__ import annotations

import random
import re
import subprocess
import sys

import pytest

from rlforge_cli.errors import UserError
from rlforge_cli.tasks.arithmetic import LARGEST, Arithmetic, split_of, stream
from rlforge_cli.tasks.base import SPLITS, problems_hash

HASHES = {"train": "5b7584847f337e75", "validation": "6ba4532b6218ce82", "test": "bd6ae463dcfd8564"}


@pytest.fixture(scope="module")
def task() -> Arithmetic:
    return Arithmetic()


@pytest.mark.parametrize("split", SPLITS)
def test_problems_are_pinned(task, split):
    assert problems_hash(task.problems(split)) == HASHES[split]
    assert problems_hash(Arithmetic().problems(split)) == HASHES[split]


def test_sizes_and_disjoint_distinct_splits(task):
    prompts = {split: [problem.prompt for problem in task.problems(split)] for split in SPLITS}
    assert {split: len(rows) for split, rows in prompts.items()} == {"train": 8000, "validation": 500, "test": 1000}
    every = [prompt for rows in prompts.values() for prompt in rows]
    assert len(set(every)) == len(every) == 9500
    assert all(split_of(prompt) == split for split, rows in prompts.items() for prompt in rows)


def test_ids_are_unique_and_keep_their_problem_when_a_split_grows(task):
    small, large = Arithmetic(test=10).problems("test"), task.problems("test")
    assert small == large[:10]
    assert small[0].id == "arith-test-0001"
    ids = [problem.id for split in SPLITS for problem in task.problems(split)]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("split", SPLITS)
def test_every_answer_is_the_value_of_its_expression(task, split):
    for problem in task.problems(split):
        match = re.fullmatch(r"(\d{1,2}(?:[+-]\d{1,2}){1,4})=\?", problem.prompt)
        assert match, problem.prompt
        assert str(eval(match[1])) == problem.answer


def test_every_intermediate_stays_in_range(task):
    for problem in task.problems("test"):
        value = 0
        for term in re.findall(r"[+-]?\d+", problem.prompt):
            value += int(term)
            assert 0 <= value <= LARGEST


def test_number_of_operations_has_the_stated_probabilities():
    pairs = stream("train", random.Random(5))
    counts = [0] * 5
    for _ in range(10_000):
        counts[len(re.findall("[+-]", next(pairs)[0]))] += 1
    assert [count / 10_000 for count in counts[1:]] == pytest.approx([0.10, 0.25, 0.35, 0.30], abs=0.02)


@pytest.mark.parametrize(
    ("completion", "correct", "strict"),
    [
        ("{steps}\n#### {answer}", True, True),
        ("{steps}\n## {answer}", True, False),
        ("{steps}\n#### 100", False, False),
        ("", False, False),
    ],
)
def test_grades(task, completion, correct, strict):
    for problem in task.problems("validation")[:50]:
        text = completion.format(steps=problem.prompt.replace("?", problem.answer), answer=problem.answer)
        grade = task.grade(text, problem)
        assert (grade.correct, grade.correct_strict, grade.error) == (correct, strict, None)


def test_grader_version_is_the_number_graders(task):
    from rlforge_cli.tasks.grading import GRADER_VERSION

    assert task.grader_version == GRADER_VERSION


def test_a_caller_cannot_change_the_problems(task):
    task.problems("test").clear()
    assert len(task.problems("test")) == 1000


@pytest.mark.parametrize("sizes", [{"train": 0}, {"validation": -1}, {"test": 20_001}])
def test_a_size_out_of_range_is_refused(sizes):
    with pytest.raises(UserError, match=r"out of range: give 1 to \d+"):
        Arithmetic(**sizes)


def test_an_unknown_split_is_refused(task):
    with pytest.raises(UserError, match="no split 'dev': use train, validation, test"):
        task.problems("dev")


def test_building_the_task_does_not_import_torch():
    code = (
        "import sys; from rlforge_cli.tasks.arithmetic import Arithmetic; Arithmetic().problems('train'); "
        "sys.exit(sum(m in sys.modules for m in ('torch', 'transformers', 'numpy')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
