"""`rlforge ls` and `rlforge show`: what they say, and runs whose files are damaged or odd."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from comparison_files import write_run
from typer.testing import CliRunner

from rlforge_cli.__main__ import app, register
from rlforge_cli.errors import UserError
from rlforge_cli.show import change_text, interval, percent

BIG = 10**400


def rlforge(*words: str) -> str:
    if not app.registered_commands:
        register()
    done = CliRunner().invoke(app, [*words, "--runs-dir", "runs"])
    if done.exception is not None:
        raise done.exception
    return done.stdout


@pytest.fixture
def runs() -> Path:
    folder = Path("runs")
    write_run(folder, "run-01", [1, 0])
    changes = [{"key": "grpo.kl_coef", "from": 0.0, "to": 0.001}, {"key": "rollout.group_size", "from": 8, "to": 4}]
    write_run(folder, "run-02", [1, 1], info={"parent": "run-01", "changes": changes})
    write_run(folder, "run-03", [1, 0], seed=1, info={"parent": "run-01", "seed": 1})
    return folder


def test_a_list_names_the_control_of_each_change(runs: Path) -> None:
    lines = {line.split()[0]: line.split() for line in rlforge("ls").split("\n") if "run-" in line}
    assert lines["run-01"][1:5] == ["completed", "-", "-", "0"]
    assert lines["run-02"][1:7] == ["completed", "run-01", "kl_coef", "0→0.001,", "group_size", "8→4"]
    assert lines["run-03"][1:5] == ["completed", "run-01", "repeat", "1"]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ([{"key": "optimizer.lr", "from": 1e-6, "to": 2e-06}], "lr 1e-06→2e-06"),
        ([{"key": "run.note", "from": "", "to": None}], "note none→none"),
        ([{"key": "a.b.c", "from": True, "to": [1]}, 5, {"from": 1}], "c True→[1]"),
        ([{"key": 7}], "7 none→none"),
        (None, ""),
        ("x", ""),
        ({"key": "a"}, ""),
    ],
)
def test_changes(changes: object, text: str) -> None:
    assert change_text(changes) == text


def test_scores_of_odd_summaries() -> None:
    assert interval({"accuracy": 0.579, "ci95": [0.552, 0.605]}) == "57.9 % [55.2, 60.5]"
    assert interval({"accuracy": 0.579}) == "57.9 %"
    assert (
        interval({"accuracy": 0.579, "ci95": [0.5]}) == interval({"accuracy": 0.579, "ci95": ["a", None]}) == "57.9 %"
    )
    assert (percent("x"), percent(True), percent(BIG)) == ("-", "-", "inf %")


@pytest.mark.parametrize(
    "summary",
    ["[1]", "{}", '{"accuracy": null, "ci95": 5}', f'{{"accuracy": {BIG}, "ci95": [{BIG}, null]}}', "[" * 99_999],
)
def test_an_odd_evaluation_is_no_crash(runs: Path, summary: str) -> None:
    (runs / "run-02" / "evals" / "test.json").write_text(summary)
    assert "run-02" in rlforge("ls")
    assert len(json.loads(rlforge("ls", "--json"))["runs"]) == 3
    assert "run-02" in rlforge("show", "run-02")
    json.loads(rlforge("show", "run-02", "--json"))


@pytest.mark.parametrize("info", ['{"best": [1], "budget": 5, "changes": "x", "parent": 7}', "[" * 99_999, "[]"])
def test_an_odd_run_is_a_row(runs: Path, info: str) -> None:
    (runs / "run-02" / "run.json").write_text(info)
    assert "run-02" in rlforge("ls")
    if info.startswith("{"):
        assert "run-02" in rlforge("show", "run-02")
    else:
        with pytest.raises(UserError, match=r"run\.json"):
            rlforge("show", "run-02")


def test_metrics_beyond_any_float(runs: Path) -> None:
    lines = [json.dumps({"step": i, "kl_ref": BIG, "entropy": -BIG, "grad_norm": 1.0}) for i in range(1, 61)]
    (runs / "run-01" / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    assert "not finite  kl_ref, entropy" in rlforge("show", "run-01")
    assert json.loads(rlforge("show", "run-01", "--json"))["last"]["kl_ref"] is None
    with pytest.raises(SystemExit) as ended:  # doctor calls it lost
        rlforge("doctor", "run-01")
    assert ended.value.code == 1


@pytest.mark.parametrize("command", ["show", "doctor"])
def test_metrics_that_are_no_file_are_an_error_of_one_line(runs: Path, command: str) -> None:
    os.mkfifo(runs / "run-01" / "metrics.jsonl")
    with pytest.raises(UserError, match=r"metrics.jsonl: cannot be read: not a regular file"):
        rlforge(command, "run-01")


def test_a_narrow_list_names_the_change_with_and_without_a_control(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    from rlforge_cli.show import narrow

    changes = [{"key": "rollout.group_size", "from": 8, "to": 4}]
    for row in ({"run": "run-01", "status": "completed", "changes": changes}, {"run": "run-02", "status": "completed"}):
        narrow(Console(width=60), row)
    narrow(Console(width=60), {"run": "run-03", "status": "completed", "changes": changes, "parent": "run-01"})
    printed = capsys.readouterr().out
    assert "change: group_size 8→4" in printed
    assert "change from run-01: group_size 8→4" in printed
    assert printed.count("change") == 2
