"""`rlforge compare` as a person and a program meet it: the table, the JSON object, and every published value."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from comparison_files import bits, paired, write_results, write_run
from rich.console import Console
from typer.testing import CliRunner

from rlforge_cli.commands.compare import compare as command
from rlforge_cli.comparison import Options, compare
from rlforge_cli.comparison.bar import axis, bar, scale_for
from rlforge_cli.comparison.view import show
from rlforge_cli.errors import UserError

app = typer.Typer()
app.command()(command)

ROW_KEYS = {
    "run", "n_items", "n_seeds", "accuracy", "ci95", "delta_pp", "delta_ci95_pp", "delta_ci90_pp", "discordant", "p",
    "p_adjusted", "verdict", "below_margin", "reasons", "needed", "tipping_items", "changes",
}  # fmt: skip
TOP_KEYS = {
    "control", "scope", "margin_pp", "alpha", "rule", "grader_error_pp", "seed_sd_pp", "seed_sd_source", "rows",
}  # fmt: skip


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None:
        raise result.exception
    return result.stdout


def run_json(*arguments: object) -> dict[str, Any]:
    def refuse(token: str) -> None:
        raise AssertionError(f"{token} is not JSON")

    value: dict[str, Any] = json.loads(run(*arguments, "--json"), parse_constant=refuse)
    return value


def files(tmp_path: Path, only_a: int, only_b: int) -> tuple[Path, Path]:
    a, b = paired(only_a, only_b)
    return write_results(tmp_path / "a.jsonl", a), write_results(tmp_path / "b.jsonl", b)


def drawn(runs: Path, *names: str, width: int, encoding: str = "utf-8", **options: Any) -> str:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict")
    console = Console(file=stream, width=width, markup=False, emoji=False, highlight=False, color_system=None)
    show(compare(names, options=Options(runs_dir=runs, **options)), console)
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode(encoding)


# the JSON object


def test_json_has_the_keys_that_programs_rely_on(tmp_path: Path) -> None:
    result = run_json(*files(tmp_path, 60, 100))
    assert set(result) >= TOP_KEYS
    assert all(set(row) >= ROW_KEYS for row in result["rows"])
    assert (result["scope"], result["margin_pp"], result["alpha"], result["rule"]) == ("recipe", 4.0, 0.05, "stats")
    assert result["control"] == result["rows"][0]["run"] == str(tmp_path / "a.jsonl")
    control = result["rows"][0]
    empty = ("delta_pp", "delta_ci95_pp", "delta_ci90_pp", "discordant", "p", "p_adjusted", "verdict", "needed")
    assert [control[key] for key in empty] == [None] * len(empty)
    row = result["rows"][1]
    assert (row["n_items"], row["n_seeds"], row["discordant"]) == (1319, 1, [60, 100])


def test_json_stays_strict_when_metrics_are_not(tmp_path: Path) -> None:
    a, b = paired(60, 100)
    write_run(tmp_path, "run-01", a, metrics='{"step": 1, "kl_ref": NaN}\n')
    write_run(tmp_path, "run-02", b, config={"optimizer.lr": 2e-6})
    control = run_json("run-01", "run-02", "--runs-dir", tmp_path)["rows"][0]
    assert control["mechanism"]["kl_ref"] is None
    assert "not finite" in control["reasons"][0]


# the published values


@pytest.mark.parametrize(
    ("only_a", "only_b", "delta", "p", "ci95", "ci90", "verdict", "below"),
    [
        (60, 100, 3.033, 0.0019537, [1.16, 4.91], [1.46, 4.61], "better", False),
        (100, 60, -3.033, 0.0019537, [-4.91, -1.16], None, "worse", False),
        (40, 46, 0.455, 0.590036, [-0.93, 1.84], [-0.70, 1.61], "no_material_difference", False),
        (20, 45, 1.895, 0.0026264, [0.70, 3.10], [0.89, 2.90], "better", True),
        (64, 89, 1.895, 0.05199, [0.06, 3.73], [0.35, 3.44], "no_material_difference", False),
        (100, 160, 4.549, 0.0002389, [2.16, 6.93], [2.55, 6.55], "better", False),
    ],
)
def test_checkpoint_scope(
    tmp_path: Path,
    only_a: int,
    only_b: int,
    delta: float,
    p: float,
    ci95: list[float],
    ci90: list[float] | None,
    verdict: str,
    below: bool,
) -> None:
    row = run_json(*files(tmp_path, only_a, only_b), "--scope", "checkpoint")["rows"][1]
    assert round(row["delta_pp"], 3) == delta
    assert row["p"] == pytest.approx(p, abs=5e-8 if p < 0.01 else 5e-6)
    assert [round(end, 2) for end in row["delta_ci95_pp"]] == ci95
    if ci90 is not None:
        assert [round(end, 2) for end in row["delta_ci90_pp"]] == ci90
    assert (row["verdict"], row["below_margin"]) == (verdict, below)
    assert row["tipping_items"] == (16 if {only_a, only_b} == {60, 100} else row["tipping_items"])


def test_a_vetoed_difference_says_so(tmp_path: Path) -> None:
    row = run_json(*files(tmp_path, 64, 89), "--scope", "checkpoint")["rows"][1]
    assert "the interval leaves out 0, but the exact test does not (p = 0.0520)" in row["reasons"]


def test_recipe_scope_with_one_seed(tmp_path: Path) -> None:
    result = run_json(*files(tmp_path, 60, 100))
    row = result["rows"][1]
    assert [round(end, 2) for end in row["delta_ci95_pp"]] == [-1.60, 7.67]
    assert row["verdict"] == "inconclusive"
    assert result["seed_sd_pp"] == pytest.approx(1.53)
    assert "prior" in result["seed_sd_source"]
    assert "seeds an arm" in row["needed"]["text"]


def test_wilson_of_the_control(tmp_path: Path) -> None:
    write_results(tmp_path / "a.jsonl", [1] * 990 + [0] * 329)
    control = run_json(tmp_path / "a.jsonl", tmp_path / "a.jsonl")["rows"][0]
    assert [round(end, 5) for end in control["ci95"]] == [0.72651, 0.77317]


def test_identical_results(tmp_path: Path) -> None:
    a, _ = files(tmp_path, 0, 0)
    row = run_json(a, a, "--scope", "checkpoint")["rows"][1]
    assert (row["p"], row["delta_pp"], row["discordant"]) == (1.0, 0.0, [0, 0])
    assert any("same checkpoint?" in reason for reason in row["reasons"])


def test_a_paired_gain_that_an_unpaired_test_misses(tmp_path: Path) -> None:
    a, b = paired(8, 22, right_a=908)
    names = (write_results(tmp_path / "a.jsonl", a), write_results(tmp_path / "b.jsonl", b))
    result = run_json(*names, "--scope", "checkpoint")
    assert [row["accuracy"] for row in result["rows"]] == pytest.approx([0.6884, 0.699014], abs=1e-5)
    assert result["rows"][1]["delta_pp"] == pytest.approx(1.0614, abs=1e-3)
    assert result["rows"][1]["p"] == pytest.approx(0.016125, abs=1e-5)
    assert result["rows"][1]["verdict"] == "better"


def test_seeds_by_items(tmp_path: Path) -> None:
    arms = {"a": "11110010 11100110 11010010", "b": "11111010 11110111 11111010"}
    for arm, rows in arms.items():
        for seed, text in enumerate(rows.split()):
            lr = 1e-6 if arm == "a" else 2e-6
            write_run(tmp_path, f"{arm}{seed}", bits(text), seed=seed, config={"optimizer.lr": lr})
    row = run_json("a0", "b0", "--runs-dir", tmp_path)["rows"][1]
    assert row["delta_pp"] == pytest.approx(20.8333, abs=5e-5)
    assert [round(end / 100, 4) for end in row["delta_ci95_pp"]] == [-0.0150, 0.4317]
    assert row["n_seeds"] == 3


REFERENCE = {
    "run-01": (57.9, None),
    "run-02": (53.6, "worse"),
    "run-03": (58.7, "no_material_difference"),
    "run-04": (58.3, "no_material_difference"),
    "run-05": (46.1, "worse"),
    "run-06": (58.4, "no_material_difference"),
    "run-07": (53.9, "worse"),
    "run-08": (63.2, "better"),
}


@pytest.fixture
def reference(tmp_path: Path) -> list[Path]:
    """Files of the reference accuracies, with 5 % of the items flipping back and forth between any two."""
    paths = []
    for index, (name, (score, _)) in enumerate(REFERENCE.items()):
        right = round(score * 13.19)
        values = [1] * right + [0] * (1319 - right)
        start = 10 * index
        values[start : start + 33], values[-start - 33 : len(values) - start] = [0] * 33, [1] * 33
        paths.append(write_results(tmp_path / f"{name}.jsonl", values))
    return paths


@pytest.mark.parametrize("scope", ["recipe", "checkpoint"])
def test_the_simple_rule_gives_the_reference_verdicts(reference: list[Path], scope: str) -> None:
    rows = run_json(*reference, "--rule", "simple", "--scope", scope)["rows"]
    assert [row["verdict"] for row in rows] == [verdict for _, verdict in REFERENCE.values()]
    noise = "a difference below the seed noise alone (3 points) is never worth a conclusion"
    assert [noise in row["reasons"] for row in rows[1:]] == [False, True, True, False, True, False, False]


def test_open_reference_rows_say_how_many_seeds(reference: list[Path]) -> None:
    rows = run_json(*reference)["rows"]
    open_rows = [row for row in rows if row["verdict"] == "inconclusive"]
    assert len(open_rows) >= 4
    assert all(row["needed"]["seeds_per_arm"] >= 2 for row in open_rows)
    text = run(*reference)
    assert f"next for {open_rows[0]['run']}" in text
    assert "seeds an arm detect 4.0 pp with 80% power (has 1 and 1)" in text


# for people


NAMES = ["[/think] 42", "a[red]b", "x [bold] y", "see [link] \\boxed{3}", ":smile: run", "trailing backslash \\"]


def test_names_are_never_markup(tmp_path: Path) -> None:
    a, b = paired(60, 100)
    write_run(tmp_path, "run-01", a)
    for index, name in enumerate(NAMES, start=2):
        write_run(tmp_path, name.replace("/", "\u2215"), b, config={"optimizer.lr": index * 1e-6})
    names = [name.replace("/", "\u2215") for name in NAMES]
    text = drawn(tmp_path, "run-01", *names, width=120)
    assert all(name in text for name in names)


def test_changes_are_never_markup(tmp_path: Path) -> None:
    a, b = paired(60, 100)
    write_run(tmp_path, "run-01", a, config={"data.task": "[/think] 42"})
    write_run(tmp_path, "run-02", b, config={"data.task": "a[red]b :smile: \\"})
    assert "task [/think] 42→a[red]b :smile: \\" in drawn(tmp_path, "run-01", "run-02", width=160)


@pytest.fixture
def study(tmp_path: Path) -> Path:
    a, b = paired(60, 100)
    log = json.dumps({"step": 1, "zero_std_fraction": 0.091, "completion_length": 152, "adv_std": 0.664}) + "\n"
    write_run(tmp_path, "run-01", a, metrics=log, info={"budget": {"completions_generated": 12800}})
    write_run(tmp_path, "run-02", b, metrics=log, config={"rollout.group_size": 4, "optimizer.lr": 2e-6})
    write_run(tmp_path, "run-03", paired(20, 45)[1], metrics=log, config={"grpo.kl_coef": 0.001})
    write_run(tmp_path, "run-04", None, config={"grpo.kl_coef": 0.01}, info={"status": "failed"})
    return tmp_path


STUDY = ("run-01", "run-02", "run-03", "run-04")


@pytest.mark.parametrize("width", [24, 40, 60, 80, 100, 120, 200, 1000])
def test_nothing_is_cut_at_any_width(study: Path, width: int) -> None:
    text = drawn(study, *STUDY, width=width)
    assert all(len(line) <= width for line in text.split("\n") if "rlforge seeds" not in line)
    assert "…" not in text
    for number in ("72.0", "75.1", "+3.03", "+1.90", "9.1 %", "0.664", "12,800"):
        assert number in text
    for name in STUDY:
        assert text.count(name) >= 2
    assert "rlforge seeds run-02 --n 5 --control run-01" in text
    assert "not" in text
    assert "comparable" in text


def test_the_table_says_it_in_words_and_pictures(study: Path) -> None:
    text = drawn(study, *STUDY, width=160, scope="checkpoint")
    lines = {line.split()[0]: line for line in text.split("\n") if line.startswith("run-") and "[" in line}
    assert "+3.03" in lines["run-02"]
    assert "[1.16, 4.91]" in lines["run-02"]
    assert lines["run-02"].rstrip().endswith("better")
    assert lines["run-03"].rstrip().endswith("better, below ±4")
    assert "━●━" in lines["run-02"]
    assert "group_size 8→4, lr 1e-06→2e-06" in text
    assert "run-02: 2 variables changed" in text


@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
@pytest.mark.parametrize("width", [60, 80, 200])
def test_any_encoding_keeps_the_numbers(study: Path, encoding: str, width: int) -> None:
    text = drawn(study, *STUDY, width=width, encoding=encoding)
    assert "?" not in text.replace("differ?", "")
    for number in ("+3.03", "[-1.60, 7.67]", "0.664"):
        assert number in text
    assert text.isascii()


def test_the_bar() -> None:
    scale = scale_for([(1.0, 5.0)], margin=4.0, width=25)
    assert scale.limit == 6.0
    assert axis(scale) == "   -4       0      +4    "
    assert bar((1.0, 5.0), 3.0, scale) == "    ┊       │ ━━━━●━┿━━  "
    wide = scale_for([(-50.0, 50.0)], margin=4.0, width=13)
    assert wide.limit == 12.0
    assert bar((-50.0, 50.0), 50.0, wide) == "◀━━━┿━┿━┿━━●▶"
    assert bar((-50.0, 50.0), -50.0, wide) == "◀●━━┿━┿━┿━━━▶"
    assert bar((20.0, 50.0), 30.0, wide) == "    ┊ │ ┊  ●▶"
    assert bar((-50.0, -20.0), -30.0, wide) == "◀●  ┊ │ ┊    "
    assert bar((-12.0, 12.0), 12.0, wide) == "━━━━┿━┿━┿━━━●"  # at the end of the scale nothing is cut


# as a process


APP = "import typer; from rlforge_cli.commands.compare import compare as c; a = typer.Typer(); a.command()(c); a()"


def process(*arguments: object, code: str = APP, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        env={"PATH": "", "PYTHONPATH": str(Path(__file__).parent.parent), **environment},
        check=False,
    )


@pytest.mark.parametrize(
    "environment",
    [
        {"FORCE_COLOR": "0", "TERM": "dumb", "COLUMNS": "40"},
        {"NO_COLOR": "1", "COLUMNS": "30"},
        {"PYTHONIOENCODING": "cp1252"},
        {"PYTHONIOENCODING": "ascii"},
    ],
)
def test_a_pipe_gets_whole_plain_lines(study: Path, environment: dict[str, str]) -> None:
    result = process(*STUDY, "--runs-dir", study, **environment)
    assert (result.returncode, result.stderr) == (0, b"")
    assert b"\x1b" not in result.stdout
    table = [line for line in result.stdout.split(b"\n") if line.startswith(b"run-02")]
    assert b"group_size 8" in table[0]
    assert b"[-1.60, 7.67]" in table[0]
    assert b"inconclusive" in table[0]


def test_comparing_imports_neither_torch_nor_scipy(study: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from rlforge_cli.commands.compare import compare as c; "
        f"c(['run-01', 'run-02'], runs_dir=Path({str(study)!r})); "
        "heavy = {'torch', 'transformers', 'scipy', 'datasets', 'pandas'} & set(sys.modules); "
        "sys.stderr.write(','.join(sorted(heavy)))"
    )
    result = process(code=code)
    assert (result.returncode, result.stderr) == (0, b"")
    assert b"inconclusive" in result.stdout


def test_warnings_go_to_stderr(study: Path) -> None:
    with open(study / "run-01" / "metrics.jsonl", "a") as file:
        file.write('{"step": 2, "rew')
    result = process("run-01", "run-02", "--runs-dir", study, "--json")
    assert result.returncode == 0
    assert json.loads(result.stdout)["rows"][1]["delta_pp"] == pytest.approx(3.0326, abs=1e-4)
    assert b"1 incomplete line ignored in run-01 (metrics.jsonl)" in result.stderr


def test_an_unknown_run_is_a_user_error(study: Path) -> None:
    with pytest.raises(UserError, match="run-99"):
        run("run-01", "run-99", "--runs-dir", study)


def test_the_runs_folder_may_come_from_the_environment(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLFORGE_RUNS", str(study))
    assert run_json("run-01", "run-02")["rows"][1]["run"] == "run-02"


def test_nothing_comparable_is_still_an_answer(study: Path) -> None:
    result = process("run-04", "run-01", "run-02", "--runs-dir", study, "--json")
    assert result.returncode == 0
    rows = json.loads(result.stdout)["rows"]
    assert [row["verdict"] for row in rows] == ["not_comparable"] * 3
    assert all(row["reasons"] for row in rows)


def test_a_file_with_unequal_samples_is_an_input_error(tmp_path: Path) -> None:
    good = write_results(tmp_path / "a.jsonl", [1, 0])
    (tmp_path / "b.jsonl").write_text(good.read_text() + good.read_text().split("\n")[0])
    with pytest.raises(UserError, match="repeated ids must be equally many samples"):
        run(good, tmp_path / "b.jsonl")


def test_a_closed_output_is_no_crash(study: Path) -> None:
    command = f"{sys.executable} -m rlforge_cli compare run-01 run-02 --runs-dir {study}"
    result = subprocess.run(
        ["sh", "-c", f"{command} >&- && {command} --json >&- 2>&-"], capture_output=True, check=False
    )
    assert (result.returncode, result.stderr) == (0, b"")
