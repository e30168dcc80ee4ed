"""Running a study: what is missing, what an interrupt and a failure leave, goals, outcomes, the next control."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from fake_runs import Fake, noisy
from typer.testing import CliRunner

from rlforge_cli import goals, outcomes, rounds, seeds, series
from rlforge_cli.__main__ import app, register
from rlforge_cli.comparison import Row
from rlforge_cli.config import Config
from rlforge_cli.errors import RunFailed, UserError
from rlforge_cli.run_dir import RunDir
from rlforge_cli.study import ArmSpec, Study, control_config, load_study
from rlforge_cli.tasks.arithmetic import stream
from rlforge_cli.tasks.base import Split

RUNS = Path("runs")
STUDY = """
[control]
preset = "tiny-arith"
set = ["steps=10"]
[[rounds]]
name = "size"
hypothesis = "8 are enough"
expectation = "4 are worse, 16 change nothing"
[[rounds.arms]]
name = "G4"
set = ["G=4"]
expect = "worse"
[[rounds.arms]]
name = "G16"
set = ["G=16"]
expect = "no_material_difference"
[[rounds]]
name = "sampling"
hypothesis = "dead groups can be won back"
[[rounds.arms]]
name = "ds"
set = ["oversample=1.5"]
expect = "better"
phenomenon = "dead groups"
"""


def rate(config: Config) -> float:
    if config.rollout.oversample:
        return 0.85
    return {4: 0.3, 8: 0.6, 16: 0.62}[config.rollout.group_size]


def fake(**ends: Any) -> Fake:
    return Fake(noisy(rate), **ends)


def study(text: str = STUDY, name: str = "s.toml") -> Study:
    Path(name).write_text(text)
    return load_study(name)


def report(runs: Sequence[RunDir], out: Path) -> tuple[Path, Path]:
    paths = out, out.with_suffix(".html")
    for path in paths:
        path.write_text(", ".join(run.id for run in runs))
    return paths


def conduct(work: Fake, loaded: Study | None = None) -> rounds.Conducted:
    return rounds.conduct(loaded or study(), runs_dir=RUNS, tools=work.tools, report=report)


def test_every_arm_is_trained_scored_and_compared_with_the_control() -> None:
    done = conduct(fake())
    assert done.trained == ["run-01", "run-02", "run-03", "run-04"]
    assert done.comparison is not None
    assert done.comparison.control == "run-01"
    assert [row.verdict for row in done.comparison.rows] == [None, "worse", "inconclusive", "better"]
    assert [row.changes for row in done.comparison.rows[1:]] == [
        [{"key": "rollout.group_size", "from": 8, "to": 4}],
        [{"key": "rollout.group_size", "from": 8, "to": 16}],
        [{"key": "rollout.oversample", "from": 0.0, "to": 1.5}],
    ]
    assert (RUNS / "s.md").read_text() == "run-01, run-02, run-03, run-04"


def test_runs_say_which_study_asked_for_them() -> None:
    conduct(fake())
    control, arm = (json.loads((RUNS / name / "run.json").read_text()) for name in ("run-01", "run-04"))
    assert (control["purpose"], control["study"], control["arm"], control["parent"]) == ("study", "s", "control", None)
    assert (arm["study"], arm["round"], arm["arm"], arm["parent"]) == ("s", "sampling", "ds", "run-01")
    assert (arm["hypothesis"], arm["expect"]) == ("dead groups can be won back", "better")
    assert (arm["name"], arm["note"]) == ("ds", "dead groups")


def test_equal_samples_follow_what_the_control_really_generated() -> None:
    work = fake()
    conduct(work)
    steps = [json.loads((RUNS / f"run-0{i}" / "config.json").read_text())["train"]["steps"] for i in range(1, 5)]
    assert steps == [10, 20, 5, 6]

    class Refilling(Fake):
        def train(self, run: RunDir, config: Config) -> None:
            super().train(run, config)
            if run.id == "run-05":
                run.update_info(budget={"completions_generated": 960})

    text = STUDY.replace('"steps=10"', '"steps=10", "oversample=1", "max_rounds=3"').replace(
        '["oversample=1.5"]', '["lr=1"]'
    )
    again = Refilling(noisy(lambda config: 0.5))
    rounds.conduct(study(text), runs_dir=RUNS, tools=again.tools, report=report)
    config = json.loads((RUNS / "run-06" / "config.json").read_text())
    assert (config["rollout"]["group_size"], config["train"]["steps"]) == (4, 30)


def test_a_second_call_trains_nothing() -> None:
    work = fake()
    first = conduct(work)
    again = conduct(work)
    assert again.trained == []
    assert again.comparison == first.comparison


def test_a_changed_arm_is_a_new_run_and_the_others_stay() -> None:
    work = fake()
    conduct(work)
    assert conduct(work, study(STUDY.replace("oversample=1.5", "oversample=2"))).trained == ["run-05"]


def test_a_longer_control_makes_every_arm_new() -> None:
    work = fake()
    conduct(work)
    assert len(conduct(work, study(STUDY.replace("steps=10", "steps=20"))).trained) == 4


def test_equal_runs_of_others_are_not_the_studys() -> None:
    work = fake()
    work.run(RUNS, "steps=10")
    assert conduct(work).trained == ["run-02", "run-03", "run-04", "run-05"]
    other = study(name="other.toml")
    assert len(conduct(work, other).trained) == 4


def test_an_interrupt_in_the_middle_is_continued() -> None:
    work = fake(interrupt={"run-03"})
    with pytest.raises(KeyboardInterrupt):
        conduct(work)
    assert [path.name for path in sorted(RUNS.iterdir())] == ["run-01", "run-02", "run-03"]
    assert conduct(work).trained == ["run-03", "run-04"]
    assert work.started == ["run-01", "run-02", "run-03", "run-03", "run-04"]


def test_an_interrupted_control_is_continued_first() -> None:
    work = fake(interrupt={"run-01"})
    with pytest.raises(KeyboardInterrupt):
        conduct(work)
    assert conduct(work).trained == ["run-01", "run-02", "run-03", "run-04"]


def test_an_arm_that_fails_does_not_lose_the_others() -> None:
    work = fake(fail={"run-02"})
    done = conduct(work)
    assert done.trained == ["run-01", "run-03", "run-04"]
    assert [failure["run"] for failure in done.failed] == ["run-02"]
    assert done.comparison is not None
    row = done.comparison.rows[1]
    assert (row.run, row.verdict) == ("run-02", "not_comparable")
    assert "CUDA out of memory" in row.reasons[0]
    work.fail.clear()
    assert conduct(work).trained == ["run-02"]


def test_a_control_that_fails_ends_the_study() -> None:
    with pytest.raises(RunFailed, match="the control failed, so no arm was started: run-01: CUDA out of memory"):
        conduct(fake(fail={"run-01"}))
    assert not (RUNS / "run-02").exists()


def test_a_run_without_evaluation_is_scored() -> None:
    work = fake(crash_scoring={"run-03"})
    assert [failure["run"] for failure in conduct(work).failed] == ["run-03"]
    work.crash_scoring.clear()
    done = conduct(work)
    assert done.trained == []
    assert done.comparison is not None
    assert done.comparison.rows[2].accuracy is not None


def test_seeds_of_the_study_make_arms() -> None:
    done = conduct(fake(), study("seeds = [0, 1]\n" + STUDY))
    assert len(done.trained) == 8
    assert done.comparison is not None
    assert [(row.run, row.n_seeds) for row in done.comparison.rows] == [
        ("run-01", 2),
        ("run-03", 2),
        ("run-05", 2),
        ("run-07", 2),
    ]


def test_nothing_runs_before_it_is_said_what_is_expected() -> None:
    work = fake()
    with pytest.raises(UserError, match="round 'sampling' states no hypothesis"):
        conduct(work, study(STUDY.replace('hypothesis = "dead groups can be won back"', "")))
    assert work.started == []


# outcomes


@pytest.mark.parametrize(
    ("expect", "verdict", "below", "outcome"),
    [
        ("better", "better", False, "as expected"),
        ("better", "better", True, "as expected"),
        ("better", "worse", False, "not as expected"),
        ("better", "no_material_difference", False, "not as expected"),
        ("better", "inconclusive", False, "open"),
        ("better", "not_comparable", False, "open"),
        ("no_material_difference", "better", True, "as expected"),
        ("no_material_difference", "better", False, "not as expected"),
        ("worse", "worse", False, "as expected"),
        ("worse", "inconclusive", False, "open"),
        ("worse", None, False, "not run"),
    ],
)
def test_a_verdict_against_what_was_expected(expect: Any, verdict: Any, below: bool, outcome: str) -> None:
    spec = ArmSpec(name="a", set=("G=4",), expect=expect)
    assert outcomes.outcome_of(spec, Row(run="run-02", verdict=verdict, below_margin=below)) == outcome


def test_hypotheses_and_outcomes() -> None:
    done = conduct(fake())
    size, sampling = outcomes.outcomes(done.plan, done.comparison)
    assert [arm.outcome for arm in size.arms] == ["as expected", "open"]
    assert (size.outcome, size.sentence) == ("open", "open, neither shown nor refuted: G16; as expected: G4")
    assert (sampling.outcome, sampling.sentence) == ("as expected", "every arm came as expected")


def test_one_arm_against_it_refutes_a_hypothesis() -> None:
    done = conduct(fake(), study(STUDY.replace('"worse"', '"better"')))
    size, _ = outcomes.outcomes(done.plan, done.comparison)
    assert (size.outcome, size.sentence) == ("not as expected", "did not come as expected: G4; still open: G16")


def test_an_arm_whose_best_checkpoint_is_the_start_says_so() -> None:
    done = conduct(fake())
    RunDir(RUNS / "run-03").update_info(best={"step": 0, "val_accuracy": 0.3})
    size, _ = outcomes.outcomes(done.plan, done.comparison)
    assert [bool(arm.note) for arm in size.arms] == [False, True]


def test_the_best_arm_is_proposed_with_the_command_that_confirms_it() -> None:
    done = conduct(fake())
    found = outcomes.proposal(done.plan, done.comparison)
    assert (found.arm, found.run) == ("ds", "run-04")
    assert found.command == "rlforge seeds run-04 --n 3 --control run-01"
    assert "confirm it with fresh seeds" in found.sentence


def test_an_open_best_arm_is_proposed_with_the_seeds_it_needs() -> None:
    done = conduct(Fake(noisy(lambda config: 0.65 if config.rollout.oversample else 0.6)))
    found = outcomes.proposal(done.plan, done.comparison)
    assert found.arm == "ds"
    assert done.comparison is not None
    needed = done.comparison.rows[3].needed
    assert needed is not None
    assert found.command == f"rlforge seeds run-04 --n {needed['seeds_per_arm'] or 3} --control run-01"
    assert "not shown to be better" in found.sentence


def test_the_control_is_kept_where_nothing_beats_it() -> None:
    control = control_config(study(), 0)
    done = conduct(Fake(noisy(lambda config: 0.8 if config.rollout == control.rollout else 0.3)))
    found = outcomes.proposal(done.plan, done.comparison)
    assert found.command is None
    assert "keep the control run-01" in found.sentence


# goals


def found_goals(loaded: Study) -> list[goals.Goal]:
    plan = rounds.prepare(loaded, runs_dir=RUNS)
    return goals.goals(plan, rounds.judged(plan), file="s.toml", again="rlforge rounds s.toml")


def test_goals_from_the_hypothesis_to_the_conclusion() -> None:
    work = fake()
    before = found_goals(study())
    assert [goal.goal for goal in before if goal.done] == ["hypothesis and expectation stated"] * 2
    assert len(before) == 17
    following = goals.next_goal(before)
    assert following is not None
    assert (following.goal, following.hint) == ("control trained", "rlforge rounds s.toml")
    conduct(work)
    after = [goal for goal in found_goals(study()) if not goal.done]
    assert [goal.goal for goal in after] == ["conclusion written"] * 2 + ["ds confirmed with fresh seeds"]
    assert after[-1].hint == "rlforge seeds run-04 --n 3 --control run-01"
    concluded = study(STUDY.replace("hypothesis =", 'conclusion = "done"\nhypothesis ='))
    assert [goal.goal for goal in found_goals(concluded) if not goal.done] == ["ds confirmed with fresh seeds"]
    seeds.confirm(seeds.prepare("run-04", n=2, control=None, runs_dir=RUNS), tools=work.tools, runs_dir=RUNS)
    assert goals.next_goal(found_goals(concluded)) is None


def test_goals_of_a_half_done_study() -> None:
    work = fake(interrupt={"run-03"})
    with pytest.raises(KeyboardInterrupt):
        conduct(work)
    by_name = {goal.goal: goal.done for goal in found_goals(study())}
    assert by_name["G4 judged against the control"]
    assert not by_name["G16 trained"]
    assert not by_name["ds trained"]


def test_a_missing_hypothesis_is_the_next_thing_to_do() -> None:
    conduct(fake())
    silent = study(STUDY.replace('hypothesis = "8 are enough"', ""))
    following = goals.next_goal(found_goals(silent))
    assert following is not None
    assert following.hint == "in s.toml: round 'size' states no hypothesis"


# the command


def command(monkeypatch: pytest.MonkeyPatch, work: Fake, *words: str) -> Any:
    study()
    monkeypatch.setattr(series, "tools", lambda *, quiet: work.tools)
    monkeypatch.setattr(rounds, "write_report", report)
    if not app.registered_commands:
        register()
    return CliRunner().invoke(app, ["rounds", "s.toml", *words])


def test_json_is_one_object(monkeypatch: pytest.MonkeyPatch) -> None:
    planned = json.loads(command(monkeypatch, fake(), "--dry-run", "--json").stdout)
    assert (len(planned["plan"]["train"]), planned["plan"]["completions"]) == (4, 640 + 640 + 640 + 576)
    assert not RUNS.exists()
    done = command(monkeypatch, fake(), "--json")
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert found["study"] == "s"
    assert [arm["verdict"] for part in found["rounds"] for arm in part["arms"]] == ["worse", "inconclusive", "better"]
    assert found["proposal"]["run"] == "run-04"
    assert (found["goals"]["done"], found["goals"]["total"]) == (14, 17)
    assert found["report"] == ["runs/s.md", "runs/s.html"]
    asked = json.loads(command(monkeypatch, fake(), "--goals", "--json").stdout)
    assert asked["next"]["goal"] == "conclusion written"


def test_the_end_says_hypothesis_outcome_and_what_is_next(monkeypatch: pytest.MonkeyPatch) -> None:
    done = command(monkeypatch, fake())
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert "size: 8 are enough" in lines
    assert any(line.startswith("G4 (group_size 8→4): expected worse, came worse at") for line in lines)
    assert "→ open, neither shown nor refuted: G16; as expected: G4" in lines
    assert "rlforge seeds run-04 --n 3 --control run-01" in lines
    assert "s: 14 of 17 goals done" in lines
    shown = command(monkeypatch, fake(), "--goals", "--hint").stdout
    assert "  [x] G4 trained" in shown
    assert "next: conclusion written (round size)" in shown


def test_exit_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = command(monkeypatch, fake(fail={"run-02"}))
    assert failed.exit_code == 1
    assert "run-02 failed (G4 (round size)): CUDA out of memory" in failed.stdout
    interrupted = command(monkeypatch, fake(interrupt={"run-02"}))
    assert interrupted.exit_code == 130
    assert "the same command continues" in interrupted.stderr


# the real thing, once


def problems(path: Path, split: Split, count: int) -> None:
    pairs = islice(stream(split, random.Random(5)), count)
    path.write_text("".join(json.dumps({"prompt": prompt, "answer": answer}) + "\n" for prompt, answer in pairs))


def test_rounds_then_seeds_then_audit_for_real() -> None:
    Path("data").mkdir()
    problems(Path("data/train.jsonl"), "train", 60)
    problems(Path("data/test.jsonl"), "test", 40)
    sets = [
        "data.task=jsonl", "data.path=data", "data.validation=5", "steps=2", "G=4", "prompts=2",
        "eval.checkpoint=final", "checkpoint.every=0", "eval.every=0",
    ]  # fmt: skip
    arm = '[[rounds]]\nname = "r"\nhypothesis = "h"\n[[rounds.arms]]\nname = "a"\nset = ["lr=1e-3"]\nexpect = "worse"\n'
    Path("s.toml").write_text(f'[control]\npreset = "tiny-arith"\nset = {json.dumps(sets)}\n{arm}')
    if not app.registered_commands:
        register()

    def rlforge(*words: str, said: str = "") -> Any:
        done = CliRunner().invoke(app, words, input=said, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    found = rlforge("rounds", "s.toml", "--quiet", "--json")
    assert found["trained"] == ["run-01", "run-02"]
    assert [row["n_items"] for row in found["comparison"]["rows"]] == [40, 40]
    assert all(Path(path).stat().st_size > 500 for path in found["report"])
    assert rlforge("rounds", "s.toml", "--quiet", "--json")["trained"] == []
    confirmed = rlforge("seeds", "run-02", "--n", "1", "--quiet", "--json")
    assert [arm["runs"] for arm in confirmed["arms"]] == [["run-01"], ["run-03"]]
    assert confirmed["comparison"]["rows"][1]["n_items"] == 40
    configs = [RunDir(RUNS / name).config() for name in ("run-02", "run-03")]
    configs[0]["train"]["seed"] = configs[1]["train"]["seed"]
    assert configs[0] == configs[1]
    audited = rlforge("audit", "run-01", "--n", "3", "--no-second", "--json", said="y\ny\nn\n")
    assert audited["complete"] == (audited["n"] == audited["answered"])
