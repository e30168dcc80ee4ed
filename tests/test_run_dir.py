from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from rlforge_cli.errors import UserError
from rlforge_cli.jsonl import read_records
from rlforge_cli.run_dir import LineWriter, RunDir, json_line, write_json


def made(runs: Path = Path("runs"), **info) -> RunDir:
    run = RunDir.create(runs)
    run.update_info(id=run.id, status="completed", **info)
    return run


def test_runs_are_numbered_in_order_of_creation():
    assert [made().id for _ in range(3)] == ["run-01", "run-02", "run-03"]
    assert [run.id for run in RunDir.all(Path("runs"))] == ["run-01", "run-02", "run-03"]


def test_runs_started_at_once_get_folders_of_their_own():
    with ThreadPoolExecutor(12) as pool:
        runs = list(pool.map(lambda _: RunDir.create(Path("runs")).id, range(12)))
    assert len(set(runs)) == 12


def test_ids_sort_as_numbers():
    for name in ("run-99", "run-100", "run-09"):
        write_json_run(Path("runs") / name)
    assert [run.id for run in RunDir.all(Path("runs"))] == ["run-09", "run-99", "run-100"]


def write_json_run(path: Path) -> None:
    path.mkdir(parents=True)
    write_json(path / "run.json", {"status": "completed"})


def test_a_run_is_found_by_id_or_path_and_an_unknown_one_names_the_nearest():
    run = made()
    assert RunDir.find("run-01", Path("runs")).path == RunDir.find(str(run.path), Path("elsewhere")).path == run.path
    with pytest.raises(UserError, match="run-01"):
        RunDir.find("run-1", Path("runs"))
    with pytest.raises(UserError, match="no runs yet"):
        RunDir.find("run-01", Path("nothing"))


def test_non_finite_values_become_null_and_are_named():
    record = {
        "reward": np.float64(0.5),
        "kl": float("nan"),
        "grad_norm": torch.tensor(float("inf")),
        "x": float("-inf"),
        "n": np.int64(3),
    }
    line = json_line(record)

    def refuse(token: str) -> None:
        raise AssertionError(token)

    parsed = json.loads(line, parse_constant=refuse)
    assert parsed.pop("_nonfinite") == ["kl", "grad_norm", "x"]
    assert parsed == {"reward": 0.5, "kl": None, "grad_norm": None, "x": None, "n": 3}


def test_a_torn_last_line_is_cut_before_appending():
    run = made()
    run.metrics_file.write_bytes(b'{"step":1,"reward":0.2}\n{"step":2,"rew')
    writer = LineWriter(run.metrics_file)
    writer.write({"step": 2, "reward": 0.3})
    writer.write({"step": 3, "reward": 0.4})
    writer.close()
    assert [record["step"] for record in run.metrics()] == [1, 2, 3]
    assert len(run.metrics_file.read_text().splitlines()) == 3


def test_a_folder_that_lost_its_run_file_is_named_not_called_missing():
    run = made()
    run.run_file.unlink()
    with pytest.raises(UserError, match=f"{run.id}: no run.json in it"):
        RunDir.find(run.id, run.path.parent)


def test_steps_logged_again_after_a_resume_count_once_with_their_later_values():
    run = made()
    writer = LineWriter(run.metrics_file)
    for step in [*range(16), *range(10, 100)]:
        writer.write({"step": step, "resumed": step >= 10 and writer.file.tell() > 0})
    writer.close()
    steps = [record["step"] for record in run.metrics()]
    assert steps == list(range(100))
    assert sum(steps) / len(steps) == 49.5


@pytest.mark.parametrize(("after", "kept"), [(9, range(10)), (-1, []), (20, range(16))])
def test_a_resume_takes_out_the_steps_that_it_makes_again_and_nothing_else(after, kept):
    run = made()
    lines = [b'{"step": %d, "reward": NaN}\n' % step for step in range(16)]
    foreign = [b"no record\n", b'{"note": 1}\n', b'{"step": "12"}\n', b"[" * 10_000 + b"\n", b"\xff\xfe\n"]
    run.metrics_file.write_bytes(b"".join([*foreign, *lines, b'{"step": 16, "rew']))
    LineWriter(run.metrics_file, after=after).close()
    assert run.metrics_file.read_bytes() == b"".join([*foreign, *(lines[step] for step in kept)])
    assert list(run.path.glob(".metrics*")) == []


def test_line_separators_inside_a_text_do_not_split_a_record():
    run = made()
    text = "step one\u2028step two\u0085end\u2029 #### 5 \U0001f600 \ud800"
    writer = LineWriter(run.metrics_file)
    writer.write({"step": 1, "completion": text})
    writer.close()
    assert [record["completion"] for record in read_records(run.metrics_file)[0]] == [text]


def test_replacing_a_file_leaves_the_old_one_when_the_disk_is_full(monkeypatch):
    path = Path("run.json")
    write_json(path, {"a": 1})

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_json(path, {"a": 2})
    assert json.loads(path.read_text()) == {"a": 1}
    assert list(Path().iterdir()) == [path]


def test_a_second_writer_is_refused_and_named_and_a_dead_one_is_seen():
    run = made(pid=4242, host="elsewhere")
    run.update_info(status="running")
    code = (
        "import sys, time; from pathlib import Path; from rlforge_cli.run_dir import RunDir\n"
        "with RunDir(Path(sys.argv[1])).writing(): print('held', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(run.path.resolve())], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "held\n"
        assert run.info()["status"] == "running"
        with pytest.raises(UserError, match="pid 4242 on elsewhere"), run.writing():
            pass
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    assert run.info()["status"] == "crashed"
    with run.writing():
        assert run.is_locked()


@pytest.mark.parametrize("content", ["{", "[1]", ""])
def test_a_damaged_run_is_one_line(content):
    run = made()
    run.run_file.write_text(content)
    with pytest.raises(UserError, match=r"run\.json"):
        run.info()
