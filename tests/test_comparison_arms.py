"""Which runs make an arm, and the seed noise between them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from comparison_files import SUMMARY, bits, only_row, paired, versus, write_results, write_run

from rlforge_cli.errors import UserError

A, B = paired(60, 100)


# arms


def seeds(runs: Path, first: int, rows: str, **config: Any) -> None:
    for seed, text in enumerate(rows.split()):
        write_run(runs, f"run-{first + seed:02d}", bits(text), seed=seed, config=config)


def test_siblings_join_an_arm_at_recipe_scope(tmp_path: Path) -> None:
    seeds(tmp_path, 1, "11110010 11100110 11010010")
    seeds(tmp_path, 4, "11111010 11110111 11111010", **{"rollout.group_size": 16})
    result = versus(tmp_path, "run-01", "run-05")
    assert result.rows[0].runs == ["run-01", "run-02", "run-03"]
    row = result.rows[1]
    assert row.runs == ["run-05", "run-04", "run-06"]
    assert row.n_seeds == 3
    assert row.delta_pp == pytest.approx(20.8333, abs=5e-5)
    assert row.delta_ci95_pp == pytest.approx((-1.50, 43.17), abs=0.005)
    assert row.changes == [{"key": "rollout.group_size", "from": 8, "to": 16}]
    assert only_row(tmp_path, "run-01", "run-05", scope="checkpoint").n_seeds == 1


def test_labels_and_tracking_do_not_split_an_arm(tmp_path: Path) -> None:
    write_run(tmp_path, "run-01", A)
    write_run(tmp_path, "run-02", A[::-1], seed=1, config={"run.note": "again", "log.sinks": ["wandb"]})
    write_run(tmp_path, "run-03", B, seed=1, config={"optimizer.lr": 2e-6})
    result = versus(tmp_path, "run-01", "run-03")
    assert result.rows[0].runs == ["run-01", "run-02"]
    assert result.rows[1].runs == ["run-03"]


@pytest.mark.parametrize(
    ("kwargs", "why"),
    [
        ({"seed": 0}, "it repeats seed 0 of run-01"),
        ({"seed": 1, "info": {"status": "failed"}}, "failed"),
        ({"seed": 1, "summary": {"grader": "2"}}, "graded by different versions"),
    ],
)
def test_a_sibling_that_does_not_fit_is_left_out_with_a_note(tmp_path: Path, kwargs: dict[str, Any], why: str) -> None:
    write_run(tmp_path, "run-01", A)
    write_run(tmp_path, "run-02", A, **kwargs)
    write_run(tmp_path, "run-03", B, config={"optimizer.lr": 2e-6})
    control = versus(tmp_path, "run-01", "run-03").rows[0]
    assert control.n_seeds == 1
    assert any("run-02 is left out of the arm of run-01" in text and why in text for text in control.reasons)


def test_a_seed_of_the_control_is_no_other_recipe(tmp_path: Path) -> None:
    write_run(tmp_path, "run-01", A)
    write_run(tmp_path, "run-02", B, seed=1)
    result = versus(tmp_path, "run-01", "run-02")
    assert result.rows[0].n_seeds == 2
    assert result.rows[1].verdict == "not_comparable"
    assert "the same configuration as run-01 but for the seed" in result.rows[1].reasons[0]
    assert only_row(tmp_path, "run-01", "run-02", scope="checkpoint").verdict == "better"


def test_a_run_against_itself(tmp_path: Path) -> None:
    write_run(tmp_path, "run-01", A)
    row = only_row(tmp_path, "run-01", "run-01")
    assert (row.delta_pp, row.p, row.verdict) == (0.0, 1.0, "no_material_difference")
    assert any("same checkpoint?" in text for text in row.reasons)


def test_commas_spell_out_an_arm(tmp_path: Path) -> None:
    files = {"a": "11110010 11100110 11010010", "b": "11111010 11110111 11111010"}
    names = []
    for name, rows in files.items():
        paths = [write_results(tmp_path / f"{name}{i}.jsonl", bits(row)) for i, row in enumerate(rows.split())]
        names.append(",".join(map(str, paths)))
    row = only_row(tmp_path, *names)
    assert row.n_seeds == 3
    assert row.delta_ci95_pp == pytest.approx((-1.50, 43.17), abs=0.005)
    assert any("measured on the 3 and 3 runs compared" in text for text in row.reasons)


def test_commas_leave_siblings_out(tmp_path: Path) -> None:
    """`seeds` confirms a winner without the run that won."""
    seeds(tmp_path, 1, "11110010 11100110")
    seeds(tmp_path, 3, "11111010 11110111 11111010", **{"rollout.group_size": 16})
    assert versus(tmp_path, "run-01", "run-04,run-05").rows[1].runs == ["run-04", "run-05"]


def test_a_trailing_comma_is_an_arm_of_one(tmp_path: Path) -> None:
    """One fresh seed of a winner, without the run that won."""
    seeds(tmp_path, 1, "11110010 11100110")
    seeds(tmp_path, 3, "11111010 11110111 11111010", **{"rollout.group_size": 16})
    result = versus(tmp_path, "run-01", "run-04,")
    assert result.rows[0].runs == ["run-01", "run-02"]
    row = result.rows[1]
    assert (row.run, row.runs, row.n_seeds) == ("run-04", ["run-04"], 1)
    assert row.changes == [{"key": "rollout.group_size", "from": 8, "to": 16}]
    assert [row.runs for row in versus(tmp_path, "run-01,", "run-02,").rows] == [["run-01"], ["run-02"]]


def test_a_run_is_not_on_both_sides(tmp_path: Path) -> None:
    seeds(tmp_path, 1, "11110010 11100110 11010010")
    row = only_row(tmp_path, "run-01", "run-02,run-03")
    assert (row.verdict, row.reasons[0]) == ("not_comparable", "on both sides: run-02, run-03")


def test_a_long_list_of_unknown_runs_is_a_user_error(tmp_path: Path) -> None:
    write_run(tmp_path, "run-01", A)
    with pytest.raises(UserError, match="'run-90' is neither"):
        versus(tmp_path, "run-01", ",".join(f"run-9{i}" for i in range(60)))
    with pytest.raises(UserError, match=r"',' names no run: .* run-11, \(with its comma\) of one"):
        versus(tmp_path, "run-01", ",")
    with pytest.raises(UserError, match="is neither"):
        versus(tmp_path, "run-01", "x" * 5000)


def test_equal_answers_under_two_seeds_are_noticed(tmp_path: Path) -> None:
    write_run(tmp_path, "run-01", A)
    write_run(tmp_path, "run-02", A, seed=1)
    write_run(tmp_path, "run-03", B, config={"optimizer.lr": 2e-6})
    control = versus(tmp_path, "run-01", "run-03").rows[0]
    assert any("run-02 answered every item as run-01 did" in text for text in control.reasons)


# seed noise


def test_the_prior_alone_is_a_z_test(tmp_path: Path) -> None:
    write_run(tmp_path, "run-01", A)
    write_run(tmp_path, "run-02", B, config={"optimizer.lr": 2e-6})
    result = versus(tmp_path, "run-01", "run-02")
    assert result.seed_sd_pp == pytest.approx(1.53)
    assert result.seed_sd_source == "prior 1.53 pp worth 6 df, no seeds measured"
    assert result.rows[1].delta_ci95_pp == pytest.approx((-1.60, 7.67), abs=0.005)


def test_seeds_of_other_arms_on_disk_are_pooled(tmp_path: Path) -> None:
    write_run(tmp_path, "run-01", A)
    write_run(tmp_path, "run-02", B, config={"optimizer.lr": 2e-6})
    for seed, right in enumerate((900, 940, 980)):
        vector = [1] * right + [0] * (1319 - right)
        write_run(tmp_path, f"run-1{seed}", vector, seed=seed, config={"grpo.kl_coef": 0.01})
        write_run(tmp_path, f"run-2{seed}", vector, seed=seed, config={"grpo.kl_coef": 0.1}, summary={"task": "svamp"})
    result = versus(tmp_path, "run-01", "run-02")
    spread = (40 / 1319) ** 2 * 2  # squares about the mean of three equally spaced scores
    sd = math.sqrt((6 * 0.0153**2 + spread) / 8)
    assert result.seed_sd_pp == pytest.approx(100 * sd)
    assert result.seed_sd_source == "prior 1.53 pp worth 6 df, pooled with 3 runs of 1 arm of this task"
    half = 2.306004 * math.sqrt(2 * sd**2 + 0.0095623**2)  # t of 8 df
    assert result.rows[1].delta_ci95_pp == pytest.approx((3.0326 - 100 * half, 3.0326 + 100 * half), abs=2e-3)


def test_seed_sd_can_be_given(tmp_path: Path) -> None:
    write_run(tmp_path, "run-01", A)
    write_run(tmp_path, "run-02", B, config={"optimizer.lr": 2e-6})
    result = versus(tmp_path, "run-01", "run-02", seed_sd=0.0)
    assert (result.seed_sd_pp, result.seed_sd_source) == (0.0, "--seed-sd")
    assert result.rows[1].verdict == "better"
    assert result.rows[1].tipping_items is not None


def test_checkpoint_scope_has_no_seed_noise(tmp_path: Path) -> None:
    a, b = write_results(tmp_path / "a.jsonl", A), write_results(tmp_path / "b.jsonl", B)
    result = versus(tmp_path, str(a), str(b), scope="checkpoint")
    assert (result.seed_sd_pp, result.seed_sd_source) == (None, None)


# scores without problems


def test_seeds_without_problems_are_compared_as_numbers(tmp_path: Path) -> None:
    for name, scores in (("a", (0.7020, 0.7149, 0.6914)), ("b", (0.7415, 0.7483, 0.7293))):
        for seed, score in enumerate(scores):
            lr = 1e-6 if name == "a" else 2e-6
            run = write_run(tmp_path, f"{name}{seed}", None, seed=seed, config={"optimizer.lr": lr})
            (run / "evals" / "test.json").write_text(json.dumps(SUMMARY | {"accuracy": score, "n": 1319}))
    row = only_row(tmp_path, "a0", "b0")
    assert row.p == pytest.approx(0.01476, abs=5e-6)
    assert row.delta_ci95_pp == pytest.approx((1.22, 6.17), abs=0.005)
    assert row.verdict == "better"


def test_one_summary_each_is_refused_but_by_the_simple_rule(tmp_path: Path) -> None:
    for name, score in (("a", 0.579), ("b", 0.539)):
        (tmp_path / f"{name}.json").write_text(json.dumps(SUMMARY | {"accuracy": score, "n": 1319}))
    names = (str(tmp_path / "a.json"), str(tmp_path / "b.json"))
    row = only_row(tmp_path, *names)
    assert row.verdict == "not_comparable"
    assert row.reasons[0].startswith("not paired: ")
    simple = only_row(tmp_path, *names, rule="simple")
    assert (simple.verdict, simple.p) == ("worse", None)
    assert simple.delta_pp == pytest.approx(-4.0)


@pytest.mark.parametrize("scope", ["checkpoint", "recipe"])
def test_few_equal_answers_are_no_evidence_of_equal_recipes(tmp_path: Path, scope: str) -> None:
    write_run(tmp_path, "run-01", [1, 0] * 5)
    write_run(tmp_path, "run-02", [1, 0] * 5, config={"optimizer.lr": 2e-6})
    row = only_row(tmp_path, "run-01", "run-02", scope=scope)
    assert row.verdict == "inconclusive"
    assert row.delta_ci90_pp[1] > 25
    wide = only_row(tmp_path, "run-01", "run-02", scope=scope, margin=60)
    assert wide.verdict == "no_material_difference"
    assert wide.delta_ci95_pp[1] <= 100


def test_a_narrow_interval_of_few_differing_problems_is_not_enough(tmp_path: Path) -> None:
    both, neither = [1] * 55, [0] * 54
    write_run(tmp_path, "run-01", [*both, 0, *neither])
    write_run(tmp_path, "run-02", [*both, 1, *neither], config={"optimizer.lr": 2e-6})
    row = only_row(tmp_path, "run-01", "run-02", scope="checkpoint")
    assert row.delta_ci90_pp[1] < 4
    assert row.verdict == "inconclusive"
    assert any("lies inside the margin, but too few problems differ" in reason for reason in row.reasons)


def test_a_recipe_is_not_better_where_its_checkpoints_do_not_differ(tmp_path: Path) -> None:
    write_run(tmp_path, "run-01", [0] * 5)
    write_run(tmp_path, "run-02", [1] * 5, config={"optimizer.lr": 2e-6})
    row = only_row(tmp_path, "run-01", "run-02")
    assert row.verdict == "inconclusive"
    assert row.p == pytest.approx(0.0625)  # McNemar's, of five exclusive wins
    assert row.delta_ci95_pp[0] > 0
    assert any("but the exact test does not (p = 0.0625)" in reason for reason in row.reasons)


def test_what_is_detectable_is_said_of_two_checkpoints_whatever_the_seeds(tmp_path: Path) -> None:
    a, b = paired(60, 100)
    write_run(tmp_path, "run-01", a)
    write_run(tmp_path, "run-03", b, config={"optimizer.lr": 2e-6})
    one = only_row(tmp_path, "run-01", "run-03").detectable_pp
    write_run(tmp_path, "run-02", a, seed=1)
    write_run(tmp_path, "run-04", b, seed=1, config={"optimizer.lr": 2e-6})
    two = only_row(tmp_path, "run-01", "run-03")
    assert two.n_seeds == 2
    assert two.detectable_pp == pytest.approx(one)
