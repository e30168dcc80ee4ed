from __future__ import annotations

from pathlib import Path

import pytest

from rlforge_cli import lineage, planning, settings
from rlforge_cli.errors import UserError
from rlforge_cli.run_dir import RunDir

RUNS = Path("runs")


def prepared(*sets: str, **options) -> lineage.Plan:
    return lineage.prepare(runs_dir=RUNS, sets=sets, **options)


def started(*sets: str, status: str = "completed", completions: int | None = None, **options) -> RunDir:
    run = lineage.start(prepared(*sets, **options), RUNS)
    run.update_info(status=status, steps=200)
    if completions is not None:
        run.update_info(budget={"completions_generated": completions})
    return run


@pytest.mark.parametrize(
    ("change", "steps"), [("G=4", 400), ("G=16", 100), ("oversample=1.5", 133), ("prompts=4", 400), ("beta=0.01", 200)]
)
def test_equal_samples_scales_the_steps(change, steps):
    plan = prepared(change, budget="samples")
    assert plan.config.train.steps == steps
    assert plan.config.train.max_completions == 12_800
    assert len(plan.changes) == 1
    assert not [change for change in plan.changes if change["key"] == "train.steps"]
    assert planning.planned_completions(plan.config) <= 12_800


def test_equal_samples_pays_what_the_control_really_generated():
    started(completions=6_400)
    assert prepared("G=4", budget="samples").config.train.steps == 200


def test_equal_samples_needs_one_step_and_no_own_steps():
    with pytest.raises(UserError, match="leave out --set steps"):
        prepared("G=4", "steps=3", budget="samples")
    started(completions=10)
    with pytest.raises(UserError, match="generated 10 completions"):
        prepared("G=16", budget="samples")


def test_equal_steps_takes_the_controls():
    control = started("steps=50")
    plan = prepared("G=4", control=control.id, budget="steps")
    assert plan.config.train.steps == 50
    assert any("sample budgets differ" in note for note in plan.notes)


def test_the_unchanged_preset_is_the_control():
    first = started()
    started("G=4")
    plan = prepared("beta=0.01", "seed=3")
    assert plan.control is not None
    assert plan.control.id == first.id
    assert plan.changes == [{"key": "grpo.kl_coef", "from": 0.0, "to": 0.01}]
    assert lineage.start(plan, RUNS).info()["parent"] == first.id


def test_a_failed_control_is_no_control():
    started(status="failed")
    assert prepared("G=4").control is None


def test_from_a_run_starts_from_its_configuration():
    run = started("G=4", "lr=1e-4")
    plan = prepared("beta=0.01", base=run.id)
    assert (plan.config.rollout.group_size, plan.config.optimizer.lr, plan.config.grpo.kl_coef) == (4, 1e-4, 0.01)
    assert plan.control is not None
    assert plan.control.id == run.id
    assert [change["key"] for change in plan.changes] == ["grpo.kl_coef"]
    with pytest.raises(UserError, match="exclude"):
        prepared(base=run.id, preset="tiny-arith")


def test_two_changes_are_said():
    assert any("2 things changed at once" in note for note in prepared("G=4", "beta=0.1", budget="samples").notes)
    assert not prepared("G=4", budget="samples").notes


def test_a_truncating_engine_is_said():
    for sets in (["top_p=0.8"], ["top_k=20"]):
        assert any("kl_sampling shows the gap" in note for note in prepared(*sets).notes)
    assert not prepared().notes


def test_resume_takes_a_run_as_it_is():
    run = started("steps=20", status="interrupted")
    found, config = lineage.resumed(run.id, RUNS)
    assert (found.id, config.train.steps) == (run.id, 20)
    with pytest.raises(UserError, match="continued as it is"):
        lineage.resumed(run.id, RUNS, sets=["lr=1"])
    assert lineage.resumed(run.id, RUNS, sets=["steps=30"])[1].train.steps == 30
    assert lineage.run_config(run).train.steps == 30
    assert {"key": "train.steps", "from": 200, "to": 30} in run.info()["changes"]


def test_a_finished_run_has_nothing_to_resume():
    run = started()
    with pytest.raises(UserError, match="completed 200 steps"):
        lineage.resumed(run.id, RUNS)


def test_more_steps_need_a_schedule_that_does_not_depend_on_them():
    run = started("schedule=cosine", "steps=20", status="interrupted")
    with pytest.raises(UserError, match="cosine schedule"):
        lineage.resumed(run.id, RUNS, sets=["steps=30"])


def test_plan_counts_what_is_generated_and_trained():
    facts = planning.plan(settings.load(sets=["oversample=1.5", "steps=100"]))
    assert facts["groups_sampled_per_step"] == 12
    assert facts["completions_per_step"] == 96
    assert facts["completions_trained_per_step"] == 64
    assert facts["completions"] == 9600
    assert facts["accumulation"] == 1
    assert planning.plan(settings.load("qwen3-0.6b-full"))["accumulation"] == 32
