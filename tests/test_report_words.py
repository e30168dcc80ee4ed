"""Two languages, one report: the same keys, the same values in them, and no sentence left behind."""

from __future__ import annotations

import ast
import json
import re
import string
from pathlib import Path

import pytest
from comparison_files import paired, versus, write_run
from report_files import small_experiment

import rlforge_cli.report
from rlforge_cli.comparison import Comparison
from rlforge_cli.report import LANGUAGES, control_first, sentences_zh, words_en, words_zh, write_report
from rlforge_cli.report.text import CODE, END_CODE, END_STRONG, STRONG, code
from rlforge_cli.report.words import Words
from rlforge_cli.run_dir import RunDir

CHINESE = re.compile(r"[\u4e00-\u9fff]")


def placeholders(template: str) -> set[str | None]:
    return {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}


def test_the_languages_have_the_same_keys_in_the_same_order() -> None:
    assert list(words_en.TABLE) == list(words_zh.TABLE)


@pytest.mark.parametrize("key", words_en.TABLE)
def test_a_sentence_says_the_same_values_in_every_language(key: str) -> None:
    assert placeholders(words_en.TABLE[key]) == placeholders(words_zh.TABLE[key])
    for table in (words_en.TABLE, words_zh.TABLE):
        assert table[key].count("`") % 2 == 0
        assert table[key].count("**") % 2 == 0
    marks = [re.findall("`[^`]+`", table[key]) for table in (words_en.TABLE, words_zh.TABLE)]
    assert sorted(marks[0]) == sorted(marks[1])


def test_every_key_that_the_code_says_exists_and_none_is_idle() -> None:
    said: set[str] = set()
    families: set[str] = set()
    for path in Path(rlforge_cli.report.__file__).parent.glob("*.py"):
        if path.stem.startswith(("words_", "sentences_")):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in words_en.TABLE:
                said.add(node.value)
            if isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
                families.add(str(node.values[0].value))
            if isinstance(node, ast.BinOp) and isinstance(node.left, ast.Constant):
                families.add(str(node.left.value))
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "say":
                first = node.args[0]
                if isinstance(first, ast.Constant):
                    assert first.value in words_en.TABLE, f"{path.name}:{node.lineno}"
    prefixes = tuple(family for family in families if family.endswith("_") and len(family) > 1)
    assert {key for key in words_en.TABLE if key not in said and not key.startswith(prefixes)} == set()


def test_the_verdicts_in_chinese() -> None:
    say = Words.load("zh")
    verdicts = ("better", "worse", "no_material_difference", "inconclusive", "not_comparable")
    assert [say(f"verdict_{name}") for name in verdicts] == ["确定更好", "确定更差", "无差异", "证据不足", "不可比"]


@pytest.mark.parametrize("lang", LANGUAGES)
def test_values_cannot_make_marks_or_placeholders(lang: str) -> None:
    say = Words.load(lang)
    text = say("ev_change", metric=code("a"), start=f"{STRONG}x{END_STRONG}{{metric}}", end="`b` **c**")
    assert text.count(CODE) == text.count(END_CODE) == 1
    assert STRONG not in text
    assert "{metric}" in text
    assert "`b` **c**" in text


def test_a_sentence_of_compare_shows_its_commands_as_code() -> None:
    say = Words.load("en")
    assert say.sentence("run `rlforge eval a` first") == f"run {CODE}rlforge eval a{END_CODE} first"
    assert say.sentence("a `backtick` stays") == "a `backtick` stays"


# compare's sentences in Chinese


def sentences(result: Comparison) -> set[str]:
    found = {*result.notes, *result.warnings, result.seed_sd_source or ""} - {""}
    for row in result.rows:
        found |= {*row.reasons, *([row.needed["text"]] if row.needed else [])}
    return found


def assert_chinese(found: set[str]) -> None:
    left = {text: sentences_zh.translate(text) for text in found}
    english = {text for text, shown in left.items() if not CHINESE.search(shown)}
    assert english == set()
    for shown in left.values():
        # what stays is names, numbers and commands, never an English clause
        assert not re.search(r"\b(the|was|were|with|only|would|looks|cannot)\b", re.sub("`[^`]*`", "", shown)), shown


def test_the_sentences_of_a_comparison_of_every_kind(tmp_path: Path) -> None:
    a, b = paired(60, 100)
    _, c = paired(20, 60)
    metrics = '{"step": 1, "adv_std": null, "_nonfinite": ["adv_std"], "completions_generated": 64}\n{"torn'
    write_run(tmp_path, "control", a, metrics=metrics)
    write_run(tmp_path, "seed", a, seed=1)
    write_run(tmp_path, "again", b, seed=0)
    write_run(tmp_path, "lr", b, config={"optimizer.lr": 2e-6}, summary={"chosen_on": "test"})
    write_run(tmp_path, "both", c, config={"optimizer.lr": 3e-6, "reward.format": 0.1})
    write_run(tmp_path, "same", a, config={"optimizer.lr": 4e-6})
    more = '{"step": 1, "completions_generated": 640}\n'
    write_run(tmp_path, "more", c, config={"optimizer.lr": 5e-6}, metrics=more)
    for key, value in {"split": "train", "task": "x", "task_hash": "x", "prompt_hash": "x", "grader": "x"}.items():
        write_run(tmp_path, f"un-{key}", b, config={"grpo.kl_coef": 0.1 + len(key)}, summary={key: value})
    write_run(tmp_path, "hot", b, config={"grpo.kl_coef": 1.0}, summary={"decoding": {"temperature": 1.0}})
    write_run(tmp_path, "short", b[:-1], config={"grpo.kl_coef": 2.0})
    write_run(tmp_path, "none", None, config={"grpo.kl_coef": 3.0})
    summary_only = write_run(tmp_path, "summary", b, config={"grpo.kl_coef": 4.0})
    (summary_only / "evals" / "test.jsonl").unlink()
    for status, more_info in (
        ("failed", {"steps": 3, "reason": "why; so"}),
        ("interrupted", {"steps": 4}),
        ("crashed", {}),
    ):
        info = {"status": status, **more_info}
        write_run(tmp_path, status, b, config={"grpo.kl_coef": 5.0 + len(status)}, info=info)
    (write_run(tmp_path, "spoiled", b, config={"grpo.kl_coef": 9.0}) / "config.json").write_text("{")
    folder = write_run(tmp_path, "folder", b, config={"grpo.kl_coef": 10.0})
    for name in ("metrics.jsonl", "evals/test.jsonl"):
        (folder / name).unlink(missing_ok=True)
        (folder / name).mkdir()
    latin = write_run(tmp_path, "latin", b, config={"grpo.kl_coef": 11.0})
    (latin / "evals" / "test.jsonl").write_bytes(b"\xe9\n")
    names = [path.name for path in sorted(tmp_path.iterdir()) if path.name != "control"]
    found = sentences(versus(tmp_path, "control", *names))
    assert len(found) > 25
    assert_chinese(found)


def test_the_sentences_of_other_scopes_rules_and_errors(tmp_path: Path) -> None:
    a, b = paired(60, 100)
    _, c = paired(64, 89)
    write_run(tmp_path, "control", a)
    write_run(tmp_path, "one", b, config={"optimizer.lr": 2e-6})
    write_run(tmp_path, "two", c, config={"optimizer.lr": 3e-6})
    found: set[str] = set()
    for options in (
        {"scope": "checkpoint"},
        {"scope": "checkpoint", "margin": 1.0, "grader_error": 0.5},
        {"rule": "simple"},
        {"grader_error": 4.5},
        {"seed_sd": 0.01},
        {"seed_sd": 0.5, "margin": 0.9},
        {"evaluation": "other"},
    ):
        found |= sentences(versus(tmp_path, "control", "one", "two", **options))
    wins = [f"q{i}" for i, (x, y) in enumerate(zip(a, b, strict=True)) if y > x]
    second = {"name": "math-verify", "n": len(a), "keys": {"only_grader": wins, "only_second": wins}}
    for name in ("one", "control"):
        (tmp_path / name / "audit.json").write_text(json.dumps({"second_grader": second}))
        disputed = sentences(versus(tmp_path, "control", "one", scope="checkpoint"))
        assert any("undo the finding" in text for text in disputed)
        found |= disputed
    write_run(tmp_path, "one-more", b, config={"optimizer.lr": 2e-6}, seed=1)
    write_run(tmp_path, "control-more", a, seed=1)
    found |= sentences(versus(tmp_path, "control", "one", "two"))
    assert_chinese(found)


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        ("it repeats seed 1 of run-02", "它与 run-02 的种子 1 重复"),
        (
            "run-03 is left out of the arm of run-01: it repeats seed 0 of run-01",
            "run-03 未计入 run-01 一组：它与 run-01 的种子 0 重复",
        ),
        (
            "7 seeds an arm detect 4.0 pp with 80% power (has 1 and 2)",
            "每组 7 个种子能以 80 % 的功效检出 4.0 个百分点（现有 1 和 2）",
        ),
        (
            "failed after 3 steps (no signal): continue it with `rlforge train --resume run-03`",
            "在 3 步后失败（no signal）：用 `rlforge train --resume run-03` 继续",
        ),
        (
            "prompts differ on 3 items (first: 'q1'); different tasks (a and b)",
            "有 3 题的提示词不同（首个：'q1'）；任务不同（a and b）",
        ),
        ("a sentence nobody translated", "a sentence nobody translated"),
        ("{0} is scored on training data", "{0} 是在训练数据上评估的"),
    ],
)
def test_a_sentence_in_chinese(english: str, chinese: str) -> None:
    assert sentences_zh.translate(english) == chinese


def test_the_whole_report_is_chinese(tmp_path: Path) -> None:
    small_experiment(tmp_path)
    info = json.loads((tmp_path / "run-03" / "run.json").read_text())
    (tmp_path / "run-03" / "run.json").write_text(json.dumps(info | {"status": "running", "steps": 40}))
    runs = control_first(RunDir.all(tmp_path), tmp_path)
    markdown, page = write_report(runs, runs_dir=tmp_path, out=tmp_path / "r", lang="zh")
    text = re.sub(r"```.*?```|`[^`]*`|run-\d+", "", markdown.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert not re.search(r"\b(the|of|and|with|is|was|run|not|no)\b", text)
    assert '<html lang="zh-Hans">' in page.read_text(encoding="utf-8")
    assert "## 我的解释" in text
    assert "在 40 步后崩溃" in text
