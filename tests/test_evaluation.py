from __future__ import annotations

import json
from pathlib import Path

import pytest
from toys import ScriptedEngine, ToyTask

from rlforge_cli.config import PromptConfig
from rlforge_cli.errors import UserError
from rlforge_cli.evaluation import Result, evaluate, summarize
from rlforge_cli.prompts import PromptEncoder
from rlforge_cli.rollouts import SamplingParams
from rlforge_cli.scoring import agreement, store
from rlforge_cli.tasks.grading import grade_number


def results(rows: list[list[int]], *, strict: bool = False) -> list[Result]:
    """``rows[i]`` are the right (1) and wrong (0) samples of problem i."""
    return [
        Result(f"p{i}", bool(right), bool(right) and strict, None, "1", "", False, 3, False)
        for i, row in enumerate(rows)
        for right in row
    ]


def test_strict_and_flexible_scores_stand_apart():
    rows = []
    for text in ("#### 5", "The answer is 5.", "\\boxed{5}", "#### 6"):
        grade = grade_number(text, "5")
        rows.append(
            Result(text, grade.correct, grade.correct_strict, grade.prediction, "5", text, False, 3, grade.format_ok)
        )
    summary = summarize(rows)
    assert (summary["accuracy"], summary["accuracy_strict"]) == (0.75, 0.25)


def test_wilson_interval_of_one_sample_a_problem():
    summary = summarize(results([[1]] * 990 + [[0]] * 329))
    assert summary["ci95"] == pytest.approx([0.72651, 0.77317], abs=5e-6)
    assert summary["n"] == 1319


def test_standard_error_is_over_problems_not_samples():
    summary = summarize(results([[1] * 4, [1] * 4, [0] * 4, [0] * 4]), k=[1, 2])
    assert summary["accuracy"] == 0.5
    assert summary["se"] == pytest.approx(0.288675, abs=1e-6)
    assert summary["pass_at_k"] == {"1": 0.5, "2": 0.5}


def test_pass_at_k_counts_samples_of_a_problem_and_needs_enough_of_them():
    summary = summarize(results([[1]] * 50 + [[0]] * 114), k=[1, 10])
    assert summary["pass_at_k"] == {"1": pytest.approx(0.304878, abs=1e-6)}
    four = summarize(results([[1, 0, 0, 0], [0, 0, 0, 0]]), k=[1, 2, 4])
    assert four["pass_at_k"] == pytest.approx({"1": 0.125, "2": 0.25, "4": 0.5})


def test_one_problem_says_nothing_about_others():
    summary = summarize(results([[1, 0, 1, 1]]))
    assert (summary["accuracy"], summary["ci95"], summary["se"]) == (0.75, [0.0, 1.0], None)


def test_the_interval_of_several_samples_is_over_problems():
    # means 1, 1, 0, 0: t with 3 degrees of freedom, 3.182 x .288675 = .919, cut to 0..1
    assert summarize(results([[1] * 4, [1] * 4, [0] * 4, [0] * 4]))["ci95"] == [0.0, 1.0]
    many = summarize(results([[1, 1]] * 50 + [[0, 0]] * 50))
    assert many["ci95"] == pytest.approx([0.5 - 1.98422 * 0.0502519, 0.5 + 1.98422 * 0.0502519], abs=1e-5)


def test_unequal_samples_or_none_are_refused():
    with pytest.raises(UserError, match="different numbers"):
        summarize(results([[1], [1, 0]]))
    with pytest.raises(UserError, match="no results"):
        summarize([])


def test_problems_are_asked_in_order_and_progress_is_told():
    engine = ScriptedEngine(lambda call, group, sample: [group % 10, 16])
    task = ToyTask(7)
    told: list[int] = []
    made = evaluate(
        engine,
        task=task,
        encoder=PromptEncoder(engine_tokenizer(), PromptConfig(), max_tokens=9),
        problems=task.problems("test"),
        params=SamplingParams(max_tokens=4, temperature=0.0),
        chunk=3,
        progress=told.append,
    )
    assert [r.id for r in made] == [p.id for p in task.problems("test")]
    assert all(r.correct and r.tokens == 2 and not r.truncated for r in made)
    assert told == [3, 6, 7]


def engine_tokenizer():
    from toys import ToyTokenizer

    return ToyTokenizer()


def test_agreement_counts_what_changed():
    first, second = results([[1], [1], [0], [0]]), results([[1], [0], [1], [1]])
    assert agreement(first, second) == {
        "accuracy": 0.75, "different_completions": 0, "flipped_to_wrong": 1, "flipped_to_right": 2, "n": 4,
    }  # fmt: skip


def test_results_are_written_whole_and_readable():
    store(results([[1], [0]]), {"accuracy": 0.5}, Path("evals/test.jsonl"))
    lines = [json.loads(line) for line in Path("evals/test.jsonl").read_text().splitlines()]
    assert [(line["id"], line["correct"]) for line in lines] == [("p0", True), ("p1", False)]
    keys = {"id", "correct", "correct_strict", "prediction", "answer", "completion", "truncated", "tokens"}
    assert keys <= set(lines[0])
    assert json.loads(Path("evals/test.json").read_text()) == {"accuracy": 0.5}
    assert sorted(path.name for path in Path("evals").iterdir()) == ["test.json", "test.jsonl"]
