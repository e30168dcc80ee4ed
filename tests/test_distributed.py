"""Several processes give what one gives: the trainer on toy models, then whole runs through torchrun."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import shared_work
import torch
from interrupted import until
from safetensors.torch import load_file
from toys import toy_policy

from rlforge_cli import distributed, lineage
from rlforge_cli.devices import resolve_device
from rlforge_cli.distributed import ALONE, Ranks
from rlforge_cli.engines.hf import HFEngine
from rlforge_cli.errors import UserError
from rlforge_cli.rollouts import SamplingParams
from rlforge_cli.run_dir import RunDir

RUNS = Path("runs")


def torchrun(*words: str) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *words]


# --- alone


def test_one_process_is_the_identity():
    ranks = Ranks()
    assert (ranks.first, ranks.gather(3), ranks.in_first(lambda: 4), ranks.together(lambda: 5)) == (True, [3], 4, 5)
    assert ranks.share_out("abc", lambda some, places: [c * p for c, p in zip(some, places, strict=True)]) == [
        "", "b", "cc",
    ]  # fmt: skip
    assert ranks.stretch([3, 1, 2]) == range(3)
    assert not torch.distributed.is_initialized()


@pytest.mark.parametrize(
    ("weights", "size", "expected"),
    [
        ([1, 1, 4], 2, [range(2), range(2, 3)]),
        ([5] * 8, 2, [range(4), range(4, 8)]),
        ([9], 2, [range(0), range(1)]),
        ([1, 1, 1], 4, [range(1), range(0), range(1, 2), range(2, 3)]),
        ([], 2, [range(0), range(0)]),
    ],
)
def test_stretches_are_neighbours_of_equal_weight_and_cover_everything_once(weights, size, expected):
    cut = [Ranks(rank=rank, size=size).stretch(weights) for rank in range(size)]
    assert [list(part) for part in cut] == [list(part) for part in expected]
    assert [index for part in cut for index in part] == list(range(len(weights)))


def test_what_torchrun_says(monkeypatch):
    assert distributed.place() == (0, 1)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert distributed.place() == (0, 1)  # some cluster's variables, not torchrun's
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert distributed.place() == (1, 2)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    with pytest.raises(UserError, match="2 processes, 1 of them on this host"), distributed.joined():
        pass


def test_a_process_has_the_device_of_its_rank(monkeypatch):
    for name, value in (("RANK", "1"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "1")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [resolve_device(name) for name in ("auto", "cuda", "cpu")] == [
        torch.device("cuda", 1), torch.device("cuda", 1), torch.device("cpu"),
    ]  # fmt: skip
    with pytest.raises(UserError, match="one device for 2 processes"):
        resolve_device("cuda:1")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(
        UserError, match=r"2 processes, and 1 CUDA device here.*--nproc-per-node 1, or --set device=cpu"
    ):
        resolve_device("auto")
    assert resolve_device("cpu") == torch.device("cpu")


def test_a_prompt_is_completed_alike_whoever_has_the_others():
    prompts = [[1], [2, 3], [4], [5, 6, 7], [8]]
    engine = HFEngine(toy_policy())
    params = SamplingParams(max_tokens=8)
    whole = engine.generate(prompts, n=3, params=params, seed=5)
    for rank in range(2):
        part = engine.generate(prompts[rank::2], n=3, params=params, seed=5, places=range(rank, 5, 2))
        assert [[c.completion_ids for c in g] for g in part] == [[c.completion_ids for c in g] for g in whole[rank::2]]
    assert engine.generate([], n=3, params=params, seed=5) == []


@pytest.mark.parametrize("rank", [0, 1])
def test_commands_of_one_process_refuse_several_and_say_so_once(rank):
    variables = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    done = subprocess.run(
        [sys.executable, "-m", "rlforge_cli", "seeds", "run-01"], env=os.environ | variables, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert ("`rlforge seeds` is the work of one process: start it without torchrun" in done.stderr) == (rank == 0)
    assert done.stdout == ""


# --- two processes against one


@pytest.fixture(scope="module")
def of_two(tmp_path_factory) -> list[dict]:
    """What each of two ranks found."""
    folder = tmp_path_factory.mktemp("two")
    program = str(Path(shared_work.__file__))
    done = subprocess.run(torchrun(program, str(folder)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(2)]


def close(got, expected, *, within: float, where: str = "") -> None:
    """Equal in structure, and in every number up to ``within``."""
    if isinstance(expected, dict):
        assert set(got) == set(expected), where
        for key, value in expected.items():
            close(got[key], value, within=within, where=f"{where}/{key}")
    elif isinstance(expected, list):
        assert len(got) == len(expected), where
        for index, value in enumerate(expected):
            close(got[index], value, within=within, where=f"{where}/{index}")
    elif isinstance(expected, float):
        assert got == pytest.approx(expected, rel=within, abs=within), where
    else:
        assert got == expected, where


@pytest.mark.parametrize("name", shared_work.COMPARED)
def test_two_processes_find_what_one_finds(name, of_two):
    alone = json.loads(json.dumps(shared_work.COMPARED[name](ALONE)))
    in_double = name in ("sequence", "token", "share", "one row")
    for found in of_two:
        close(found[name], alone, within=1e-6 if in_double else 1e-5, where=name)
    assert of_two[0][name] == of_two[1][name]  # to the last bit


def test_the_comparison_is_of_something(of_two):
    gradients = of_two[0]["sequence"]["gradients"]
    assert max(abs(v) for values in gradients.values() for v in values) > 0.01
    assert of_two[0]["one row"]["record"]["grad_norm"] > 0
    plain, dynamic = of_two[0]["plain"], of_two[0]["dynamic"]
    assert len({tuple(ids) for group in plain["sampled"][0] for ids in group[1:]}) > 3
    assert not any(record["skipped"] for record in plain["records"])
    assert dynamic["records"][0]["groups_generated"] % 5 == 0
    assert of_two[0]["updates"]["records"][0]["kl_old"] > 0
    assert of_two[0]["poisoned"] == {"skipped": True, "kept": True, "updates": 0, "in_a_row": 1}


def test_what_ends_one_process_ends_both_at_the_same_point(of_two):
    first, last = (found["endings"] for found in of_two)
    assert first[:2] == last[:2] == ["UserError: a", "RunFailed: b"]
    assert (first[2], last[2]) == ("RunFailed: process 1 failed: OSError: c", "OSError: c")
    assert first[3:] == last[3:] == ["of the first", "Terminated: ", "saved", "Terminated: "]


def test_processes_whose_weights_differ_do_not_save(of_two):
    for found in of_two:
        assert found["unlike"][0] == "None"
        assert found["unlike"][1].startswith("RunFailed: step 0: the weights of process 1 are not those of process 0")


SETS = ("G=4", "P=3", "steps=5000", "oversample=1.5", "eval.every=2", "eval.problems=5", "checkpoint.every=2",
        "checkpoint.keep=-1", "log.rollouts_every=1", "device=cpu")  # fmt: skip


def stable(record: dict) -> dict:
    return {k: v for k, v in record.items() if not k.startswith("seconds_") and k != "tokens_per_s"}


def test_a_run_of_two_stops_in_order_and_goes_on_with_one_as_if_it_had_been_one(monkeypatch):
    process = subprocess.Popen(
        torchrun("-m", "rlforge_cli", "train", *(w for text in SETS for w in ("--set", text))),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    run = RunDir(RUNS / "run-01")
    deadline = time.monotonic() + 120
    while not (run.metrics_file.exists() and len(run.metrics()) > 3) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    out, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    assert out == ""
    assert errors.count("run-01 interrupted; saved as step-") == 1, errors
    info = run.info()
    assert (info["status"], info["processes"], len(info["devices"])) == ("interrupted", 2, 2)
    reached = info["steps"]
    assert [path.name for path in RUNS.iterdir()] == ["run-01"]
    assert [record["step"] for record in run.metrics()] == list(range(reached + 1))
    samples = [json.loads(line) for line in run.rollouts_file.read_text().splitlines()]
    assert len({(s["step"], s["id"], s["sample"]) for s in samples}) == len(samples)
    assert run.checkpoints.joinpath(f"step-{reached:06d}").is_dir()

    _, config = lineage.resumed("run-01", RUNS)
    until(reached + 2, run, config, monkeypatch, resume=True)
    straight = lineage.start(lineage.prepare(runs_dir=RUNS, sets=SETS), RUNS)
    until(reached + 2, straight, config, monkeypatch)
    close([stable(r) for r in run.metrics()], [stable(r) for r in straight.metrics()], within=1e-5)
    other = [json.loads(line) for line in straight.rollouts_file.read_text().splitlines()]
    samples = [json.loads(line) for line in run.rollouts_file.read_text().splitlines()]
    assert [s["completion"] for s in samples] == [s["completion"] for s in other]
    name = f"step-{(reached + 2) // 2 * 2:06d}"
    got, expected = (load_file(r.checkpoints / name / "model.safetensors") for r in (run, straight))
    assert max(float((got[key] - expected[key]).abs().max()) for key in expected) < 1e-5
