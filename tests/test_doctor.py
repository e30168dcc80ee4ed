from __future__ import annotations

import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

from rlforge_cli import lineage, settings
from rlforge_cli.__main__ import app, register
from rlforge_cli.checks.curves import Curves, direction
from rlforge_cli.checks.doctor_table import RULES, run_rules
from rlforge_cli.checks.lost import lost, trouble_since
from rlforge_cli.collapse import CollapseWatch
from rlforge_cli.doctor import diagnose
from rlforge_cli.errors import RunFailed, UserError
from rlforge_cli.run_dir import LineWriter

STEPS = 200


def healthy(rng=None):
    """A run that learns: accuracy and length rise together, KL and reward too, the signal thins out a little."""
    rng = rng or np.random.default_rng(0)
    t = np.linspace(0, 1, STEPS)
    return {
        "accuracy": 0.25 + 0.4 * t, "reward": 0.35 + 0.45 * t, "kl_ref": 0.1 * t, "entropy": 0.25 - 0.15 * t,
        "completion_length": 100 + 50 * t, "adv_std_generated": 1.0 - 0.34 * t, "zero_std_fraction": 0.05 + 0.2 * t,
        "truncated_fraction": 0.05 * (1 - t), "clip_fraction": np.zeros(STEPS), "kl_sampling": np.full(STEPS, 1e-9),
        "reward/format": 0.15 + 0.04 * t, "reward/correctness": 0.25 + 0.4 * t,
    }, rng  # fmt: skip


def curves(changes=None, *, sets=(), **kwargs):
    series, rng = healthy()
    series |= {name: np.asarray(values, dtype=float) for name, values in (changes or {}).items()}
    records = [
        {"step": n + 1, "groups_generated": 8, "grader_errors": 0, "unscored": 0}
        | {name: float(values[n] * (1 + 0.03 * rng.standard_normal())) for name, values in series.items()}
        for n in range(STEPS)
    ]
    return Curves(config=settings.load("tiny-arith", sets=list(sets)), records=records, **kwargs)


def alarms(run):
    return [check.name for check in run_rules(run) if check.status != "pass"]


T = np.linspace(0, 1, STEPS)
FLAT = np.full(STEPS, 0.25)


def test_a_run_that_learns_is_silent():
    assert alarms(curves()) == []


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("clip_fraction", {"clip_fraction": 0.3 * T + 0.1}),
        ("signal", {"adv_std_generated": 1 - 0.7 * T, "zero_std_fraction": 0.8 * T}),
        ("entropy", {"entropy": 0.3 * np.exp(-6 * T)}),
        ("incoherent", {"entropy": 0.2 + T, "accuracy": 0.3 - 0.2 * T, "reward": FLAT}),
        ("kl_drift", {"kl_ref": 0.8 * T, "accuracy": FLAT, "reward": FLAT}),
        ("length", {"completion_length": 100 + 80 * T, "accuracy": FLAT, "reward": FLAT, "kl_ref": FLAT / 10}),
        ("truncation", {"truncated_fraction": 0.5 * T}),
        ("shortcut", {"accuracy": 0.4 - 0.3 * T, "reward": 0.3 + 0.2 * T, "reward/format": 0.1 + 0.4 * T}),
        ("saturation", {"accuracy": FLAT / 10, "reward/format": np.full(STEPS, 0.198), "reward": FLAT}),
        ("mismatch", {"kl_sampling": 0.01 * T}),
        ("ungraded", {"unscored": np.full(STEPS, 8.0)}),
    ],
)
def test_each_rule_is_raised_by_its_own_fault(name, changes):
    run = curves({"completion_length": np.full(STEPS, 100.0)} | changes)
    assert alarms(run) == [name]
    check = next(check for check in run_rules(run) if check.name == name)
    assert check.fix
    assert "->" in check.why or "of" in check.why


def test_length_that_grows_with_accuracy_is_healthy():
    assert alarms(curves({"completion_length": 100 + 200 * T})) == []


def test_a_solved_task_needs_neither_spread_nor_entropy():
    solved = {"accuracy": 0.3 + 0.68 * T**0.3, "adv_std_generated": 1 - 0.8 * T, "entropy": 0.3 * np.exp(-6 * T)}
    assert alarms(curves(solved)) == []


def test_a_low_signal_names_the_band_of_difficulty():
    run = curves({"adv_std_generated": 1 - 0.7 * T})
    assert "data.difficulty" in next(check.fix for check in run_rules(run) if check.name == "signal")


def test_validation_that_falls_while_training_rises():
    points = [(0, 0.3), (50, 0.6), (100, 0.7), (150, 0.5), (200, 0.4)]
    assert alarms(curves(validations=points, validation_problems=200)) == ["train_eval_gap"]
    assert alarms(curves(validations=[(0, 0.3), (100, 0.72), (200, 0.7)], validation_problems=200)) == []


def test_the_same_text_for_different_problems():
    same = [(200, f"p{i % 4}", "#### 1") for i in range(16)]
    own = [(200, f"p{i % 4}", f"#### {i % 4}") for i in range(16)]
    assert alarms(curves(completions=same)) == ["repeated_rollouts"]
    assert alarms(curves(completions=own)) == []


def test_a_single_bad_step_raises_nothing():
    run = curves()
    run.records[100] |= {"kl_ref": 50.0, "grad_norm": math.nan, "accuracy": 0.0, "entropy": 3.0}
    assert alarms(run) == []


def test_trends_stay_quiet_on_correlated_noise():
    rng = np.random.default_rng(1)

    def ar1():
        values = [float(rng.standard_normal())]
        for _ in range(STEPS - 1):
            values.append(0.9 * values[-1] + math.sqrt(1 - 0.81) * float(rng.standard_normal()))
        return values

    seen = sum(direction(ar1()) != 0 for _ in range(300))
    found = sum(direction((np.array(ar1()) + 4.5 * T).tolist()) == 1 for _ in range(300))
    assert seen <= 30
    assert found >= 240


# --- lost runs


def steps(**series):
    length = len(next(iter(series.values())))
    return [{"step": n + 1} | {name: values[n] for name, values in series.items()} for n in range(length)]


CONFIG = settings.load("tiny-arith")


def silent(*, dead, entropy=None, accuracy=0.02, groups=8):
    """Records of so many dead groups."""
    length = len(dead)
    return steps(
        zero_std_fraction=dead, entropy=entropy or [2.0] * length, accuracy=[accuracy] * length,
        groups_generated=[groups] * length, kl_ref=[0.1] * length,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "records"),
    [
        ("nonfinite", steps(loss=[0.0, 0.0, math.nan, math.nan, math.nan], kl_ref=[0.0] * 5)),
        ("nonfinite", [{"step": 1}, *({"step": n, "loss": None, "_nonfinite": ["loss"]} for n in (2, 3, 4))]),
        ("kl_runaway", steps(kl_ref=[0.1, 0.4, 2.0, 4.0, 5.0, 6.0, 6.0, 6.0, 7.0, 8.0], accuracy=[0.2] * 10)),
        ("collapse", steps(accuracy=[0.3] * 20 + [0.02] * 10, kl_ref=[0.05] * 30)),
        ("no_signal", silent(dead=[0.9] * 10 + [1.0] * 20)),
        ("no_signal", silent(dead=[0.2] * 10 + [1.0] * 18 + [0.875] * 2, entropy=[3.0] * 15 + [0.2] * 15)),
        ("no_signal", silent(dead=[1.0] * 100, groups=1)),
    ],
)
def test_lost(rule, records):
    found = lost(records, CONFIG)
    assert found is not None
    assert found.rule == rule


def test_where_the_trouble_began():
    records = steps(kl_ref=[0.1, 0.4, 2.0, 4.0, 5.0, 6.0, 6.0, 6.0, 7.0, 8.0], accuracy=[0.2] * 10)
    assert trouble_since(records, CONFIG) == 3
    assert trouble_since(records[:2], CONFIG) is None


@pytest.mark.parametrize(
    "records",
    [
        steps(loss=[0.0, math.nan, math.nan, 0.0], accuracy=[0.2] * 4),
        steps(kl_ref=[0.9] * 50, accuracy=[0.2] * 50),
        steps(accuracy=[0.3] * 20 + [0.15] * 20, kl_ref=[0.1] * 40),
        steps(accuracy=[0.02] * 10 + [0.0] * 30),
        steps(accuracy=[0.5, 0.4] + [0.1] * 12),
        silent(dead=[1.0] * 19),
        silent(dead=[1.0] * 99, groups=1),
        silent(dead=[1.0] * 29 + [0.875]),  # one group of 160 lives
        silent(dead=[0.875] * 30, entropy=[3.0] * 10 + [0.2] * 20),
        silent(dead=[1.0] * 30, accuracy=0.95),  # solved
        silent(dead=[0.9] * 30, accuracy=0.02),  # hard, and now and then right
    ],
)
def test_not_lost(records):
    assert lost(records, CONFIG) is None


def begin(folder, *sets):
    plan = lineage.prepare(runs_dir=folder, preset="tiny-arith", sets=sets)
    return lineage.start(plan, folder), plan.config


def saved(run, *numbers):
    for number in numbers:
        path = run.checkpoints / f"step-{number:06d}"
        path.mkdir(parents=True)
        (path / "state.json").write_text("{}", encoding="utf-8")


def test_the_watch_ends_a_lost_run_and_names_the_last_good_checkpoint(tmp_path):
    run, config = begin(tmp_path)
    saved(run, 10, 20, 25)
    watch = CollapseWatch(run, config, step=0)
    for record in steps(accuracy=[0.3] * 22, kl_ref=[0.1] * 22):
        watch.see(record)
    assert watch.keep() == config.checkpoint.keep
    for n in range(23, 27):  # a median of ten steps: four do not move it
        watch.see({"step": n, "accuracy": 0.3, "kl_ref": 9.0})
    with pytest.raises(RunFailed, match=r"lost since about step 23 \(kl_runaway\).*step-000020"):
        watch.see({"step": 27, "accuracy": 0.3, "kl_ref": 9.0})
    assert watch.keep() == 3  # step 20, step 25, and the one that would come next


def test_a_resumed_watch_forgets_what_came_after_the_checkpoint(tmp_path):
    run, config = begin(tmp_path)
    writer = LineWriter(run.metrics_file)
    for record in steps(accuracy=[0.3] * 15 + [0.0] * 10, kl_ref=[0.1] * 15 + [9.0] * 10):
        writer.write(record)
    writer.close()
    watch = CollapseWatch(run, config, step=15)
    watch.see({"step": 16, "accuracy": 0.3, "kl_ref": 0.1})
    assert len(watch.records) == 16


# --- the command


@pytest.fixture(scope="module", autouse=True)
def commands():
    if not app.registered_commands:
        register()


def logged(folder, run_curves):
    run, _ = begin(folder)
    writer = LineWriter(run.metrics_file)
    for record in run_curves.records:
        writer.write(record)
    writer.close()
    return run


def test_doctor_command_is_calm(tmp_path):
    logged(tmp_path, curves())
    done = CliRunner().invoke(app, ["doctor", "run-01", "--runs-dir", str(tmp_path)])
    assert done.exit_code == 0
    assert done.stdout.strip() == "run-01: healthy, 200 steps; nothing to report"


def test_doctor_command_reports_and_a_lost_run_is_exit_1(tmp_path):
    logged(tmp_path, curves({"kl_ref": 9 * T, "accuracy": 0.5 - 0.5 * T, "reward": FLAT}))
    done = CliRunner().invoke(app, ["doctor", "run-01", "--runs-dir", str(tmp_path), "--json"])
    assert done.exit_code == 1
    result = json.loads(done.stdout)
    assert result["status"] == "lost"
    assert result["alarms"][0]["name"] == "lost_run"
    assert result["alarms"][0]["value"] == "kl_runaway"
    assert result["rules"] == len(RULES)
    text = CliRunner().invoke(app, ["doctor", "run-01", "--runs-dir", str(tmp_path)]).stdout
    assert max(map(len, text.splitlines())) <= 80


def test_doctor_names_what_it_could_not_read(tmp_path):
    run = logged(tmp_path, curves())
    with open(run.metrics_file, "a", encoding="utf-8") as file:
        file.write('garbage\n{"step": 201, "rew')
    done = CliRunner().invoke(app, ["doctor", "run-01", "--runs-dir", str(tmp_path), "--json"])
    assert json.loads(done.stdout)["note"].startswith("2 incomplete line(s) of ")
    run.run_file.write_text("{bad")
    done = CliRunner().invoke(app, ["doctor", "run-01", "--runs-dir", str(tmp_path)])
    assert isinstance(done.exception, UserError)
    assert "run.json" in str(done.exception)


def with_lines(folder, *lines, **info):
    run, _ = begin(folder)
    run.update_info(status="completed", **info)
    run.metrics_file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return run


STEP = '{"step": %d, "loss": 0.0, "accuracy": 0.5, "grad_norm": 1.0, "adv_std": 1.0}'


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "has logged no step"), (["garbage", "[1]", '{"loss": 1.0}'], "has logged no step"),
        (['{"step": -1, "loss": 1}'], "has logged no step"),
        (['{"step": 1, "loss": null}', '{"step": 2, "loss": []}'], "its 2 steps hold no metric"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["doctor", "smoke"])
def test_what_logged_nothing_is_not_healthy(tmp_path, lines, message, command):
    run = with_lines(tmp_path, *lines)
    words = [run.id] if command == "doctor" else ["--run", run.id]
    done = CliRunner().invoke(app, [command, *words, "--runs-dir", str(tmp_path)])
    assert isinstance(done.exception, UserError)
    assert message in str(done.exception)


@pytest.mark.parametrize("value", ["Infinity", "NaN", "1e308", "-1e308", '"abc"', "[]", "{}", "true"])
def test_no_value_of_a_metric_is_too_odd_to_be_judged(tmp_path, value):
    names = [name for name in json.loads(STEP % 1) if name != "step"]
    names += ["zero_std_fraction", "groups_generated", "groups_kept", "entropy", "kl_ref", "adv_std_generated"]
    odd = ", ".join(f'"{name}": {value}' for name in names)
    run = with_lines(tmp_path, *(STEP % n for n in range(1, 5)), *(f'{{"step": {n}, {odd}}}' for n in range(5, 60)))
    for words in (["doctor", run.id, "--json"], ["smoke", "--run", run.id, "--steps", "60", "--json"]):
        done = CliRunner().invoke(app, [*words, "--runs-dir", str(tmp_path)])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        json.loads(done.stdout)


@pytest.mark.parametrize(
    ("status", "reason", "why"),
    [("failed", "RunFailed: the disk is full", "failed: RunFailed: the disk is full"),
     ("running", None, "crashed: its process is gone without a word")],
)  # fmt: skip
def test_a_run_that_did_not_end_as_planned_is_an_alarm(tmp_path, status, reason, why):
    run = with_lines(tmp_path, *(STEP % n for n in range(1, 5)))
    run.update_info(status=status, reason=reason)
    found = diagnose(run)
    assert found["status"] == "alarms"
    assert found["alarms"][0]["name"] == "ended"
    assert found["alarms"][0]["why"].startswith(why)
