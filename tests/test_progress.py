from __future__ import annotations

import io

import pytest
from rich.console import Console

from rlforge_cli import progress as module
from rlforge_cli.progress import Progress, duration, fields

RECORD = {
    "step": 1, "reward": 0.5, "reward/correctness": 0.4, "reward/format": 0.1, "accuracy": 0.4,
    "completion_length": 31.25, "adv_std": 1.0, "zero_std_fraction": 0.125, "clip_fraction": 0.0, "kl_ref": 0.01,
    "entropy": 0.2, "tokens_per_s": 1234.5,
}  # fmt: skip


def test_the_gauges_and_each_reward_part_are_shown():
    shown = dict(fields(RECORD))
    assert shown["reward"] == "0.500"
    assert shown["correctness"] == "0.400"
    assert shown["zero_std"] == "0.12"
    assert shown["tok/s"] == "1234"
    assert "trunc" not in shown
    assert "grad" not in dict(fields(RECORD | {"grad_norm": None}))


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (75, "1:15"), (59.6, "1:00"), (3700, "1:01:40")])
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_a_pipe_gets_plain_lines_first_last_and_skipped(capsys):
    with Progress("run-07", total=50) as progress:
        for step in range(1, 51):
            progress.step(RECORD | {"step": step, "skipped": step == 20})
        progress.note("validation [x]")
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[2] for line in lines[:-1]] == ["1/50", "20/50", "50/50"]
    assert lines[1].endswith("SKIPPED")
    assert lines[-1] == "validation [x]"
    assert not any("\x1b" in line for line in lines)


def test_quiet_says_nothing(capsys):
    with Progress("run-07", total=2, quiet=True) as progress:
        progress.step(RECORD)
        progress.note("x")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_terminal_gets_a_panel_that_fits(monkeypatch, width):
    stream = io.StringIO()
    console = Console(file=stream, width=width, height=30, force_terminal=True, markup=False, color_system=None)
    monkeypatch.setattr(module, "make_console", lambda _: console)
    with Progress("run-07", total=10) as progress:
        progress.step(RECORD | {"val_accuracy": 0.5})
    text = stream.getvalue()
    assert "run-07 step 1/10" in text
    assert "correctness 0.400" in text
    assert "best validation 0.500" in text
    assert any(set(line.strip()) <= {"━", "╸", "╺"} and line.strip() for line in text.splitlines())
    visible = [line.rstrip() for line in text.replace("\r", "\n").split("\n") if "\x1b" not in line]
    assert all(len(line) <= width for line in visible)


def test_what_came_before_the_first_step_is_not_expected_again(monkeypatch, capsys):
    clock = iter([0.0, 110.0, 120.0, 130.0])  # a minute and forty seconds of probes, then steps of ten seconds
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(module, "SECONDS_BETWEEN_LINES", 0)
    with Progress("smoke", total=20) as progress:
        for step in (1, 2, 3):
            progress.step(RECORD | {"step": step, "seconds_total": 10.0})
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition("ETA ")[2].split()[0] for line in lines] == ["3:10", "3:00", "2:50"]
    assert "elapsed 1:50" in lines[0]
