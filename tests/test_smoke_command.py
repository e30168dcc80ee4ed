from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from rlforge_cli import lineage
from rlforge_cli.__main__ import app, register
from rlforge_cli.errors import UserError
from rlforge_cli.run_dir import LineWriter
from rlforge_cli.tasks.arithmetic import Arithmetic

SMALL = ["--set", "prompts=2", "--set", "rollout.max_prompt_tokens=32", "--set", "train.micro_batch_size=8"]


@pytest.fixture(scope="module", autouse=True)
def commands():
    if not app.registered_commands:
        register()


@pytest.fixture
def quick(tmp_path):
    """The embedded model on few problems, which is what takes time here."""
    lines = [{"prompt": p.prompt, "answer": p.answer} for p in Arithmetic(train=60).problems("train")]
    (tmp_path / "few.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return [*SMALL, "--set", "data.task=jsonl", "--set", f"data.path={tmp_path / 'few.jsonl'}", "--set",
            "data.validation=12"]  # fmt: skip


def invoke(*arguments):
    return CliRunner().invoke(app, ["smoke", *arguments])


def test_a_failed_check_is_exit_1_and_one_json_object(quick):
    done = invoke(*quick, "--set", "format=2.0", "--steps", "1", "--json")
    assert done.exit_code == 1
    result = json.loads(done.stdout)
    assert set(result) == {"passed", "checks", "wall_s"}
    assert result["passed"] is False
    assert {"name", "status", "value", "threshold", "why", "fix"} == set(result["checks"][0])
    assert next(check["name"] for check in result["checks"] if check["status"] == "fail") == "reward_shortcut"


def test_rewards_alone(quick):
    done = invoke(*quick, "--rewards")
    assert done.exit_code == 0, done.output
    assert "repeated marker" in done.stdout
    assert "reward_shortcut" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_a_model_that_is_not_there_still_gets_its_plan():
    done = invoke("--preset", "qwen3-0.6b-full", "--set", "model.path=./absent/folder")
    assert isinstance(done.exception, UserError)
    assert "no such model folder" in str(done.exception)
    assert "12,800" in done.stdout or "12800" in done.stdout
    assert "skipped" in done.stdout
    assert "smoke could not run" in done.stdout
    assert "passed" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.fixture
def old_run(tmp_path):
    plan = lineage.prepare(runs_dir=tmp_path, preset="tiny-arith", sets=["steps=30"])
    run = lineage.start(plan, tmp_path)
    writer = LineWriter(run.metrics_file)
    writer.write({"step": 0, "val_accuracy": 0.2})
    for n in range(1, 31):
        writer.write(
            {
                "step": n, "grad_norm": 0.5, "groups_kept": 8, "groups_generated": 8, "zero_std_fraction": 0.1,
                "adv_std": 1.0, "adv_std_generated": 0.9, "ratio_mean": 1.0, "kl_sampling": 1e-9,
                "sampling_diff_max": 1e-5, "kl_ref": 0.05 if n <= 20 else 9.0, "weights_changed_fraction": 1.0,
                "skipped": False, "truncated_fraction": 0.1, "accuracy": 0.3, "seconds_total": 0.2,
            }
        )  # fmt: skip
    writer.close()
    return run


def test_an_old_run_is_judged_by_its_first_steps(old_run):
    done = invoke("--run", "run-01", "--runs-dir", str(old_run.path.parent), "--json")
    assert done.exit_code == 0, done.output
    statuses = {check["name"]: check["status"] for check in json.loads(done.stdout)["checks"]}
    assert statuses["learning_rate"] == "pass"
    assert statuses["seeds"] == "skip"
    later = invoke("--run", "run-01", "--runs-dir", str(old_run.path.parent), "--steps", "30", "--json")
    assert later.exit_code == 1


def test_run_takes_no_other_configuration(old_run):
    done = invoke("--run", "run-01", "--runs-dir", str(old_run.path.parent), "--set", "G=4")
    assert "leave out" in str(done.exception)
    (old_run.path / "metrics.jsonl").write_text("", encoding="utf-8")
    done = invoke("--run", "run-01", "--runs-dir", str(old_run.path.parent))
    assert "no step" in str(done.exception)
