from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlforge_cli.config import RolloutConfig
from rlforge_cli.errors import UserError
from rlforge_cli.tasks import grading
from rlforge_cli.tasks.base import Grade
from rlforge_cli.tasks.grading import extract, final_answer_text, gold_answer, grade_number
from rlforge_cli.tasks.visible import STOP_STRINGS, cut_at_stop_strings, outside_thinking, without_special_tokens

SOLUTION = (
    "Cost is 60,000+20,000=$<<60000+20000=80000>>80,000\n"
    "Gain is 125,000-80,000=$<<125000-80000=45000>>45,000\n#### 45,000"
)
RUN_ON = "6+8=14\n#### 14\n\nQuestion: What is 3+4?\nAnswer: 3+4=7\n#### 7"

GRADED = [
    # (completion, gold, correct, prediction)
    ("April gave 48 and May gave 24, which makes 72 boxes, altogether.", "72", True, "72"),
    ("So she owes 15, give or take, and no more.", "15", True, "15"),
    ("#### ,", "72", False, None),
    ("Her bill comes to $34.00.", "34", True, "34"),
    ("The answer is 34.", "34", True, "34"),
    ("#### $34", "34", True, "34"),
    ("#### 81.0", "81", True, "81"),
    ("#### 81.", "81", True, "81"),
    ("#### 81.50", "81.5", True, "81.5"),
    ("#### 81.5", "81", False, "81.5"),
    ("#### −7", "-7", True, "-7"),
    ("#### −7", "7", False, "-7"),
    ("#### ４２", "42", True, "42"),
    ("#### 6²", "6", False, None),
    ("I get \\boxed{615}. To restate,\n**Final Answer**\n\\boxed{615}", "615", True, "615"),
    ("It ends in \\boxed{007}; the sum was 1,884,007.\n\\boxed{007}", "7", True, "7"),
    ("\\boxed{\\text{19}}", "19", True, "19"),
    ("\\boxed{19 \\text{ apples}}", "19", True, "19"),
    ("\\boxed{\\frac{3}{4}}", "3/4", True, "3/4"),
    ("\\boxed{\\dfrac{3}{4}}", "0.75", True, "3/4"),
    ("\\boxed{\\dfrac{3}{4}}", "3", False, "3/4"),
    ("\\boxed{4}. Hold on, I forgot one. \\boxed{6}", "6", True, "6"),
    ("\\boxed{4}. Hold on, I forgot one. \\boxed{6}", "4", False, "6"),
    ("#### ", "8", False, None),
    ("\\boxed{}", "8", False, None),
    ("", "8", False, None),
    ("   \n", "8", False, None),
    ("#### 18", "8", False, "18"),
    ("#### 8", "18", False, "8"),
    ("Answer: 20 was my first guess, without the tax.\nAnswer: 23", "23", True, "23"),
    ("Answer: 20 was my first guess, without the tax.\nAnswer: 23", "20", False, "23"),
    (RUN_ON, "14", True, "14"),
    (RUN_ON, "7", False, "14"),
    ("<think>The examples end with #### 6 and #### 39. I get 21.</think>\nIt is 21.\n#### 21", "21", True, "21"),
    ("<think>#### 6</think>\nNo idea.", "6", False, None),
    ("<think>Perhaps #### 33 but I should check the", "33", False, None),
    ("#### 0,7", "7", False, None),
    ("#### 2,6", "26", False, None),
    ("#### 58,500", "58500", True, "58500"),
    ("#### 45,00", "4500", False, "45"),
    ("#### 45,00", "45", True, "45"),
    ("#### ₹2,50,000", "250000", True, "250000"),
    ("#### 1,00,000", "100000", True, "100000"),
    ("#### 2.345,60", "2345.6", True, "2345.6"),
    ("#### 2.345,60", "2.345", False, "2345.6"),
    ("#### 64<|im_end|><|endoftext|>", "64", True, "64"),
    ("#### " + "9" * 5000, "9", False, None),
    ("\\boxed{" + "1" * 20000 + "}", "1", False, None),
    ("\\boxed{7^{7^{7^{7^7}}}}", "7", False, None),
    ("#### 9**9**9**9", "9", False, None),
    ("#### 2.5e+3", "2500", True, "2500"),
    ("\\boxed{2.5 \\times 10^{3}}", "2500", True, "2500"),
    ("\\boxed{2.5 \\times 10^{3}}", "3", False, "2500"),
    ("\\boxed{35\\%}", "35", True, "35"),
    ("#### 35%", "35", True, "35"),
    ("#### 35%", "0.35", False, "35"),
    ("#### 45000", SOLUTION, True, "45000"),
    ("The answer is 3/4", "0.75", True, "3/4"),
    ("#### 3/4", "3", False, "3/4"),
    ("#### 3/4", "4", False, "3/4"),
    ("#### 3/0", "3", False, None),
    ("#### x = 3", "3", True, "3"),
    ("#### x = 3y", "3", False, None),
    ("#### N/A", "3", False, None),
    # two answers that both fail to be numbers are not equal for that
    ("#### N/A", "unknown", False, "N/A"),
    ("#### 0,7", "2,6", False, "0,7"),
    ("", "", False, None),
    ("#### ", "", False, None),
]

EXTRACTED = [
    # (completion, prediction): which place decides, and that an unreadable one is final
    ("3+4=7\n####", None),
    ("3+4=7\n#### seven", None),
    ("3+4=7\n#### I do not know", None),
    ("3+4=7 \\boxed{}", None),
    ("3+4=7 \\boxed{x}", None),
    ("3+4=7 \\boxed{7", None),
    ("3+4=7\nAnswer: 3 or 4", None),
    ("3+4=7\nThe answer is not 18.", None),
    ("Had 7.\nThe answer is unknown.", None),
    ("#### 5 6", None),
    ("#### 3, 4", None),
    ("#### 18 #### 20", "20"),
    ("#### 18 ####", "18"),
    ("#### 18\n#### ", "18"),
    ("#### 18\nSo the answer is 20 or \\boxed{21}.", "18"),
    ("3+4=7\n####\n18", "18"),
    ("##### 18", "18"),
    ("so it is #### 18", "18"),
    ("#### \\boxed{18}", "18"),
    # Markdown headings are no answers
    ("#### Step 1: add\n3+4=7\n#### Step 2: double\n14\n\\boxed{14}", "14"),
    ("#### 1. Add\n3+4=7\n#### 18", "18"),
    ("#### Step 3: 18 apples\nSo \\boxed{20}", "20"),
    ("#### 18\n\n#### Explanation\nBecause 3*6.", "18"),
    ("#### Final Answer\n18", "18"),
    # boxes
    ("\\boxed{6} \\boxed{}", "6"),
    ("\\boxed{\\boxed{5}}", "5"),
    ("\\boxed 5", "5"),
    ("\\boxed{3, 4}", None),
    ("\\boxed{3{,}400}", "3400"),
    ("$\\boxed{18}$ dollars", "18"),
    ("\\boxed{3\\sqrt{2}}", None),
    # phrases
    ("**Final Answer**: $23", "23"),
    ("Answer:\n\n**23**", "23"),
    ("Answer: 3+4=7", "7"),
    ("The final answer is therefore 18 apples, since 3 are gone.", "18"),
    ("The answer to the question is 18.", "18"),
    ("The answer is below.\nSo 18.", "18"),
    ("The answer is 0,7", None),
    ("I checked the answer. There are 18.", "18"),
    ("答案是18。", "18"),
    ("答案：18个", "18"),
    # thinking
    ("reasoning with 5\n</think>\n#### 42", "42"),
    ("<think>a</think></think>\n#### 42", "42"),
    ("<think>a</think>\n#### 42</think>", "42"),
    ("<think>a <think> b</think>\n#### 42", "42"),
    ("#### 42\n<think>wait", None),
    ("<think>\\boxed{4}</think>", None),
    ("<THINK>#### 3</THINK>\n#### 4", "4"),
    ("<thinking>#### 3</thinking>\n#### 4", "4"),
    ("<think>\nQuestion: hm\n</think>\n#### 5", "5"),
    # an invented next question
    ("#### 14\n\nQ: 3?\nA: 7", "14"),
    ("#### 14\nQuestion 2: x\n#### 7", "14"),
    ("#### 14\n\n### Problem\n#### 7", "14"),
    ("#### 14\nUser: hi 5", "14"),
    ("6+8=14\n\nQuestion: 3+4?\n#### 7", "14"),
    ("\nQuestion: 1+1?\n#### 2", "2"),
    # special tokens
    ("#### 18</s>", "18"),
    ("#### 18<|eot_id|>", "18"),
    ("#### 18<pad><pad>", "18"),
    ("#### 18<｜end▁of▁sentence｜>", "18"),
    ("<s>#### 18", "18"),
    ("<|im_start|>assistant\n#### 18<|im_end|>\n<|im_start|>user\nWhat is 2+2?\n#### 4", "18"),
]

FORMAT = [
    ("#### 42", True),
    ("so 6*7=42\n#### 42\n\n  \n", True),
    ("####  42  ", True),
    ("#### $1,042.50", True),
    ("#### -42.", True),
    ("<think>\nline one\nline two\n</think>\n#### 42", True),
    ("<think>x</think>\n\n\n#### 42", True),
    ("<think>x</think>#### 42", True),
    ("x\n</think>\n#### 42", True),
    ("<think>#### 6</think>\n#### 42", True),
    ("#### 64<|im_end|><|endoftext|>", True),
    ("####333", False),
    ("##### 42", False),
    ("### 42", False),
    ("so it is #### 42", False),
    ("#### 42 apples", False),
    ("#### x = 42", False),
    ("#### **42**", False),
    ("#### \\boxed{42}", False),
    ("#### ", False),
    ("#### seven", False),
    ("#### 0,7", False),
    ("#### 42\nSo 42.", False),
    ("#### 42\n\\boxed{42}", False),
    ("#### 1\n#### 2\n#### 333", False),
    ("#### 42\n#### 42", False),
    ("#### 42 #### 42", False),
    (RUN_ON, False),
    ("6+8=14\n\nQuestion: 3+4?\n#### 7", False),
    ("\\boxed{5}\n\nQuestion: 3+4?\n#### 7", False),
    ("<think>t</think></think>\n#### 333", False),
    ("<think>t</think>\n#### 333</think>", False),
    ("<think>a</think><think>b</think>\n#### 3", False),
    ("#### 42\n<think>x</think>", False),
    ("<think>#### 42", False),
    ("\\boxed{42}", False),
    ("42", False),
    ("", False),
]


def short(value: object) -> str | None:
    return ascii(value[:40]) if isinstance(value, str) else None


@pytest.mark.parametrize(("completion", "gold", "correct", "prediction"), GRADED, ids=short)
def test_grades(completion: str, gold: str, correct: bool, prediction: str | None) -> None:
    grade = grade_number(completion, gold)
    assert (grade.correct, grade.prediction, grade.error) == (correct, prediction, None)


@pytest.mark.parametrize(("completion", "prediction"), EXTRACTED, ids=short)
def test_the_first_place_that_exists_decides(completion: str, prediction: str | None) -> None:
    assert grade_number(completion, "1000003").prediction == prediction


@pytest.mark.parametrize(("completion", "follows"), FORMAT, ids=short)
def test_format(completion: str, follows: bool) -> None:
    assert grade_number(completion, "1000003").format_ok is follows


def test_format_does_not_depend_on_lines_inside_thinking() -> None:
    for lines in range(5):
        assert grade_number(f"<think>{'line' + chr(10) * lines}</think>\n#### 42", "42").format_ok


def test_strict_is_right_in_the_asked_format() -> None:
    assert grade_number("#### 42", "42").correct_strict
    assert not grade_number("#### 41", "42").correct_strict
    loose = grade_number("The answer is 42.", "42")
    assert loose.correct
    assert not loose.correct_strict


@pytest.mark.parametrize(
    ("completion", "gold", "correct", "format_ok"),
    [
        ("#### Monday", "Monday", True, True),
        ("#### monday.", "Monday", True, True),
        ("\\boxed{\\text{Monday}}", "Monday", True, False),
        ("#### Monday\nas said", "Monday", True, False),
        ("#### 3:4", "3:4", True, True),
        ("#### 3", "3:4", False, True),
        ("#### Tuesday", "Monday", False, True),
        # only to what follows the marker or stands in a box
        ("It is Monday", "Monday", False, False),
        ("The answer is Monday", "Monday", False, False),
        ("<think>#### Monday</think>", "Monday", False, False),
        ("#### Monday or Tuesday", "Monday", False, True),
    ],
)
def test_a_gold_that_is_no_number_is_compared_as_text(
    completion: str, gold: str, correct: bool, format_ok: bool
) -> None:
    grade = grade_number(completion, gold)
    assert (grade.correct, grade.format_ok) == (correct, format_ok)
    assert grade.correct_strict == (correct and format_ok)


def test_final_answer_text() -> None:
    assert final_answer_text("so\n#### a, b") == ("a, b", True)
    assert final_answer_text("\\boxed{a, b}") == ("a, b", False)
    assert final_answer_text("a, b") == (None, False)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (SOLUTION, "45000"),
        ("#### 1,072", "1072"),
        ("18", "18"),
        ("$<<3*6=18>>18", "18"),
        ("0.75", "0.75"),
        ("3/4", "3/4"),
        ("#### 1\n#### 2", "2"),
    ],
)
def test_gold_answer(text: str, answer: str) -> None:
    assert gold_answer(text) == answer
    assert gold_answer(gold_answer(text)) == answer


@pytest.mark.parametrize("text", ["", "#### ", "so 18\n#### none", "unknown", "48+24=<<48+24=72>>"])
def test_a_gold_without_a_number_is_named(text: str) -> None:
    with pytest.raises(UserError, match="states no number") as error:
        gold_answer(text)
    assert repr(text) in str(error.value)


def test_the_same_in_any_thread() -> None:
    pairs = [("\\boxed{3}", "3"), ("#### 1,250", "1250"), ("#### 0,7", "7"), (RUN_ON, "14")] * 50
    here = [grade_number(*pair) for pair in pairs]
    assert [grade.correct for grade in here[:4]] == [True, True, False, True]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda pair: grade_number(*pair), pairs)) == here
    there: list[Grade] = []
    thread = threading.Thread(target=lambda: there.extend(grade_number(*pair) for pair in pairs))
    thread.start()
    thread.join()
    assert there == here


def test_a_defect_of_the_grader_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(text: str) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(grading, "extract", broken)
    assert grade_number("#### 3", "3") == Grade(False, False, False, None, error="ZeroDivisionError: planted")


HOSTILE = [
    *(
        "9",
        "1 ",
        "1,",
        "1/",
        "1 1/",
        "1e",
        "#",
        "#### ",
        "#### 1\n",
        "####a\n",
        "½<|######## ",
        "\\boxed{",
        "\\boxed{}",
    ),
    *(
        "<think>",
        "</think>",
        "<|",
        "<|a|>",
        "<s>",
        "answer is ",
        "Answer:\n",
        "**",
        "**a",
        "`",
        "\\frac{1}{",
        "\\text{",
    ),
    *(
        "-",
        "1 - ",
        "= ",
        "(",
        "<a ",
        "x1 ",
        "1. a\n",
        "²",
        "½",
        "１",
        "\u200b",
        "minus ",
        "1 000 ",
        "'000",
        "×10^",
        "<<",
    ),
]


@pytest.mark.parametrize("unit", HOSTILE, ids=ascii)
@pytest.mark.parametrize("around", ["{}", "#### {}", "\\boxed{{{}", "Answer: {}", "{}\n#### 5", "<think>{}</think> 5"])
def test_long_hostile_text_is_graded(unit: str, around: str) -> None:
    """A pattern that backtracks would not come back from 100,000 characters."""
    text = around.format(unit * (100_000 // len(unit)))
    assert grade_number(text, "1000003").error is None
    assert text.startswith(cut_at_stop_strings(text))


TOKENS = [
    *(
        "#### ",
        "####",
        "\\boxed{",
        "}",
        "<think>",
        "</think>",
        "\n",
        "Answer: ",
        "the answer is ",
        "5",
        "1,250",
        "0,7",
        " ",
        "=",
    ),
    *(
        "<|im_end|>",
        "\nQuestion:",
        "not ",
        "or ",
        "²",
        "-",
        "$",
        "%",
        "{",
        "\\frac{1}{2}",
        "x",
        "４",
        ".",
        "**",
        "\ud800",
    ),
]


@given(
    st.lists(st.sampled_from(TOKENS), max_size=25).map("".join) | st.text(),
    st.sampled_from(["5", "1250", "", "x", "3:4"]),
)
def test_any_completion_gets_a_consistent_grade(completion: str, gold: str) -> None:
    grade = grade_number(completion, gold)
    assert grade.error is None
    assert grade.correct_strict == (grade.correct and grade.format_ok)
    assert not (grade.correct and grade.prediction is None)
    found = extract(completion)
    if found.number is not None:
        assert grade_number(f"#### {found.number.text}", found.number.text).correct_strict
    if grade.format_ok:
        assert found.source == "marker"


@given(st.text(alphabet="5# \nQ:uestion<think>/"))
def test_the_cut_keeps_a_prefix_and_is_stable(text: str) -> None:
    cut = cut_at_stop_strings(text)
    assert text.startswith(cut)
    assert cut_at_stop_strings(cut) == cut


def test_what_ends_generation_also_ends_what_is_graded() -> None:
    assert set(RolloutConfig().stop) <= set(STOP_STRINGS)


def test_special_tokens_and_thinking() -> None:
    assert without_special_tokens("<|im_start|>assistant\nHi<|x|>!<|im_end|>\n<|im_start|>user") == "\nHi  !"
    assert outside_thinking("<think>a") is None
    visible = outside_thinking("<think>a</think>b")
    assert visible == ("\nb", "b", True)


def test_every_gsm8k_solution_is_right_by_its_own_answer(gsm8k: Path) -> None:
    lines = [line for name in ("train", "test") for line in (gsm8k / f"{name}.jsonl").read_text().splitlines()]
    solutions = [json.loads(line)["answer"] for line in lines]
    assert len(solutions) == 8792
    wrong = [text for text in solutions if not grade_number(text, gold_answer(text)).correct_strict]
    assert wrong == []
