"""Fresh seeds: which runs count, what is trained, what an interrupt and a failure leave, and the verdict."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any

import pytest
from comparison_files import bits, versus
from fake_runs import Fake, noisy
from typer.testing import CliRunner

from rlforge_cli import seeds, seeds_view, series
from rlforge_cli.__main__ import app, register
from rlforge_cli.config import Config
from rlforge_cli.errors import UserError
from rlforge_cli.run_dir import RunDir
from rlforge_cli.seeds import SeedsResult

RUNS = Path("runs")


def rate(config: Config) -> float:
    return 0.8 if config.rollout.oversample else 0.6


def fake(**ends: Any) -> Fake:
    return Fake(noisy(rate), **ends)


def control_and_winner(work: Fake) -> None:
    work.run(RUNS)
    work.run(RUNS, "oversample=1.5", base="run-01")


def confirm(work: Fake, name: str = "run-02", *, n: int = 3, control: str | None = None) -> SeedsResult:
    return seeds.confirm(seeds.prepare(name, n=n, control=control, runs_dir=RUNS), tools=work.tools, runs_dir=RUNS)


def test_the_control_counts_and_the_selected_run_does_not() -> None:
    work = fake()
    control_and_winner(work)
    result = confirm(work)
    control, winner = result.arms
    assert (control.run, control.runs, control.seeds) == ("run-01", ["run-01", "run-03", "run-04"], [0, 1, 2])
    assert (winner.run, winner.runs, winner.seeds) == ("run-02", ["run-05", "run-06", "run-07"], [1, 2, 3])
    assert result.control == "run-01"
    assert result.trained == ["run-03", "run-04", "run-05", "run-06", "run-07"]
    assert result.comparison is not None
    row = result.comparison.rows[1]
    assert row.runs == winner.runs
    assert row.verdict == "better"
    assert control.mean == pytest.approx(sum(control.accuracies) / 3)
    assert control.sd == pytest.approx(
        math.sqrt(sum((value - control.mean) ** 2 for value in control.accuracies) / 2), rel=1e-12
    )


def test_the_verdict_is_the_crossed_seeds_and_items_one() -> None:
    rows = {
        0.0: ["11110010", "11100110", "11010010"],
        1.5: ["00000000", "11111010", "11110111", "11111010"],
    }  # the first of the second arm belongs to the run that was selected
    work = Fake(lambda config: bits(rows[config.rollout.oversample][config.train.seed]))
    control_and_winner(work)
    result = confirm(work)
    assert result.comparison is not None
    row = result.comparison.rows[1]
    assert row.delta_pp == pytest.approx(20.8333, abs=5e-5)
    assert row.delta_ci95_pp == pytest.approx((-1.50, 43.17), abs=0.005)


def test_a_second_call_trains_nothing_and_says_the_same() -> None:
    work = fake()
    control_and_winner(work)
    first = confirm(work)
    again = confirm(work)
    assert again.trained == []
    assert again.arms == first.arms
    assert confirm(work, n=2).trained == []
    assert confirm(work, n=4).trained == ["run-08", "run-09"]


def test_an_interrupted_seed_is_continued() -> None:
    work = fake(interrupt={"run-04"})
    control_and_winner(work)
    with pytest.raises(KeyboardInterrupt):
        confirm(work)
    assert sorted(path.name for path in RUNS.iterdir()) == ["run-01", "run-02", "run-03", "run-04"]
    result = confirm(work)
    assert result.trained == ["run-04", "run-05", "run-06", "run-07"]
    assert work.started.count("run-04") == 2
    assert result.arms[0].runs == ["run-01", "run-03", "run-04"]


def test_an_interrupt_between_training_and_scoring_loses_nothing() -> None:
    work = fake()
    control_and_winner(work)
    confirm(work)
    (RUNS / "run-05" / "evals" / "test.json").unlink()
    result = confirm(work)
    assert result.trained == []
    assert len(result.arms[1].accuracies) == 3


def test_a_failed_seed_is_told_and_not_replaced() -> None:
    work = fake(fail={"run-05"})
    control_and_winner(work)
    result = confirm(work)
    assert [failure["run"] for failure in result.failed] == ["run-05"]
    assert result.failed[0]["reason"] == "CUDA out of memory"
    assert result.arms[1].runs == ["run-06", "run-07"]
    assert result.comparison is not None
    assert result.comparison.rows[1].n_seeds == 2
    work.fail.clear()
    again = confirm(work)
    assert again.trained == ["run-05"]
    assert again.arms[1].runs == ["run-05", "run-06", "run-07"]


def test_a_failure_of_scoring_keeps_the_others() -> None:
    work = fake(crash_scoring={"run-06"})
    control_and_winner(work)
    result = confirm(work)
    assert [failure["run"] for failure in result.failed] == ["run-06"]
    assert result.arms[1].runs == ["run-05", "run-07"]


def test_what_counts_as_fresh() -> None:
    work = fake()
    control_and_winner(work)
    work.run(RUNS, "oversample=1.5", base="run-01", seed=1, purpose="study")  # a candidate of the same selection
    work.run(RUNS, base="run-02", seed=7)  # a repeat started from the winner
    work.run(RUNS, base="run-02")  # the same seed again is no fresh one
    result = confirm(work, n=2)
    assert result.arms[1].runs == ["run-04", "run-07"]
    assert result.arms[1].seeds == [7, 2]  # 1 is taken by the candidate


def test_siblings_of_a_control_count_once_a_seed() -> None:
    work = fake()
    control_and_winner(work)
    work.run(RUNS, base="run-01", seed=5)
    work.run(RUNS, base="run-01", seed=5)
    work.run(RUNS, "steps=7", base="run-01", seed=6)
    assert confirm(work, n=3).arms[0].runs == ["run-01", "run-03", "run-06"]


def test_the_control_is_scored_where_it_was_not() -> None:
    work = fake()
    work.run(RUNS, scored=False)
    work.run(RUNS, "oversample=1.5", base="run-01", scored=False)
    result = confirm(work, n=2)
    assert len(result.arms[0].accuracies) == 2
    assert not (RUNS / "run-02" / "evals").exists()


def test_fresh_runs_say_where_they_come_from() -> None:
    work = fake()
    control_and_winner(work)
    confirm(work, n=2)
    of_control, of_winner = (json.loads((RUNS / name / "run.json").read_text()) for name in ("run-03", "run-04"))
    for info, source in ((of_control, "run-01"), (of_winner, "run-02")):
        assert (info["purpose"], info["seed_of"], info["parent"]) == ("seeds", source, "run-01")
    assert of_control["changes"] == []
    assert of_winner["changes"] == [{"key": "rollout.oversample", "from": 0.0, "to": 1.5}]
    configs = [json.loads((RUNS / name / "config.json").read_text()) for name in ("run-02", "run-04")]
    configs[0]["train"]["seed"] = 1
    assert configs[0] == configs[1]


def test_changes_are_those_from_the_control_that_was_named() -> None:
    work = fake()
    control_and_winner(work)
    work.run(RUNS, "G=16", base="run-01")
    confirm(work, n=1, control="run-03")
    info = json.loads((RUNS / "run-04" / "run.json").read_text())
    assert info["parent"] == "run-03"
    assert [change["key"] for change in info["changes"]] == ["rollout.group_size", "rollout.oversample"]


def test_without_a_control_there_is_the_spread_alone() -> None:
    work = fake()
    work.run(RUNS)
    result = confirm(work, "run-01", n=2)
    assert result.control is None
    assert result.comparison is None
    (arm,) = result.arms
    assert arm.runs == ["run-02", "run-03"]
    assert arm.sd is not None


def test_one_seed_shows_no_spread_and_does_not_bring_the_selected_run_back() -> None:
    work = fake()
    control_and_winner(work)
    result = confirm(work, n=1)
    assert [arm.sd for arm in result.arms] == [None, None]
    assert result.comparison is not None
    row = result.comparison.rows[1]
    assert (row.run, row.runs, row.n_seeds) == ("run-03", ["run-03"], 1)
    assert [change["key"] for change in row.changes] == ["rollout.oversample"]
    assert result.comparison.rows[1].accuracy == result.arms[1].accuracies[0]


def test_the_seed_noise_becomes_that_of_the_task() -> None:
    work = fake()
    control_and_winner(work)
    work.run(RUNS, "G=16", base="run-01")
    before = versus(RUNS, "run-01", "run-03")
    assert "no seeds measured" in str(before.seed_sd_source)
    result = confirm(work)
    after = versus(RUNS, "run-01", "run-03")
    # the noise of a recipe is that of all its runs: here the selected one is a draw like any other
    assert "pooled with 7 runs of 2 arms" in str(after.seed_sd_source)
    own = series.accuracy(RunDir(RUNS / "run-02"))
    arms = [result.arms[0].accuracies, [own, *result.arms[1].accuracies]]
    squares = sum((len(arm) - 1) * statistics.variance(arm) for arm in arms)
    expected = math.sqrt((6 * 0.0153**2 + squares) / (6 + 2 + 3))
    assert after.seed_sd_pp == pytest.approx(100 * expected, rel=1e-9)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("run-02", {"n": 0}, "at least one fresh seed"),
        ("run-77", {}, "not found"),
        ("run-02", {"control": "run-03"}, "same configuration but for the seed"),
        ("run-02", {"control": "run-04"}, "is failed: `rlforge train --resume run-04` first"),
    ],
)
def test_refusals(name: str, options: dict[str, Any], message: str) -> None:
    work = fake()
    control_and_winner(work)
    work.run(RUNS, base="run-02", seed=3)
    work.run(RUNS, "G=16", base="run-01")
    work_info = RUNS / "run-04" / "run.json"
    work_info.write_text(work_info.read_text().replace('"completed"', '"failed"'))
    with pytest.raises(UserError, match=message):
        confirm(work, name, **options)


def test_a_seed_that_another_process_trains_is_left_to_it() -> None:
    from filelock import FileLock

    work = fake(interrupt={"run-03"})
    control_and_winner(work)
    with pytest.raises(KeyboardInterrupt):
        confirm(work)
    with FileLock(RUNS / "run-03" / "lock"), pytest.raises(UserError, match="run-03 is being trained by pid"):
        confirm(work)
    assert confirm(work).trained[0] == "run-03"


def test_the_cost_is_known_beforehand() -> None:
    work = fake()
    control_and_winner(work)
    cost = seeds.cost(seeds.prepare("run-02", n=3, control=None, runs_dir=RUNS))
    assert [row["seed"] for row in cost["train"]] == [1, 2, 1, 2, 3]
    assert [row["completions"] for row in cost["train"]] == [12800, 12800, 19200, 19200, 19200]
    # half a second a step, 200 steps each
    assert [row["seconds"] for row in cost["train"]] == [100.0] * 5
    assert cost["score"] == 5
    assert not (RUNS / "run-03").exists()


# the command


def command(monkeypatch: pytest.MonkeyPatch, work: Fake, *words: str) -> Any:
    monkeypatch.setattr(series, "tools", lambda *, quiet: work.tools)
    if not app.registered_commands:
        register()
    return CliRunner().invoke(app, ["seeds", *words])


def test_json_is_one_object(monkeypatch: pytest.MonkeyPatch) -> None:
    work = fake()
    control_and_winner(work)
    done = command(monkeypatch, work, "run-02", "--n", "2", "--json")
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert list(found) == ["run", "control", "n", "arms", "trained", "failed", "comparison"]
    assert found["arms"][1].keys() >= {"run", "runs", "seeds", "accuracies", "mean", "sd"}
    assert found["comparison"]["rows"][1]["n_seeds"] == 2
    planned = json.loads(command(monkeypatch, work, "run-02", "--n", "3", "--dry-run", "--json").stdout)
    assert [row["what"] for row in planned["plan"]["train"]] == ["seed 2 of run-01", "seed 3 of run-02"]


def test_a_failure_is_exit_code_1_after_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    work = fake(fail={"run-05"})
    control_and_winner(work)
    done = command(monkeypatch, work, "run-02")
    assert done.exit_code == 1
    assert "run-05 failed (seed 1 of run-02): CUDA out of memory" in done.stdout
    assert "would keep only survivors" in done.stdout


def test_an_interrupt_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    work = fake(interrupt={"run-04"})
    control_and_winner(work)
    done = command(monkeypatch, work, "run-02")
    assert done.exit_code == 130
    assert "the same command continues" in done.stderr


def test_the_text_says_how_little_three_seeds_tell(capsys: pytest.CaptureFixture[str]) -> None:
    work = fake()
    control_and_winner(work)
    plan = seeds.prepare("run-02", n=3, control=None, runs_dir=RUNS)
    result = seeds.confirm(plan, tools=work.tools, runs_dir=RUNS)
    capsys.readouterr()
    seeds_view.result(result, plan)
    text = capsys.readouterr().out
    assert "3 seeds pin the SD only to a factor of 0.52 to 6.3" in text
    assert "run-02 itself" in text
    assert "is left out" in text
    for arm in result.arms:
        assert f"{100 * (arm.sd or 0):.2f}" in text


def test_the_command_says_how_little_three_seeds_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    work = fake()
    control_and_winner(work)
    text = command(monkeypatch, work, "run-02", "--n", "3").stdout
    assert text.count("3 seeds pin the SD only to a factor of 0.52 to 6.3") == 2
