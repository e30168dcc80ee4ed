from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlforge_cli.config import RewardConfig
from rlforge_cli.errors import UserError
from rlforge_cli.reward_functions import call_function, load_function
from rlforge_cli.rewards import (
    Scored,
    check_reward,
    component_means,
    components,
    largest_length_coef,
    overlong,
    score,
)
from rlforge_cli.tasks.base import Grade, Problem
from rlforge_cli.tasks.grading import grade_number


def graded(*, correct: bool = False, format_ok: bool = False, error: str | None = None) -> Grade:
    return Grade(correct, correct and format_ok, format_ok, "5", error=error)


def scored(
    grades: list[Grade],
    *,
    truncated: list[bool] | None = None,
    lengths: list[int] | None = None,
    config: RewardConfig | None = None,
    texts: list[str] | None = None,
    max_tokens: int = 512,
) -> list[Scored]:
    n = len(grades)
    return score(
        texts or [""] * n,
        problems=[Problem(str(index), "p", "5") for index in range(n)],
        grades=grades,
        truncated=truncated or [False] * n,
        lengths=lengths or [10] * n,
        config=config or RewardConfig(),
        max_tokens=max_tokens,
    )


def test_truncation_adds_to_the_reward() -> None:
    rows = [(1, 1, 0), (1, 1, 1), (0, 1, 0), (0, 1, 1), (0, 0, 0), (0, 0, 1), (1, 0, 0)]
    result = scored(
        [graded(correct=bool(c), format_ok=bool(f)) for c, f, _ in rows], truncated=[bool(t) for _, _, t in rows]
    )
    assert [one.total for one in result] == pytest.approx([1.2, 0.7, 0.2, -0.3, 0.0, -0.5, 1.0], abs=1e-12)
    assert result[1].components == {"correctness": 1.0, "format": 0.2, "truncation": -0.5}
    means = component_means(result)
    assert means == pytest.approx({"correctness": 3 / 7, "format": 0.8 / 7, "truncation": -1.5 / 7}, abs=1e-12)
    assert sum(means.values()) == pytest.approx(sum(one.total or 0.0 for one in result) / 7, abs=1e-12)


@pytest.mark.parametrize(
    ("completion", "parts"),
    [
        ("<think>t</think></think>\n#### 333", (1.0, 0.0)),
        ("#### 1\n#### 2\n#### 333", (1.0, 0.0)),
        ("####333", (1.0, 0.0)),
        ("<think>\nline one\nline two\n</think>\n#### 333", (1.0, 0.2)),
        ("<think>x</think>\n\n\n#### 333", (1.0, 0.2)),
        ("#### 333<|im_end|>", (1.0, 0.2)),
        ("#### ", (0.0, 0.0)),
        ("", (0.0, 0.0)),
        ("#### 5", (0.0, 0.2)),
    ],
)
def test_reward_of_a_completion(completion: str, parts: tuple[float, float]) -> None:
    (one,) = scored([grade_number(completion, "333")])
    assert (one.components["correctness"], one.components["format"]) == parts
    assert one.total == pytest.approx(sum(parts), abs=1e-12)


def test_unfinished_thinking_earns_nothing_and_pays_for_truncation() -> None:
    (one,) = scored([grade_number("<think>Perhaps #### 33 but I should check the", "33")], truncated=[True])
    assert one == Scored({"correctness": 0.0, "format": 0.0, "truncation": -0.5}, -0.5)


def test_a_grader_error_is_not_scored() -> None:
    bad, good = scored([graded(error="ValueError: x"), graded(correct=True, format_ok=True)])
    assert bad == Scored({"correctness": None, "format": None, "truncation": 0.0}, None)
    assert good.total == pytest.approx(1.2)
    assert component_means([bad, good]) == good.components
    assert component_means([bad]) == {}


def test_soft_overlong_edges_in_tokens() -> None:
    shape = [overlong(length, threshold=384, max_tokens=512) for length in (0, 384, 385, 448, 512, 513)]
    assert shape == [0.0, 0.0, -0.0078125, -0.5, -1.0, -1.0]
    assert math.copysign(1.0, shape[0]) == 1.0


def test_length_component_is_scaled_and_logged_only_when_on() -> None:
    config = RewardConfig(length_coef=0.4, length_threshold=300)
    result = scored([graded(correct=True)] * 3, lengths=[300, 406, 512], config=config)
    assert [one.components["length"] for one in result] == pytest.approx([0.0, -0.2, -0.4], abs=1e-12)
    assert [one.total for one in result] == pytest.approx([1.0, 0.8, 0.6], abs=1e-12)
    assert "length" not in scored([graded()])[0].components
    assert list(components(graded(), truncated=False, length=1, config=config, max_tokens=512)) == [
        "correctness",
        "format",
        "truncation",
        "length",
    ]


def total(config: RewardConfig, *, correct: bool, format_ok: bool, length: int, truncated: bool = False) -> float:
    (one,) = scored(
        [graded(correct=correct, format_ok=format_ok)], lengths=[length], truncated=[truncated], config=config
    )
    assert one.total is not None
    return one.total


@given(st.floats(0.1, 3), st.floats(0, 1), st.floats(-1, 0), st.floats(0, 3, exclude_min=True), st.integers(0, 511))
def test_every_allowed_length_penalty_ranks_right_above_wrong(
    correctness: float, format_: float, truncation: float, coef: float, threshold: int
) -> None:
    config = RewardConfig(
        correctness=correctness, format=format_, truncation=truncation, length_coef=coef, length_threshold=threshold
    )
    wrong = total(config, correct=False, format_ok=True, length=0)
    right = [
        total(config, correct=True, format_ok=True, length=512, truncated=True),
        total(config, correct=True, format_ok=True, length=512),
        total(config, correct=True, format_ok=False, length=512),
    ]
    if coef < largest_length_coef(config) - 1e-9:
        check_reward(config, 512)
        assert min(right) > wrong
    elif coef >= largest_length_coef(config):
        with pytest.raises(UserError, match="length_coef"):
            check_reward(config, 512)
        assert min(right) <= wrong + 1e-9


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (RewardConfig(length_coef=0.5), "use less than 0.5"),
        (RewardConfig(length_coef=0.3, format=0.8), "use less than 0.2"),
        (RewardConfig(length_coef=0.1, truncation=-1.0), "use 0, or raise reward.correctness"),
        (RewardConfig(length_coef=-0.1), "positive number"),
        (RewardConfig(length_coef=math.nan), "finite"),
        (RewardConfig(correctness=math.inf), "finite"),
        (RewardConfig(correctness=1e308), r"reward.correctness = 1e\+308: use a finite number, at most 1e\+30"),
        (RewardConfig(truncation=0.5), "would pay for running too long"),
        (RewardConfig(length_coef=0.4, length_threshold=512), "0 to 511 tokens"),
    ],
)
def test_refused_rewards(config: RewardConfig, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_reward(config, 512)


def test_allowed_rewards() -> None:
    check_reward(RewardConfig(), 512)
    check_reward(RewardConfig(length_coef=0.49, length_threshold=511), 512)
    check_reward(RewardConfig(format=2.0), 512)  # exploitable, which is for smoke to find


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "house_rewards", raising=False)
    (tmp_path / "house_rewards.py").write_text(
        "import numpy as np\n"
        "SCALE = 2\n"
        "def brevity(completions, problems):\n"
        "    return [None if not c else len(c) / int(p.answer) for c, p in zip(completions, problems)]\n"
        "def array(completions, problems): return np.arange(len(completions), dtype=np.float32)\n"
        "def scalars(completions, problems): return [np.float32(0.5) for _ in completions]\n"
        "def short(completions, problems): return [1.0]\n"
        "def words(completions, problems): return ['good' for _ in completions]\n"
        "def nothing(completions, problems): return None\n"
        "def nan(completions, problems): return [float('nan') for _ in completions]\n"
        "def raises(completions, problems):\n"
        "    return 1 / 0\n"
        "def huge(completions, problems): return [-1e308 for _ in completions]\n"
        "def vast(completions, problems): return [10**400 for _ in completions]\n"
        "def format(completions, problems): return [0.0 for _ in completions]\n"
        "print('imported')\n"
        "def talks(completions, problems):\n"
        "    print('called')\n"
        "    return [0.0 for _ in completions]\n"
    )
    (tmp_path / "broken_rewards.py").write_text("import no_such_dependency\n")
    (tmp_path / "spoiled_rewards.py").write_text("x = 1\ndef f(:\n")
    return tmp_path


@pytest.mark.parametrize("where", ["house_rewards", "house_rewards.py"])
def test_what_a_user_function_prints_is_not_on_stdout(module: Path, where: str, capsys) -> None:
    call_function(f"{where}:talks", ["a"], [Problem("1", "p", "5")])
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "imported\ncalled\n")


@pytest.mark.parametrize("where", ["house_rewards", "house_rewards.py"])
def test_user_function_is_a_component_of_its_own(module: Path, where: str) -> None:
    config = RewardConfig(functions=(f"{where}:brevity",))
    check_reward(config, 512)
    result = scored([graded(correct=True)] * 3, texts=["four", "", "4444444444"], config=config)
    assert [one.components["brevity"] for one in result] == [0.8, None, 2.0]
    assert [one.total for one in result] == [pytest.approx(1.8), None, pytest.approx(3.0)]
    assert component_means(result)["brevity"] == pytest.approx(1.4)


def test_user_function_by_absolute_path(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    assert load_function(f"{module}/house_rewards.py:brevity")(["ab"], [Problem("1", "p", "2")]) == [1.0]


def test_numpy_results_are_taken(module: Path) -> None:
    problems = [Problem(str(index), "p", "5") for index in range(3)]
    assert call_function("house_rewards:array", ["", "", ""], problems) == [0.0, 1.0, 2.0]
    values = call_function("house_rewards:scalars", ["", "", ""], problems)
    assert values == [0.5, 0.5, 0.5]
    assert not any(isinstance(value, np.generic) for value in values)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("house_reward:brevity", "no module 'house_reward' here or installed .did you mean 'house_rewards'"),
        ("house_rewards:brevty", "has no 'brevty' .did you mean 'brevity'"),
        ("house_reward.py:brevity", "no file .*did you mean 'house_rewards.py'"),
        ("house_rewards:SCALE", "is no function but a int"),
        ("house_rewards", "names no module and function"),
        (":brevity", "names no module and function"),
        ("broken_rewards:f", "broken_rewards.py:1: ModuleNotFoundError"),
        ("spoiled_rewards.py:f", "SyntaxError"),
        ("house_rewards:format", "a component 'format' already"),
    ],
)
def test_a_function_that_cannot_be_used_is_refused_before_training(module: Path, spec: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_reward(RewardConfig(functions=(spec,)), 512)


def test_two_functions_of_one_name_are_refused(module: Path) -> None:
    config = RewardConfig(functions=("house_rewards:brevity", "house_rewards.py:brevity"))
    with pytest.raises(UserError, match="rename the function"):
        check_reward(config, 512)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("short", "returned 1 values for 2 completions"),
        ("words", "returned 'good' for completion 0"),
        ("nothing", "returned a NoneType; return a list with one number a completion"),
        ("nan", "returned nan for completion 0"),
        ("huge", r"returned -1e\+308 for completion 0; return a finite number \(at most 1e\+30 in size\)"),
        ("vast", "returned 10+ for completion 0; return a finite number"),
        ("raises", "house_rewards.py:12: ZeroDivisionError: division by zero"),
    ],
)
def test_a_function_that_returns_no_reward_is_named(module: Path, name: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        call_function(f"house_rewards:{name}", ["a", "b"], [Problem("1", "p", "5")] * 2)
    assert f"house_rewards:{name}" in str(error.value)
