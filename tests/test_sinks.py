from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from rlforge_cli.errors import UserError
from rlforge_cli.sinks import numbers, open_sinks

RECORD = {"step": 3, "reward": 0.5, "reward/format": 0.25, "kl_ref": None, "skipped": False, "note": "x"}


def test_only_numbers_travel():
    assert numbers(RECORD) == {"reward": 0.5, "reward/format": 0.25, "skipped": 0.0}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_receives_every_number_at_its_step():
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (sink,) = open_sinks(("tensorboard",), Path("run-01"), {})
    sink.log(RECORD)
    sink.log(RECORD | {"step": 4, "reward": 0.75})
    sink.close()
    events = EventAccumulator("run-01/tensorboard")
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("reward")] == [(3, 0.5), (4, 0.75)]
    assert events.Scalars("reward/format")[0].value == 0.25


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_the_other_two_are_called_the_same_way(name, monkeypatch):
    calls: list = []
    fake = types.ModuleType(name)
    fake.init = lambda **options: calls.append(("init", options))  # type: ignore[attr-defined]
    fake.log = lambda values, step: calls.append(("log", values, step))  # type: ignore[attr-defined]
    fake.finish = lambda: calls.append(("finish",))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, name, fake)
    (sink,) = open_sinks((name,), Path("runs/run-01"), {"a": 1})
    sink.log(RECORD)
    sink.close()
    assert calls[0][1]["name"] == "runs/run-01"
    assert calls[0][1]["config"] == {"a": 1}
    assert ("dir" in calls[0][1]) == (name == "wandb")
    assert calls[1:] == [("log", numbers(RECORD), 3), ("finish",)]


def test_a_sink_that_is_not_installed_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match=r"pip install 'rlforge\[tracking\]'"):
        open_sinks(("wandb",), Path("run-01"), {})
