from __future__ import annotations

import pytest

from rlforge_cli import reward_check, settings
from rlforge_cli.checks import REWARD_GATES, Evidence, Probes, run_gates
from rlforge_cli.rewards import Scored
from rlforge_cli.rollouts import Completion, RolloutGroup
from rlforge_cli.tasks.arithmetic import Arithmetic
from rlforge_cli.tasks.base import Grade, Problem
from rlforge_cli.tasks.jsonl import TextTask

TASK = Arithmetic(train=40)
PROBLEMS = TASK.problems("train")[:12]


def paid(*sets, task=TASK, problems=PROBLEMS):
    config = settings.load("tiny-arith", sets=list(sets))
    found = reward_check.earnings(task, problems, config=config, length=len)
    return config, {earning.name: earning for earning in found}


def checks(*sets, task=TASK, problems=PROBLEMS, **probes):
    config, earnings = paid(*sets, task=task, problems=problems)
    found = Evidence(config=config, probes=Probes(earnings=list(earnings.values()), **probes))
    return {check.name: check for check in run_gates(found, gates=REWARD_GATES)}


def failures(found):
    return [check.name for check in found.values() if check.status == "fail"]


@pytest.mark.parametrize(
    ("name", "most_wrong", "least_right"),
    [
        ("gold", None, 1.2),
        ("gold without format", None, 1.0),
        ("gold, truncated", None, 0.7),
        ("wrong", 0.2, None),
        ("wrong without format", 0.0, None),
        ("wrong, truncated", -0.3, None),
        ("empty", 0.0, None),
        ("format only", 0.0, None),
        ("repeated marker", 0.0, None),
        ("digits flood", 0.0, None),
        ("ramble, truncated", -0.5, None),
    ],
)
def test_what_each_probe_is_paid(name, most_wrong, least_right):
    _, earnings = paid()
    earning = earnings[name]
    assert earning.n == len(PROBLEMS)
    assert earning.most_wrong == (None if most_wrong is None else pytest.approx(most_wrong))
    assert earning.least_right == (None if least_right is None else pytest.approx(least_right))


def test_the_default_reward_has_no_shortcut():
    found = checks()
    assert failures(found) == []
    assert found["reward_shortcut"].value == pytest.approx(0.8)
    assert "0.2 of 1.2 without being right" in found["reward_shortcut"].why


@pytest.mark.parametrize("weight", ["1.0", "2.0"])
def test_a_format_as_dear_as_the_answer(weight):
    assert failures(checks(f"format={weight}")) == ["reward_shortcut"]


def test_a_length_penalty_lowers_the_least_a_right_answer_earns():
    found = checks("length_penalty=0.4", "reward.length_threshold=32")
    assert failures(found) == []
    assert found["reward_shortcut"].value == pytest.approx(1.0 + 0.2 - 0.4 - 0.2)


def test_an_inverted_reward():
    assert failures(checks("reward.correctness=-1"))[0] == "gold_reward"


def own(tmp_path, monkeypatch, body):
    (tmp_path / "mine.py").write_text(f"def mine(completions, problems):\n    return {body}\n", encoding="utf-8")
    return f"reward.functions={tmp_path / 'mine.py'}:mine"


def test_a_function_that_pays_for_every_marker(tmp_path, monkeypatch):
    found = checks(own(tmp_path, monkeypatch, "[0.2 * c.count('####') for c in completions]"))
    assert found["repeated_pattern"].status == "fail"
    assert found["repeated_pattern"].value == "mine"
    assert found["reward_shortcut"].status == "fail"
    assert "repeated marker" in found["reward_shortcut"].why


def test_a_function_that_pays_for_length(tmp_path, monkeypatch):
    found = checks(own(tmp_path, monkeypatch, "[min(1.5, len(c) / 100) for c in completions]"))
    assert "reward_shortcut" in failures(found)
    assert "'mine'" in found["reward_shortcut"].fix


def test_a_function_that_scores_nothing_leaves_nothing_to_judge(tmp_path, monkeypatch):
    found = checks(own(tmp_path, monkeypatch, "[None] * len(completions)"))
    assert found["reward_shortcut"].status == "skip"


TEXT = [Problem(f"t{i}", f"Which day? {i}", day) for i, day in enumerate(["Monday", "Tuesday", "Friday"])]
TEXT_TASK = TextTask("days", {"train": TEXT, "validation": TEXT, "test": TEXT})


def test_golds_that_are_texts():
    assert failures(checks(task=TEXT_TASK, problems=TEXT)) == []
    assert reward_check.gold_probe(TEXT_TASK, TEXT).n_wrong == 0


def test_a_worked_solution_is_its_own_gold():
    problem = Problem("w", "How many?", "40+2=42\n#### 42")
    task = TextTask("worked", {"train": [problem], "validation": [problem], "test": [problem]})
    assert reward_check.gold_probe(task, [problem]).n_wrong == 0
    assert reward_check.final_answer(problem) == "42"
    assert failures(checks(task=task, problems=[problem])) == []


def test_golds_are_sampled_evenly_from_a_large_task():
    probe = reward_check.gold_probe(TASK, TASK.problems("train") * 100)
    assert probe.n == 2000


def group(rewards, *, correct, components=("correctness", "format")):
    scores = [Scored(dict(zip(components, parts, strict=True)), sum(parts)) for parts in rewards]
    completions = [Completion([1, 2], [0.0, 0.0], "stop", "x") for _ in rewards]
    grades = [Grade(right, right, right, None) for right in correct]
    return RolloutGroup(PROBLEMS[0], [1], completions, grades, scores)


def test_success_rate_times_value():
    groups = [group([(1.0, 0.2), (0.0, 0.2), (0.0, 0.2), (0.0, 0.0)], correct=[True, False, False, False])]
    first, second = reward_check.component_uses(groups)
    assert (first.name, first.success, first.value) == ("format", 0.75, pytest.approx(0.2))
    assert first.product == pytest.approx(0.15)
    assert (second.name, second.success, second.product) == ("correctness", 0.25, 0.25)
    assert reward_check.sampled_levels(groups) == (3, 0.0)


def test_a_cheap_component_that_pays_more_than_being_right_is_a_warning():
    groups = [group([(1.0, 0.2)] + [(0.0, 0.2)] * 9, correct=[True] + [False] * 9)]
    uses = reward_check.component_uses(groups)
    found = checks(components=uses, totals=2, unscored=0.0)
    assert found["component_order"].status == "warn"
    assert found["component_order"].value == "format"
    assert found["score_levels"].status == "warn"


@pytest.mark.parametrize(("share", "status"), [(0.0, "pass"), (0.1, "warn"), (0.6, "fail")])
def test_completions_without_a_reward(share, status):
    assert checks(unscored=share)["reward_scored"].status == status


def test_samples_are_told_apart():
    groups = [group([(1.0, 0.2), (0.0, 0.2)], correct=[True, False])]
    right, wrong = reward_check.sampled_earnings(groups)
    assert (right.name, right.least_right, right.most_wrong) == ("sampled right", 1.2, None)
    assert (wrong.name, wrong.most_wrong) == ("sampled wrong", 0.2)
