"""Study files: what they may say, and one line for what they may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlforge_cli import rounds, study
from rlforge_cli.errors import UserError
from rlforge_cli.planning import planned_completions

ROUND = '[[rounds]]\nname = "r"\nhypothesis = "h"\n'
ARM = '[[rounds.arms]]\nname = "a"\nexpect = "worse"\n'


def written(text: str, name: str = "s.toml") -> str:
    Path(name).write_text(text, encoding="utf-8")
    return name


def test_the_shipped_study_is_the_reference_experiment() -> None:
    loaded = study.load_study("three-rounds")
    plan = rounds.prepare(loaded, runs_dir=Path("runs"))
    assert not study.unstated(loaded)
    control, *arms = [job.config for job in plan.jobs]
    assert [arm.name for arm in plan.arms] == [
        "G4",
        "G16",
        "beta-0.001",
        "beta-0.01",
        "format-0.05",
        "length-penalty",
        "dynamic-1.5x",
    ]
    assert control.train.steps == 200
    assert [arm.train.steps for arm in arms] == [400, 100, 200, 200, 200, 200, 133]
    assert [arm.rollout.group_size for arm in arms] == [4, 16, 8, 8, 8, 8, 8]
    assert [arm.grpo.kl_coef for arm in arms] == [0, 0, 0.001, 0.01, 0, 0, 0]
    assert [arm.reward.format for arm in arms] == [0.2, 0.2, 0.2, 0.2, 0.05, 0.2, 0.2]
    assert [arm.reward.length_coef for arm in arms] == [0, 0, 0, 0, 0, 0.4, 0]
    assert [arm.rollout.oversample for arm in arms] == [0, 0, 0, 0, 0, 0, 1.5]
    # the threshold fires inside the embedded task's 64 tokens, and does nothing in the control
    assert arms[5].reward.length_threshold == control.reward.length_threshold == 32 < control.rollout.max_tokens
    # equal samples, to one step of rounding: dynamic sampling generates 96 a step
    assert all(12800 - 96 < planned_completions(arm) <= 12800 for arm in arms)


def test_the_shipped_study_runs_on_another_preset() -> None:
    loaded = study.load_study("three-rounds", preset="qwen3-0.6b-full", sets=["length_threshold=300"])
    control, *arms = [job.config for job in rounds.prepare(loaded, runs_dir=Path("runs")).jobs]
    assert control.model.path == "Qwen/Qwen3-0.6B"
    assert control.reward.length_threshold == 300
    assert [arm.train.steps for arm in arms] == [400, 100, 200, 200, 200, 200, 133]


def test_a_copy_can_be_edited_and_is_never_overwritten() -> None:
    study.copy_study("three-rounds", Path("mine.toml"))
    assert study.load_study("mine.toml") == study.load_study("three-rounds")
    with pytest.raises(UserError, match=r"mine\.toml: cannot be written: File exists"):
        study.copy_study("three-rounds", Path("mine.toml"))


def test_a_preset_beside_the_study_is_found_from_anywhere() -> None:
    Path("folder").mkdir()
    written('extends = "tiny-arith"\n[train]\nsteps = 3\n', "folder/small.toml")
    written(f'[control]\npreset = "small.toml"\n{ROUND}{ARM}set = ["G=4"]\n', "folder/s.toml")
    loaded = study.load_study("folder/s.toml")
    assert loaded.name == "s"
    assert study.control_config(loaded, 0).train.steps == 3


def test_equal_steps_are_a_choice_of_the_study_or_the_arm() -> None:
    text = f'budget = "steps"\n[control]\npreset = "tiny-arith"\n{ROUND}{ARM}set = ["G=4"]\n'
    text += '[[rounds.arms]]\nname = "b"\nset = ["G=16"]\nexpect = "better"\nbudget = "samples"\n'
    loaded = study.load_study(written(text))
    a, b = [job.config.train.steps for job in rounds.prepare(loaded, runs_dir=Path("runs")).jobs[1:]]
    assert (a, b) == (200, 100)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('nam = "x"', "no such key 'nam' (did you mean 'name'?)"),
        ("[controll]", "no such key 'controll' (did you mean 'control'?)"),
        ('[control]\npresett = "x"', "control: no such key 'presett' (did you mean 'preset' or 'set'?)"),
        ('[[rounds]]\nname = "r"\nhypotesis = "x"', "round 1: no such key 'hypotesis' (did you mean 'hypothesis'?)"),
        (
            ROUND + ROUND.replace('"r"', '"q"') + ARM + 'sett = ["G=4"]',
            "round 2, arm 1: no such key 'sett' (did you mean",
        ),
        (ROUND + ARM + 'set = "G=4"', "round 1, arm 1, set: expected a list, got `str`"),
        (ROUND + ARM + "set = [4]", "round 1, arm 1, set[0]: expected `str`, got `int`"),
        (ROUND + '[[rounds.arms]]\nset = ["G=4"]', "round 1, arm 1: missing key `name`"),
        (
            ROUND + '[[rounds.arms]]\nname = "a"\nset = ["G=4"]\nexpect = "bettr"',
            "round 1, arm 1, expect: 'bettr' is not a choice (did you mean 'better'?)",
        ),
        ('budget = "tokens"', "budget: 'tokens' is not a choice (valid: samples, steps)"),
        ("name = [", "not valid TOML"),
        ('name = "../x"\n' + ROUND + ARM + 'set = ["G=4"]', "use letters, digits"),
        (ROUND + ARM + "set = []", "arm 'a' of round 'r' changes nothing"),
        (ROUND, "there is no arm"),
        (
            ROUND + ARM + 'set = ["G=4"]\n' + ROUND + ARM.replace('"a"', '"b"') + 'set = ["G=2"]',
            "two rounds are called 'r'",
        ),
        (ROUND + ARM + 'set = ["G=4"]\n' + ARM + 'set = ["G=2"]', "two arms are called 'a'"),
        (ROUND + ARM.replace('"a"', '"control"') + 'set = ["G=4"]', "two arms are called 'control'"),
        ("seeds = [1, 1]\n" + ROUND + ARM + 'set = ["G=4"]', "seeds = [1, 1]"),
        (ROUND + ARM + 'set = ["G=4"]\nseeds = [-1]', "seeds = [-1]"),
        (ROUND + ARM + 'set = ["Gx=4"]', "arm 'a' of study s: --set Gx: no such key (did you mean 'G'?)"),
        (ROUND + ARM + 'set = ["G=1"]', "arm 'a' of study s: rollout.group_size (G) is 1"),
        (ROUND + ARM + 'set = ["length_penalty=0.9"]', "arm 'a' of study s: reward.length_coef = 0.9 could"),
        (ROUND + ARM + 'set = ["G=8"]', "arm 'a' of study s changes nothing"),
        (ROUND + ARM + 'set = ["steps=3"]', "leave them out of `set`"),
        (ROUND + ARM + 'set = ["seed=3"]', "leave them out of `set`"),
        (ROUND + ARM + 'set = ["G=4", "beta=0.1"]', "changes 2 things (rollout.group_size, grpo.kl_coef)"),
        (
            ROUND + ARM + 'set = ["G=4"]\n' + ARM.replace('"a"', '"b"') + 'set = ["rollout.group_size=4"]',
            "arms 'a' and 'b' of study s are the same configuration",
        ),
        ('[control]\npreset = "tiny-arit"\n' + ROUND + ARM + 'set = ["G=4"]', "control of study s: preset 'tiny-arit'"),
        ('[control]\nset = ["steps=1"]\n' + ROUND + ARM + 'set = ["G=128"]', "the control generated 64 completions"),
    ],
)
def test_one_line_says_what_is_wrong_and_where(text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        rounds.prepare(study.load_study(written(text)), runs_dir=Path("runs"))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value) or "TOML" in message


def test_several_changes_are_possible_on_purpose() -> None:
    loaded = study.load_study(written(f'{ROUND}{ARM}set = ["G=4", "beta=0.1"]\nseveral = true\n'))
    (job,) = rounds.prepare(loaded, runs_dir=Path("runs")).jobs[1:]
    assert (job.config.rollout.group_size, job.config.grpo.kl_coef) == (4, 0.1)


@pytest.mark.parametrize("name", ["three-round", "nowhere.toml", "."])
def test_an_unknown_study(name: str) -> None:
    with pytest.raises(UserError, match=r"no such file \((did you mean 'three-rounds'\?|valid: three-rounds)\)"):
        study.load_study(name)


def test_what_must_be_said_beforehand() -> None:
    text = '[[rounds]]\nname = "r"\n[[rounds.arms]]\nname = "a"\nset = ["format=0.05"]\n'
    missing = study.unstated(study.load_study(written(text)))
    assert len(missing) == 3
    assert "no hypothesis" in missing[0]
    assert "no expect" in missing[1]
    assert "names no phenomenon" in missing[2]
