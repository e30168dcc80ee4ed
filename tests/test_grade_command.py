from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from rlforge_cli.commands.grade import grade
from rlforge_cli.errors import UserError
from rlforge_cli.tasks import grading

app = typer.Typer()
app.command()(grade)

ROWS: list[dict[str, Any]] = [
    {"completion": "48+24=72\n#### 72", "answer": "48+24=<<48+24=72>>72\n#### 72"},
    {"completion": "The answer is [red]5[/red].", "answer": 5},
    {"completion": "<think>Perhaps #### 33 but", "answer": "33", "finish_reason": "length"},
    {"completion": "#### 0.1", "answer": 0.1, "finish_reason": "stop"},
    {"completion": "one\u2028two\u0085\n#### 7", "answer": "8", "extra": None},
]


def run(file: str, *words: str, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(app, [file, *words], input=stdin, catch_exceptions=False)


def write(path: Path, rows: list[Any]) -> str:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def test_json(tmp_path: Path) -> None:
    result = run(write(tmp_path / "c.jsonl", ROWS), "--json")
    assert result.exit_code == 0
    value = json.loads(result.stdout)
    assert {key: value[key] for key in ("n", "accuracy", "accuracy_strict", "grader_errors")} == {
        "n": 5,
        "accuracy": 0.6,
        "accuracy_strict": 0.4,
        "grader_errors": 0,
    }
    items = value["items"]
    assert [item["correct"] for item in items] == [True, True, False, True, False]
    assert [item["prediction"] for item in items] == ["72", "5", None, "0.1", "7"]
    assert [item["format_ok"] for item in items] == [True, False, False, True, True]
    assert [item["reward"] for item in items] == pytest.approx([1.2, 1.0, -0.5, 1.2, 0.2], abs=1e-12)
    assert items[2]["components"] == {"correctness": 0.0, "format": 0.0, "truncation": -0.5}


def test_table(tmp_path: Path) -> None:
    result = run(write(tmp_path / "c.jsonl", ROWS))
    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines() if line.strip()]
    assert lines[0] == ["#", "right", "prediction", "answer", "format", "reward"]
    assert lines[2] == ["1", "yes", "72", "72", "yes", "1.20"]
    assert lines[4] == ["3", "no", "-", "33", "no", "-0.50"]
    assert result.stdout.strip().endswith("3 of 5 right: accuracy 60.00%, asked format only 40.00%")


def test_stdin_bom_crlf_and_blank_lines() -> None:
    data = b'\xef\xbb\xbf{"completion": "#### 7", "answer": "7"}\r\n\n{"completion": "", "answer": "7"}'
    assert json.loads(run("-", "--json", stdin=data).stdout)["accuracy"] == 0.5


def test_golds_that_are_text(tmp_path: Path) -> None:
    file = write(tmp_path / "c.jsonl", [{"completion": "#### Monday", "answer": "monday"}])
    assert json.loads(run(file, "--task", "jsonl", "--json").stdout)["accuracy"] == 1.0
    with pytest.raises(UserError, match=r"c\.jsonl:1: answer 'monday' states no number.*--task jsonl"):
        run(file)


def test_grader_errors_are_counted_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(text: str) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(grading, "extract", broken)
    file = write(tmp_path / "c.jsonl", ROWS[:1])
    value = json.loads(run(file, "--json").stdout)
    assert value["grader_errors"] == 1
    assert value["items"][0]["reward"] is None
    assert value["items"][0]["error"] == "ZeroDivisionError: planted"
    assert "1 grader errors" in run(file).stdout


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"completion": "#### 1", "answer": "1"}\n{"completion": "x"', r"c\.jsonl:2: not valid JSON"),
        (b'{"completion": "#### 1"}', r"c\.jsonl:1: needs a text 'answer'; it has 'completion'"),
        (b'{"completion": null, "answer": "1"}', r"c\.jsonl:1: needs a text 'completion'; it is None"),
        (b'{"completion": "x", "answer": " "}', r"c\.jsonl:1: needs a text 'answer'; it is ' '"),
        (b'{"completion": "x", "answer": true}', r"c\.jsonl:1: needs a text 'answer'"),
        (b'{"completion": "x", "answer": NaN}', r"c\.jsonl:1: needs a text 'answer'"),
        (b"[1]", r"c\.jsonl:1: expected a JSON object"),
        (b"[" * 100_000, r"c\.jsonl:1: not valid JSON"),
        (b"\n\n", r"c\.jsonl: holds no lines"),
        (b"\xff\xfe", r"c\.jsonl: is not UTF-8"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "c.jsonl"
    file.write_bytes(content)
    with pytest.raises(UserError, match=message):
        run(str(file))


def test_bad_arguments_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read: No such file"):
        run(str(tmp_path / "none.jsonl"))
    with pytest.raises(UserError, match="did you mean 'gsm8k'"):
        run(write(tmp_path / "c.jsonl", ROWS), "--task", "gsm8")
