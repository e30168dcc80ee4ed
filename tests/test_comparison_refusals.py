"""Which results may not be compared, and runs as they are found on disk."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from comparison_files import SUMMARY, jsonl, lines, only_row, paired, versus, write_results, write_run

from rlforge_cli.errors import UserError

A, B = paired(60, 100)


# refusals


@pytest.mark.parametrize(
    ("summary", "reason"),
    [
        ({"split": "train"}, "run-02 is scored on training data"),
        ({"grader": "2"}, "graded by different versions (1 and 2): evaluate both again with this version"),
        ({"prompt_hash": "p1"}, "different prompts (p0 and p1): evaluate both with one prompt"),
        ({"task_hash": "t1"}, "different problems (t0 and t1): evaluate both again on the same ones"),
        ({"task": "svamp"}, "different tasks (gsm8k and svamp)"),
        (
            {"decoding": SUMMARY["decoding"] | {"temperature": 1.0}},
            "decoded differently (temperature 0.0 and 1.0)",
        ),
        (
            {"decoding": SUMMARY["decoding"] | {"max_tokens": 256}},
            "decoded differently (max_tokens 512 and 256)",
        ),
    ],
)
@pytest.mark.parametrize("scope", ["recipe", "checkpoint"])
def test_unlike_evaluations_are_refused(tmp_path: Path, summary: dict[str, Any], reason: str, scope: str) -> None:
    write_run(tmp_path, "run-01", A)
    write_run(tmp_path, "run-02", B, config={"rollout.group_size": 4}, summary=summary)
    row = only_row(tmp_path, "run-01", "run-02", scope=scope)
    assert row.verdict == "not_comparable"
    assert any(reason in text for text in row.reasons)
    assert (row.delta_pp, row.p, row.delta_ci95_pp, row.needed) == (None, None, None, None)
    assert row.accuracy == pytest.approx(990 / 1319)


def test_what_greedy_decoding_ignores_is_no_difference(tmp_path: Path) -> None:
    write_run(tmp_path, "run-01", A)
    other = SUMMARY["decoding"] | {"top_p": 0.9, "seed": 7}
    write_run(tmp_path, "run-02", B, config={"rollout.group_size": 4}, summary={"decoding": other})
    assert only_row(tmp_path, "run-01", "run-02", scope="checkpoint").verdict == "better"


def test_different_items_are_refused_with_counts(tmp_path: Path) -> None:
    a = write_results(tmp_path / "a.jsonl", [1] * 10)
    b = jsonl(tmp_path / "b.jsonl", *({"id": i, "correct": True} for i in range(3, 12)))
    row = only_row(tmp_path, str(a), b)
    assert row.verdict == "not_comparable"
    assert row.reasons[0].startswith("different items: 7 shared, 3 only in ")


def test_different_sample_counts_are_refused(tmp_path: Path) -> None:
    a = write_results(tmp_path / "a.jsonl", [1, 0, 1])
    b = jsonl(tmp_path / "b.jsonl", *({"id": i, "correct": True} for i in (0, 1, 2, 0, 1, 2)))
    row = only_row(tmp_path, str(a), b)
    assert row.reasons[0] == "different numbers of samples a problem (1 and 2)"


def test_different_gold_answers_are_refused(tmp_path: Path) -> None:
    a = jsonl(tmp_path / "a.jsonl", *({"id": i, "correct": True, "answer": "18"} for i in range(4)))
    b = jsonl(tmp_path / "b.jsonl", *({"id": i, "correct": True, "answer": "18" if i else "81"} for i in range(4)))
    assert only_row(tmp_path, a, b).reasons[0] == "gold answers differ on 1 items (first: '0')"


def test_one_problem_is_no_comparison(tmp_path: Path) -> None:
    a = write_results(tmp_path / "a.jsonl", [1])
    assert only_row(tmp_path, str(a), str(a)).verdict == "not_comparable"


# runs as they are found


@pytest.mark.parametrize(
    ("info", "reason"),
    [
        (
            {"status": "failed", "steps": 57, "reason": "OutOfMemoryError: 2 GiB"},
            "failed after 57 steps (OutOfMemoryError: 2 GiB): continue it with `rlforge train --resume run-02`",
        ),
        ({"status": "interrupted"}, "interrupted: continue it with"),
        ({"status": "running"}, "crashed: continue it with"),  # no process holds its lock
    ],
)
def test_a_run_that_did_not_finish_is_a_row(tmp_path: Path, info: dict[str, Any], reason: str) -> None:
    write_run(tmp_path, "run-01", A)
    write_run(tmp_path, "run-02", B, config={"grpo.kl_coef": 0.1}, info=info)
    row = only_row(tmp_path, "run-01", "run-02")
    assert row.verdict == "not_comparable"
    assert row.reasons[0].startswith(reason)
    at_checkpoint = only_row(tmp_path, "run-01", "run-02", scope="checkpoint")
    assert at_checkpoint.verdict == "better"
    assert any("this compares a checkpoint of it" in text for text in at_checkpoint.reasons)


def test_a_run_without_evaluation_is_a_row(tmp_path: Path) -> None:
    write_run(tmp_path, "run-01", A)
    write_run(tmp_path, "run-02", None, config={"grpo.kl_coef": 0.1})
    (tmp_path / "run-02" / "evals" / "validation.jsonl").write_text(lines(A))
    row = only_row(tmp_path, "run-01", "run-02")
    assert row.verdict == "not_comparable"
    assert "no evaluation 'test' (there is validation: --eval validation)" in row.reasons[0]
    assert row.accuracy is None


def test_a_control_without_evaluation_refuses_every_row(tmp_path: Path) -> None:
    write_run(tmp_path, "run-01", None)
    write_run(tmp_path, "run-02", B, config={"grpo.kl_coef": 0.1})
    result = versus(tmp_path, "run-01", "run-02")
    assert [row.verdict for row in result.rows] == ["not_comparable", "not_comparable"]
    assert result.rows[1].reasons[0].startswith("the control run-01 cannot be compared: no evaluation")


def test_damaged_files_are_warnings_and_never_tracebacks(tmp_path: Path) -> None:
    write_run(tmp_path, "run-01", A, metrics='{"step": 1, "adv_std": 0.9}\n{"step": 2, "adv')
    run = write_run(tmp_path, "run-02", B, config={"grpo.kl_coef": 0.1})
    (run / "config.json").write_text('{"rollout": {"gro')
    (run / "run.json").write_text("[]")
    with open(run / "evals" / "test.jsonl", "a") as file:
        file.write('{"id": "q1319", "corr')
    result = versus(tmp_path, "run-01", "run-02")
    assert result.rows[1].delta_pp == pytest.approx(3.0326, abs=1e-4)
    assert result.rows[0].mechanism.adv_std == 0.9
    warnings = "\n".join(result.warnings)
    assert "1 incomplete line ignored in run-01 (metrics.jsonl)" in warnings
    assert "1 incomplete line ignored in run-02 (evals/test.jsonl)" in warnings
    assert "config.json: unreadable and ignored" in warnings
    assert "run.json: not a JSON object" in warnings


def test_results_torn_among_samples_are_a_row(tmp_path: Path) -> None:
    write_run(tmp_path, "run-01", A)
    run = write_run(tmp_path, "run-02", None, config={"grpo.kl_coef": 0.1})
    (run / "evals" / "test.jsonl").write_text(lines([1, 0]) + lines([1, 1])[:-60])
    row = only_row(tmp_path, "run-01", "run-02")
    assert row.verdict == "not_comparable"
    assert "(1 incomplete lines)" in row.reasons[0]


def test_unknown_names_are_errors_with_the_nearest(tmp_path: Path) -> None:
    write_run(tmp_path, "run-01", A)
    (tmp_path / "notes").mkdir()
    with pytest.raises(UserError, match=r"'run-1' is neither a run in .* nor a file \(did you mean 'run-01'\?\)"):
        versus(tmp_path, "run-01", "run-1")
    with pytest.raises(UserError, match="a folder, but not a run"):
        versus(tmp_path, "run-01", str(tmp_path / "notes"))
    with pytest.raises(UserError, match="at least one other"):
        versus(tmp_path, "run-01")


@pytest.mark.parametrize(
    "options",
    [
        {"margin": 0.0},
        {"margin": 1e-300},
        {"margin": math.inf},
        {"alpha": 1e-20},
        {"alpha": 0.5},
        {"alpha": 0.0},
        {"grader_error": -1.0},
        {"seed_sd": math.nan},
    ],
)
def test_options_out_of_range_are_errors(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"^--"):
        versus(tmp_path, "run-01", "run-02", **options)
