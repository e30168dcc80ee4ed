"""Every number that the method states, at the precision it is stated with, as `rlforge` prints it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from comparison_files import SUMMARY, bits, jsonl, paired, write_results, write_run
from toys import ScriptedEngine, ToyTask, ToyTokenizer
from typer.testing import CliRunner

from rlforge_cli.__main__ import app, register
from rlforge_cli.errors import UserError

N = 1319
NO_POSITIONS = SimpleNamespace(config=None)


def rlforge(*words: object) -> str:
    if not app.registered_commands:
        register()
    done = CliRunner().invoke(app, [str(word) for word in words])
    if done.exception is not None:
        raise done.exception
    return done.stdout


def compared(*words: object) -> list[dict[str, Any]]:
    """The rows, the control's first."""
    rows: list[dict[str, Any]] = json.loads(rlforge("compare", *words, "--json"))["rows"]
    return rows


def pair(tmp_path: Path, only_a: int, only_b: int) -> tuple[Path, Path]:
    a, b = paired(only_a, only_b)
    return write_results(tmp_path / "a.jsonl", a), write_results(tmp_path / f"b{only_a}-{only_b}.jsonl", b)


# two checkpoints


def test_holm(tmp_path: Path) -> None:
    # counts whose exact p-values are the stated ones: .00195373 .0087 .0614 .59 .021 .013 .584
    counts = [(60, 100), (91, 131), (37, 56), (40, 46), (80, 113), (170, 220), (130, 140)]
    names = [pair(tmp_path, *count)[1] for count in counts]
    rows = compared(tmp_path / "a.jsonl", *names, "--scope", "checkpoint")[1:]
    stated = [0.00195373, 0.0087, 0.0614, 0.59, 0.021, 0.013, 0.584]
    assert [row["p"] for row in rows] == pytest.approx(stated, abs=5e-5)
    assert round(rows[0]["p"], 8) == 0.00195373
    places = [6, 4, 4, 4, 3, 3, 4]
    adjusted = [round(row["p_adjusted"], digits) for row, digits in zip(rows, places, strict=True)]
    assert adjusted == [0.013676, 0.0522, 0.1842, 1, 0.084, 0.065, 1]


def test_tipping_point(tmp_path: Path) -> None:
    row = compared(*pair(tmp_path, 60, 100), "--scope", "checkpoint")[1]
    assert row["tipping_items"] == 16
    assert (
        "16 of the winner's 100 exclusive wins would have to be grading errors to lose significance (p 0.0549)"
        in row["reasons"]
    )


@pytest.mark.parametrize("counts", [(60, 100), (20, 45), (100, 160)])
def test_wald_agrees_to_two_hundredths_of_a_point(tmp_path: Path, counts: tuple[int, int]) -> None:
    row = compared(*pair(tmp_path, *counts), "--scope", "checkpoint")[1]
    wald = [row["delta_pp"] + sign * 1.959964 * row["delta_se_pp"] for sign in (-1, 1)]
    assert row["delta_ci95_pp"] == pytest.approx(wald, abs=0.02)
    assert (row["t"], row["df"]) == (None, None)  # the test is exact


@pytest.mark.parametrize(("share", "points"), [(0.05, 1.72), (0.10, 2.44), (0.15, 2.98), (0.20, 3.45)])
def test_smallest_detectable_difference(tmp_path: Path, share: float, points: float) -> None:
    whole = int(share * N)
    names = [pair(tmp_path, count // 2, count - count // 2)[1] for count in (whole, whole + 1)]
    below, above = (row["detectable_pp"] for row in compared(tmp_path / "a.jsonl", *names)[1:])
    # the share lies between two whole counts of discordant items
    assert below + (above - below) * (share * N - whole) == pytest.approx(points, abs=0.0051)


def test_the_margin_is_met_by_scores_that_floats_put_below_it(tmp_path: Path) -> None:
    for name, score in (("a", 0.579), ("b", 0.539)):
        (tmp_path / f"{name}.json").write_text(json.dumps(SUMMARY | {"accuracy": score, "n": N}))
    row = compared(tmp_path / "a.json", tmp_path / "b.json", "--rule", "simple")[1]
    assert 100 * (0.579 - 0.539) < 4.0
    assert (row["verdict"], round(row["delta_pp"], 9)) == ("worse", -4.0)


# recipes


def test_the_prior(tmp_path: Path) -> None:
    result = json.loads(rlforge("compare", *pair(tmp_path, 60, 100), "--json"))
    assert round(result["seed_sd_pp"], 2) == 1.53
    assert result["seed_sd_source"] == "prior 1.53 pp worth 6 df, no seeds measured"
    row = result["rows"][1]
    assert [round(end, 2) for end in row["delta_ci95_pp"]] == [-1.60, 7.67]
    assert row["df"] is None  # z


def test_the_seed_component_alone(tmp_path: Path) -> None:
    for arm, scores in (("a", (0.7020, 0.7149, 0.6914)), ("b", (0.7415, 0.7483, 0.7293))):
        for seed, score in enumerate(scores):
            config = {"optimizer.lr": 1e-6 if arm == "a" else 2e-6}
            run = write_run(tmp_path, f"{arm}{seed}", None, seed=seed, config=config)
            (run / "evals" / "test.json").write_text(json.dumps(SUMMARY | {"accuracy": score, "n": N}))
    row = compared("a0", "b0", "--runs-dir", tmp_path)[1]
    assert (round(row["t"], 3), round(row["df"], 3), round(row["p"], 5)) == (4.207, 3.849, 0.01476)
    assert [round(end, 2) for end in row["delta_ci95_pp"]] == [1.22, 6.17]
    assert row["verdict"] == "better"


def test_seeds_and_items_crossed(tmp_path: Path) -> None:
    names = []
    for arm, rows in {"a": "11110010 11100110 11010010", "b": "11111010 11110111 11111010"}.items():
        files = [write_results(tmp_path / f"{arm}{i}.jsonl", bits(row)) for i, row in enumerate(rows.split())]
        names.append(",".join(map(str, files)))
    row = compared(*names)[1]
    assert round(row["delta_pp"] / 100, 6) == 0.208333
    assert round(row["delta_se_pp"] / 100, 6) == 0.087684
    assert round(row["df"], 4) == 5.1587
    assert [round(end / 100, 4) for end in row["delta_ci95_pp"]] == [-0.0150, 0.4317]


@pytest.mark.parametrize(("seed_sd", "seeds"), [(1.08, 3), (1.5, 4), (2, 6), (3, 13)])
def test_seeds_an_arm(tmp_path: Path, seed_sd: float, seeds: int) -> None:
    names = pair(tmp_path, 22, 64)
    assert round(compared(*names, "--scope", "checkpoint")[1]["delta_se_pp"], 2) == 0.70
    needed = compared(*names, "--seed-sd", seed_sd)[1]["needed"]
    assert (needed["seeds_per_arm"], needed["effect_pp"], needed["power"]) == (seeds, 4.0, 0.8)


def test_what_a_selection_gains_is_said(tmp_path: Path) -> None:
    write_run(tmp_path, "run-01", paired(60, 100)[0])
    for index, only_b in enumerate((100, 70, 60), start=2):
        chosen = {"chosen_on": "test"} if index == 4 else {}
        config = {"optimizer.lr": index * 1e-6}
        write_run(tmp_path, f"run-0{index}", paired(60, only_b)[1], config=config, summary=chosen)
    text = rlforge("compare", "run-01", "run-02", "run-03", "run-04", "--runs-dir", tmp_path)
    assert "run-02: the best of 3 looks better than it is (2.2 pp for the best of 7 equal recipes)" in text
    assert "run-04: the checkpoint was chosen on test, which gains 0.9-1.4 pp for free" in text


def test_one_seed_verdicts_say_how_often_they_would_be_wrong(tmp_path: Path) -> None:
    (row,) = compared(*pair(tmp_path, 40, 160))[1:]
    assert row["verdict"] == "better"
    assert any("were its SD 3 pp, about one in four comparisons of equal recipes" in text for text in row["reasons"])


# several samples a problem


def sampled(path: Path, rows: str) -> str:
    records = [{"id": i, "correct": bool(v)} for i, word in enumerate(rows.split()) for v in bits(word)]
    return jsonl(path, *records)


def test_samples_of_one_problem_are_one_cluster(tmp_path: Path) -> None:
    name = sampled(tmp_path / "a.jsonl", "1111 1111 0000 0000")
    control = compared(name, name)[0]
    assert (control["accuracy"], round(control["accuracy_se"], 6)) == (0.5, 0.288675)


def test_pass_at_k_of_a_file(tmp_path: Path) -> None:
    rows = "1110000000000000 0000000000001110"
    name = sampled(tmp_path / "a.jsonl", rows)
    found = compared(name, name)[0]["pass_at_k"]
    assert list(found) == ["1", "2", "4", "8", "16"]
    assert (round(found["4"], 6), round(found["8"], 6), found["16"]) == (0.607143, 0.9, 1.0)
    assert "100.0 % (k=16)" in rlforge("compare", name, name)


def evaluated(monkeypatch: pytest.MonkeyPatch, right: list[int], *words: object) -> dict[str, Any]:
    """`rlforge eval` of a model that answers so many samples of each problem rightly."""

    def script(call: int, index: int, sample: int) -> list[int]:
        return [index % 10 if sample < right[index] else (index + 1) % 10, ToyTokenizer.eos_token_id]

    engine = ScriptedEngine(script)
    monkeypatch.setattr("rlforge_cli.engines.choose.make_engine", lambda config, policy: engine)
    monkeypatch.setattr(
        "rlforge_cli.model.load_policy",
        lambda config, path=None: SimpleNamespace(tokenizer=ToyTokenizer(), causal=NO_POSITIONS),
    )
    monkeypatch.setattr("rlforge_cli.tasks.registry.load_task", lambda data: ToyTask(len(right)))
    found: dict[str, Any] = json.loads(rlforge("eval", "tiny-arith", *words, "--json"))
    return found


@pytest.mark.parametrize(("n", "right", "k", "expected"), [(16, 3, 4, 0.607143), (10, 1, 5, 0.5)])
def test_pass_at_k_of_a_model(monkeypatch: pytest.MonkeyPatch, n: int, right: int, k: int, expected: float) -> None:
    found = evaluated(monkeypatch, [right, right], "--samples", n, "--k", k)
    assert round(found["pass_at_k"][str(k)], 6) == expected


def test_a_k_above_the_samples_is_refused_before_anything_is_generated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlforge_cli.evaluation.evaluate", lambda *args, **options: pytest.fail("generated"))
    with pytest.raises(UserError, match="pass@5 needs at least 5 samples a problem: add --samples 5"):
        evaluated(monkeypatch, [1], "--samples", 4, "--k", 5)


def test_the_standard_error_of_a_model_is_over_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    found = evaluated(monkeypatch, [4, 4, 0, 0], "--samples", 4)
    assert (found["accuracy"], round(found["se"], 6)) == (0.5, 0.288675)


def test_the_interval_of_a_model_is_wilsons(monkeypatch: pytest.MonkeyPatch) -> None:
    found = evaluated(monkeypatch, [1] * 990 + [0] * 329)
    assert [round(end, 5) for end in found["ci95"]] == [0.72651, 0.77317]
