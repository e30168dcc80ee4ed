"""Whole runs of the embedded preset: exact resume, interrupts, and what stands on disk afterwards."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
import torch
from interrupted import until
from safetensors.torch import load_file

from rlforge_cli import distributed, experiment, lifecycle, lineage
from rlforge_cli.errors import Collapsed, NotNumbers, RunFailed, UserError
from rlforge_cli.run_dir import RunDir
from rlforge_cli.trainer import Trainer
from rlforge_cli.updater import Updater

RUNS = Path("runs")
SMALL = [
    "G=4",
    "P=2",
    "eval.problems=8",
    "eval.every=4",
    "checkpoint.every=4",
    "log.rollouts_every=2",
    "checkpoint.keep=-1",
]


def begin(*sets: str, **options) -> tuple[RunDir, lineage.Plan]:
    plan = lineage.prepare(runs_dir=RUNS, sets=[*SMALL, *sets], **options)
    return lineage.start(plan, RUNS), plan


def run_to_end(*sets: str, **options) -> RunDir:
    run, plan = begin(*sets, **options)
    lifecycle.execute(run, plan.config, quiet=True)
    return run


def stable(record: dict) -> dict:
    """A step's record without what depends on the clock."""
    return {k: v for k, v in record.items() if not k.startswith("seconds_") and k != "tokens_per_s"}


@pytest.fixture(scope="module")
def straight(tmp_path_factory) -> Path:
    """Ten uninterrupted steps with dynamic sampling, which resumed runs are compared with."""
    folder = tmp_path_factory.mktemp("straight")
    before = Path.cwd()
    os.chdir(folder)
    try:
        return folder / run_to_end("steps=10", "oversample=1.5").path
    finally:
        os.chdir(before)


def killed_after(step: int, monkeypatch) -> RunDir:
    run, plan = begin("steps=10", "oversample=1.5")
    until(step, run, plan.config, monkeypatch)
    return run


def logged_steps(file: Path) -> list[int]:
    return [json.loads(line)["step"] for line in file.read_text().splitlines()]


@pytest.mark.parametrize("step", [4, 6])
def test_kill_and_resume_equal_a_straight_run(step, straight, monkeypatch):
    run = killed_after(step, monkeypatch)
    found, config = lineage.resumed(run.id, RUNS)
    lifecycle.execute(found, config, resume=True, quiet=True)
    expected, got = RunDir(straight), run
    assert logged_steps(got.metrics_file) == list(range(11))
    assert logged_steps(got.rollouts_file) == logged_steps(expected.rollouts_file)
    assert [stable(r) for r in got.metrics()] == [stable(r) for r in expected.metrics()]
    weights, wanted = (load_file(r.final / "model.safetensors") for r in (got, expected))
    assert all(torch.equal(weights[name], wanted[name]) for name in wanted)
    assert got.info()["budget"] == expected.info()["budget"]
    assert got.info()["best"] == expected.info()["best"]
    samples, expected_samples = (
        {
            (r["step"], r["id"], r["sample"]): r["completion"]
            for r in map(json.loads, run.rollouts_file.read_text().splitlines())
        }
        for run in (got, expected)
    )
    assert samples == expected_samples


@pytest.mark.parametrize(
    ("file", "size", "reason"),
    [
        ("state.json", 1, "line 1 column 2"),
        ("training.pt", 3000, "RuntimeError"),
        ("model.safetensors", 9000, "Safetensor"),
    ],
)
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_will_do(file, size, reason, monkeypatch):
    run, plan = begin("steps=6", "checkpoint.every=2", "eval.every=0")
    until(5, run, plan.config, monkeypatch)
    last = run.checkpoints / "step-000005"  # saved as it ended
    (last / file).write_bytes((last / file).read_bytes()[:size])
    _, config = lineage.resumed(run.id, RUNS)
    with pytest.raises(UserError, match=f"{last.name}: .*{reason}.*; remove this checkpoint's folder to continue"):
        lifecycle.execute(run, config, resume=True, quiet=True)
    assert logged_steps(run.metrics_file) == list(range(6))
    shutil.rmtree(last)
    assert lifecycle.execute(run, config, resume=True, quiet=True)["steps"] == 6


def test_two_seeds_differ_and_one_seed_repeats():
    runs = [run_to_end("steps=2", "eval.every=0", seed=seed) for seed in (0, 1, 0)]
    completions = [
        [json.loads(line)["completion"] for line in run.rollouts_file.read_text().splitlines()] for run in runs
    ]
    ids = [[json.loads(line)["id"] for line in run.rollouts_file.read_text().splitlines()] for run in runs]
    assert completions[0] == completions[2]
    assert completions[0] != completions[1]
    assert ids[0] != ids[1]


def test_a_run_directory_holds_what_others_rely_on(straight):
    run = RunDir(straight)
    info = run.info()
    assert info["id"] == run.id == "run-01"
    assert info["status"] == "completed"
    assert set(info) >= {"seed", "parent", "changes", "note", "versions", "git_commit", "host", "pid", "device"}
    assert set(info) >= {"started", "finished"}
    assert set(info["budget"]) == {"completions_generated", "completions_trained", "tokens_generated"}
    assert info["budget"]["completions_generated"] == 10 * 3 * 4
    assert info["changes"]
    assert all(set(change) == {"key", "from", "to"} for change in info["changes"])
    assert run.config()["rollout"]["group_size"] == 4
    assert [path.name for path in sorted(run.checkpoints.iterdir())] == ["step-000004", "step-000008", "step-000010"]
    assert [record["step"] for record in run.metrics()] == list(range(11))
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(run.final)
    tokenizer = AutoTokenizer.from_pretrained(run.final)
    assert model.config.eos_token_id == tokenizer.eos_token_id
    saved = load_file(run.final / "model.safetensors")
    assert all(torch.equal(value, saved[name]) for name, value in model.state_dict().items() if name in saved)


def test_every_logged_metric_is_explained(straight):
    from rlforge_cli.metrics import BY_NAME

    logged = {key for record in RunDir(straight).metrics() for key in record}
    assert logged - set(BY_NAME) == set()


def test_a_run_without_signal_fails_with_its_reason_and_keeps_the_last_checkpoint(monkeypatch):
    run, plan = begin("steps=12", "oversample=1.0", "train.max_skipped=3")

    original = Trainer.sample_groups

    def all_equal(self, problems, *, seed):
        groups = original(self, problems, seed=seed)
        if self.step < 4:
            return groups
        return [msgspec.structs.replace(g, scores=[g.scores[0]] * len(g.scores)) for g in groups]

    monkeypatch.setattr(Trainer, "sample_groups", all_equal)
    with pytest.raises(RunFailed, match="no learning signal: in 3 steps"):
        lifecycle.execute(run, plan.config, quiet=True)
    info = run.info()
    assert info["status"] == "failed"
    assert "no learning signal" in info["reason"]
    assert (run.checkpoints / "step-000004").is_dir()
    assert [r["skipped"] for r in run.metrics()[1:]] == [False] * 4 + [True] * 3


BOOM = """
calls = []
def boom(completions, problems):
    calls.append(1)
    if len(calls) == 4:
        raise ValueError("boom")
    return [0.1 * (len(text) % 3) for text in completions]
"""


def test_a_failure_between_steps_loses_no_finished_step(tmp_path):
    (tmp_path / "rewarding.py").write_text(BOOM)
    run, plan = begin("steps=9", "checkpoint.every=50", f"reward.functions={tmp_path / 'rewarding.py'}:boom")
    with pytest.raises(UserError, match="boom"):
        lifecycle.execute(run, plan.config, quiet=True)
    assert run.info()["status"] == "failed"
    assert (run.checkpoints / "step-000003").is_dir()
    _, config = lineage.resumed("run-01", RUNS)
    assert lifecycle.execute(run, config, resume=True, quiet=True)["steps"] == 9
    assert run.info()["reason"] is None


def test_a_resume_that_is_refused_leaves_the_run_as_it_was(monkeypatch):
    run, plan = begin("steps=4")
    monkeypatch.setattr(Trainer, "train_step", lambda self: (_ for _ in ()).throw(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        lifecycle.execute(run, plan.config, quiet=True)
    assert not any(record["step"] > 0 for record in run.metrics())

    def refuse(*args, **kwargs):
        raise UserError("rollout.engine = 'vllm' needs vLLM")

    monkeypatch.setattr(lifecycle, "Experiment", refuse)
    with pytest.raises(UserError):
        lifecycle.execute(run, plan.config, resume=True, quiet=True)
    assert run.info()["id"] == "run-01"


@pytest.mark.parametrize("error", [NotNumbers("a"), Collapsed("b"), OSError("c"), KeyboardInterrupt()])
def test_what_speaks_against_the_weights_or_the_disk_saves_nothing(error):
    assert not lifecycle.worth_saving(error)


def test_a_model_of_too_few_positions_for_vllm_is_refused_before_the_engine_starts(monkeypatch):
    monkeypatch.setattr(experiment, "require_engine", lambda config: None)
    monkeypatch.setattr(experiment, "make_engine", lambda config, policy: pytest.fail("the engine was started"))
    for sets, named in (
        (["max_tokens=5000"], r"rollout\.max_tokens = 5000"),
        (["eval.max_tokens=6000"], r"eval\.max_t"),
    ):
        run, plan = begin("rollout.engine=vllm", "max_prompt_tokens=32", *sets)
        with pytest.raises(UserError, match=named + r".* and a prompt of \d+ tokens are over the \d+ positions"):
            lifecycle.execute(run, plan.config, quiet=True)


def test_too_few_positions_for_the_own_engine_are_said(capsys):
    run, plan = begin("steps=1", "max_tokens=600", "eval.max_tokens=8", "eval.problems=2")
    lifecycle.execute(run, plan.config, quiet=True)
    said = capsys.readouterr().err
    assert re.search(r"note: rollout.max_tokens = 600 and a prompt of \d+ tokens are over the 512 positions", said)


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (["model.path=./nowhere"], "no such model folder"),
        (["model.path=owner/model"], "not in the local cache.*--set model.path=FOLDER"),
        (["task=gms8k"], "gsm8k"),
        (["task=jsonl", "data.path=nothing.jsonl"], "no such file"),
        (["device=cuda"], "no such CUDA device"),
        (["device=gpu"], "not a device"),
        (["length_penalty=0.9"], "use less than"),
        (["reward.functions=nothere:f"], "nothere"),
        (["max_prompt_tokens=2"], "max_prompt_tokens"),
        (["adaptation=qlora"], "bitsandbytes"),
        (["engine=vllm"], "rollout.engine"),
    ],
)
def test_wrong_input_is_one_line_before_the_first_step(sets, message):
    run, plan = begin(*sets)
    with pytest.raises(UserError, match=message) as caught:
        lifecycle.execute(run, plan.config, quiet=True)
    assert "\n" not in str(caught.value)
    assert not run.path.exists()


def command(*words: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "rlforge_cli", "train", "--preset", "tiny-arith", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("sent", "code", "status"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "interrupted"), (signal.SIGKILL, -9, "crashed")],
)
def test_signals_end_a_run_in_order_and_lose_no_finished_step(sent, code, status):
    every = 2 if sent == signal.SIGKILL else 1000
    process = command(
        *(word for text in SMALL for word in ("--set", text)),
        "--set",
        "steps=5000",
        "--set",
        f"checkpoint.every={every}",
    )
    run = RunDir(RUNS / "run-01")
    deadline = time.monotonic() + 120
    while not (run.metrics_file.exists() and len(run.metrics()) > 4) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(sent)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code, errors
    assert "Traceback" not in errors
    assert run.info()["status"] == status
    last = max(int(path.name.partition("-")[2]) for path in run.checkpoints.iterdir() if path.name.startswith("step-"))
    logged = max(record["step"] for record in run.metrics())
    assert last >= logged - (0 if code != -9 else 3)
    if sent == signal.SIGINT:
        assert f"rlforge train --resume {run.id}" in errors
        assert run.info()["steps"] == last


@pytest.mark.parametrize(("apart", "saved"), [(3600.0, 4), (0.0, None)])
def test_a_stop_request_in_an_update_waits_for_its_end_unless_it_comes_twice(monkeypatch, apart, saved):
    """``apart``: seconds within which two signals are one request, as from a wrapper that passes them on."""
    monkeypatch.setattr(distributed, "ONE_REQUEST_S", apart)
    run, plan = begin("steps=9", "checkpoint.every=100")
    original = Updater.update

    def update(self, *words):
        if self.optimizer.updates == 3:
            for _ in range(2):
                signal.raise_signal(signal.SIGINT)
        return original(self, *words)

    monkeypatch.setattr(Updater, "update", update)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        lifecycle.execute(run, plan.config, quiet=True)
    assert signal.getsignal(signal.SIGINT) is before
    info = run.info()
    assert info["status"] == "interrupted"
    if saved is None:
        assert "3 finished step(s) are lost; nothing was saved yet" in info["reason"]
    else:
        assert info["reason"].endswith(f"saved as step-{saved:06d}")
        assert [record["step"] for record in run.metrics()] == list(range(saved + 1))
        monkeypatch.setattr(Updater, "update", original)
        assert lifecycle.execute(*lineage.resumed(run.id, RUNS), resume=True, quiet=True)["steps"] == 9


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_full_disks_end_with_one_line(monkeypatch):
    run, plan = begin("steps=9", "checkpoint.every=4")
    original = torch.save

    def full(value, path):
        if "step-000008" in str(path):
            raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0")
        original(value, path)

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(RunFailed, match=r"step-000008.*no space left"):
        lifecycle.execute(run, plan.config, quiet=True)
    assert run.info()["status"] == "failed"
    assert [path.name for path in run.checkpoints.iterdir()] == ["step-000004"]
    monkeypatch.setattr(torch, "save", original)
    assert lifecycle.execute(*lineage.resumed(run.id, RUNS), resume=True, quiet=True)["steps"] == 9


def test_a_status_that_cannot_be_written_does_not_hide_the_reason(monkeypatch, capsys):
    run, plan = begin("steps=2")
    original = RunDir.update_info

    def full(self, **values):
        if values.get("status") == "failed":
            raise OSError(28, "No space left on device")
        original(self, **values)

    def no_space(self, record):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RunDir, "update_info", full)
    monkeypatch.setattr("rlforge_cli.run_log.Writers.metrics", no_space)
    with pytest.raises(RunFailed, match="No space left"):
        lifecycle.execute(run, plan.config, quiet=True)
    assert "could not be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    "body", ["sys.exit(0)", "raise ValueError('x')", "return [1.0]", "return ['a'] * len(completions)"]
)
def test_a_reward_function_that_fails_is_one_line_and_leaves_no_run(body):
    Path("rw.py").write_text(f"import sys\ndef f(completions, problems):\n    {body}\n")
    run, plan = begin("steps=2", "reward.functions=rw.py:f")
    with pytest.raises(UserError, match="reward function"):
        lifecycle.execute(run, plan.config, quiet=True)
    assert not run.path.exists()


def test_weights_that_an_update_spoiled_end_a_run_with_the_reason():
    run, plan = begin("steps=4", "lr=1e30", "optimizer.warmup_steps=0")
    with pytest.raises(RunFailed, match=r"after step 1 .* NaN: .* lower optimizer.lr \(1e\+30\)"):
        lifecycle.execute(run, plan.config, quiet=True)
    assert "NaN" in run.info()["reason"]
