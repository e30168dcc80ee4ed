"""The command line as a person meets it: exit codes, one line an error, nothing heavy at start."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from rlforge_cli import __main__
from rlforge_cli.__main__ import COMMANDS, app, register

ROOT = Path(__file__).parent.parent


def rlforge(*words: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "rlforge_cli", *words], capture_output=True, text=True, timeout=120, check=False,
        env=os.environ | environment,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["train", "--sett", "G=4"], 2, "No such option"),
        (["compare", "run-77", "run-78"], 2, "run-77"),
        (["train", "--set", "G=1"], 2, "at least 2"),
        (["train", "--set", "tempature=1"], 2, "did you mean 'temperature'"),
        (["train", "--preset", "tiny-arit"], 2, "did you mean 'tiny-arith'"),
        (["train", "--resume", "run-01", "--seed", "3"], 2, "--resume"),
        (["train", "--equal-samples", "--equal-steps"], 2, "exclude"),
        (["train", "--resume", "run-01"], 2, "no runs yet"),
        (["eval", "run-01"], 2, "no runs yet"),
        (["eval", "./nowhere"], 2, "nowhere"),
        (["eval", "owner/model"], 2, "local cache"),
        (["eval", "tiny-arith", "--split", "tset"], 2, "did you mean 'test'"),
        (["eval", "tiny-arith", "--greedy", "--samples", "4"], 2, "--greedy"),
        (["eval", "tiny-arith", "--checkpoint", "best"], 2, "goes with a run"),
        (["show", "run-01"], 2, "run-01"),
        (["explain", "adv_sdt"], 2, "adv_std"),
        (["presets", "qwen"], 2, "unknown"),
        (["diff", "tiny-arith", "run-01"], 2, "run-01"),
        (["nonsense"], 2, "nonsense"),
        (["smoke", "--steps", "0"], 2, "rlforge smoke: Invalid value for '--steps'"),
        (["plan", "--gpu", "inf"], 2, "such as --gpu 32"),
        (["compare"], 2, "rlforge compare: Missing argument 'RUN'"),
        (["train", "--set", "G=8\x1b[31m"], 2, "G=8\\x1b[31m: expected a whole number"),
        (["train", "--set", f"{'k' * 5000}=1"], 2, "kkk…"),
        (["train", "--dry-run", "--set", "difficulty=0.1-0.9", "--set", "difficulty_from=x.jsonl"], 2, "no such file"),
    ],
)
def test_wrong_words_end_with_two_and_say_what_is_wrong(words, code, message):
    done = rlforge(*words)
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") <= 3  # the error, and notes on what was to be run
    assert done.stderr.splitlines()[-1].startswith("rlforge")
    assert len(done.stderr) < 2000
    assert "\x1b" not in done.stderr


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("length_penalty=0.9", "use less than"),
        ("model.path=owner/model", "local cache"),
        ("model.path=.", "no config.json"),
        ("task=gms8k", "gsm8k"),
        ("engine=vllm", "rollout.engine"),
        ("device=cuda:7", "no such CUDA device"),
        ("device=xpu", "no such device"),
    ],
)
def test_what_cannot_run_leaves_no_run_behind(setting, message):
    done = rlforge("train", "--set", setting)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("[x] . DefaultCPUAllocator: can't allocate memory: 9 bytes\nmore")]
)
def test_lack_of_memory_is_one_line(error, monkeypatch, capsys):
    monkeypatch.setattr(__main__, "app", lambda **_: (_ for _ in ()).throw(error))
    monkeypatch.setattr(__main__, "register", lambda: None)
    with pytest.raises(SystemExit, match="1"):
        __main__.main()
    said = capsys.readouterr().err
    assert said.startswith("rlforge: out of memory: ")
    assert "train.micro_batch_size" in said
    assert said.count("\n") == 1


def test_an_own_error_is_one_line():
    done = rlforge("train", "--set", "completions=24", "--set", "G=5")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("rlforge: rollout.completions = 24")
    assert "2, 3, 4, 6, 8, 12, 24" in done.stderr


def test_every_command_takes_json():
    if not app.registered_commands:
        register()
    for name, command in get_command(app).commands.items():
        assert "--json" in [option for parameter in command.params for option in parameter.opts], name


def test_stopping_at_a_file_is_json_too():
    copied = json.loads(rlforge("rounds", "three-rounds", "--copy", "study.toml", "--json").stdout)
    assert copied == {"study": "three-rounds", "copied": "study.toml"}


def test_starting_imports_nothing_heavy():
    code = (
        "import sys; sys.argv = ['rlforge', '--help']\n"
        "from rlforge_cli.__main__ import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'transformers', 'datasets', 'scipy', 'numpy', 'peft', 'vllm', 'pandas'} & set(sys.modules)\n"
        "print(sorted(heavy), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_every_command_and_option_has_help():
    register()
    command = get_command(app)
    assert set(command.commands) == set(COMMANDS)
    for name, sub in command.commands.items():
        assert sub.help, name
        for parameter in sub.params:
            if parameter.param_type_name == "option":
                assert parameter.help, (name, parameter.name)


def test_readme_names_every_command():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    missing = [name for name in COMMANDS if f"rlforge {name}" not in text]
    assert missing == []


def test_readme_commands_parse():
    """Every `rlforge ...` line of README names a command and options that exist."""
    register()
    command = get_command(app)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\s*(?:\$ )?rlforge (.+?)(?:\s+#.*)?$", text, flags=re.MULTILINE)
    assert len(lines) >= 10
    for line in lines:
        words = line.split()
        assert words[0] in command.commands, line
        known = {o for p in command.commands[words[0]].params for o in [*p.opts, *p.secondary_opts]} | {"--help"}
        used = {word.partition("=")[0] for word in words if word.startswith("-") and not re.match(r"-\d", word)}
        assert used <= known, (line, used - known)


def test_a_crash_shows_no_secret():
    code = (
        "import sys; sys.argv = ['rlforge', 'ls']\n"
        "from rlforge_cli import show\n"
        "def broken(*a, **k):\n    token = 'hf_' + 'SECRET' * 3\n    raise RuntimeError('boom')\n"
        "show.listing = broken\n"
        "from rlforge_cli.__main__ import main\nmain()"
    )
    environment = os.environ | {"HF_TOKEN": "hf_" + "ENVSECRET" * 2}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode != 0
    assert "boom" in done.stderr
    assert "SECRETSECRET" not in done.stderr + done.stdout


def test_dry_run_starts_nothing():
    done = rlforge("train", "--set", "G=4", "--equal-samples", "--dry-run", "--json")
    plan = json.loads(done.stdout)
    assert plan["plan"]["steps"] == 400
    assert plan["changes"] == [{"key": "rollout.group_size", "from": 8, "to": 4}]
    assert not Path("runs").exists()


def test_the_life_of_a_run_by_commands():
    """train, ls, show, eval, diff, rm: the JSON of each, and what it leaves on disk."""
    small = [w for t in ("steps=2", "P=2", "G=4", "eval.problems=8", "eval.every=0") for w in ("--set", t)]
    trained = json.loads(rlforge("train", *small, "--json", "--note", "a [red] note").stdout)
    assert set(trained) >= {"run", "path", "status", "steps", "final", "wall_s", "seconds_per_step"}
    assert (trained["run"], trained["status"], trained["steps"]) == ("run-01", "completed", 2)
    assert set(trained["seconds_per_step"]) == {"rollout", "train", "sync", "total"}
    listed = rlforge("ls", COLUMNS="40")
    assert "a [red] note" in listed.stdout
    assert json.loads(rlforge("show", "run-01", "--json").stdout)["run"]["status"] == "completed"
    evaluated = rlforge("eval", "run-01", "--limit", "20", "--repeat", "2", "--json", PYTHONIOENCODING="ascii")
    summary = json.loads(evaluated.stdout)
    assert (summary["n"], summary["split"]) == (20, "test")
    assert summary["repeat"][0]["n"] == 20
    assert Path("runs/run-01/evals/test-first20.jsonl").is_file()
    sampled = json.loads(
        rlforge("eval", "run-01", "--limit", "5", "--samples", "4", "--k", "1", "--k", "4", "--json").stdout
    )
    assert set(sampled["pass_at_k"]) == {"1", "4"}
    assert len(Path("runs/run-01/evals/test-x4-first5.jsonl").read_text().splitlines()) == 20
    assert rlforge("eval", "run-01", "--samples", "2", "--k", "4").returncode == 2
    rows = json.loads(rlforge("diff", "tiny-arith", "run-01", "--json").stdout)["differences"]
    assert {"key": "rollout.group_size", "a": 8, "b": 4} in rows
    assert rlforge("rm", "run-01", "--checkpoints", "--yes").returncode == 0
    assert Path("runs/run-01/final").is_dir()
    assert not Path("runs/run-01/checkpoints").exists()
    Path("runs/link").symlink_to(Path("runs/run-01").resolve())
    assert json.loads(rlforge("rm", "runs/link", "--yes", "--json").stdout)["bytes"] == 0
    assert not Path("runs/link").is_symlink()
    assert Path("runs/run-01/final").is_dir()
    removed = json.loads(rlforge("rm", "run-01", "--yes", "--json").stdout)
    assert (removed["run"], removed["removed"]) == ("run-01", "runs/run-01")
    assert not Path("runs/run-01").exists()
