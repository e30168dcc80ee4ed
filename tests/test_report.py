"""The report as a whole: what it says of runs that are well, of runs that are not, and of none."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from comparison_files import paired, write_run
from report_files import curves, jsonl, small_experiment, write_full_run, write_texts
from typer.testing import CliRunner

from rlforge_cli.commands.report import report as command
from rlforge_cli.errors import UserError
from rlforge_cli.report import control_first, paths_of, write_report
from rlforge_cli.run_dir import RunDir

app = typer.Typer()
app.command()(command)


def write(runs: Path, *names: str, lang: str = "en", out: Path | None = None) -> str:
    """The Markdown of a report of the named runs, or of all."""
    chosen = [RunDir.find(name, runs) for name in names] or control_first(RunDir.all(runs), runs)
    markdown, html = write_report(chosen, runs_dir=runs, out=out or runs / "report.md", lang=lang)
    assert html.read_text(encoding="utf-8").startswith("<!doctype html>")
    return markdown.read_text(encoding="utf-8")


def section(text: str, title: str) -> str:
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return found[1]


def row(text: str, name: str) -> list[str]:
    """The cells of a run in the table of runs."""
    line = next(line for line in section(text, "Runs").split("\n") if line.startswith(f"| {name}"))
    return [cell.strip() for cell in line.strip("|").split(" | ")]


# the command


def invoke(*arguments: object) -> Any:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None:
        raise result.exception
    return result


def test_json_names_the_files_and_the_runs(tmp_path: Path) -> None:
    small_experiment(tmp_path)
    answer = json.loads(invoke("--runs-dir", tmp_path, "--json").stdout)
    assert answer == {
        "markdown": str(tmp_path / "report.md"),
        "html": str(tmp_path / "report.html"),
        "runs": ["run-01", "run-02", "run-03", "run-04"],
        "lang": "en",
    }
    assert (tmp_path / "report.md").is_file()
    assert (tmp_path / "report.html").is_file()


def test_the_first_named_run_is_the_control(tmp_path: Path) -> None:
    small_experiment(tmp_path)
    answer = json.loads(invoke("run-03", "run-01", "--runs-dir", tmp_path, "--json", "--lang", "zh").stdout)
    assert (answer["runs"], answer["lang"]) == (["run-03", "run-01"], "zh")
    assert "对照 `run-03`" in (tmp_path / "report.md").read_text(encoding="utf-8")


def test_without_json_it_prints_the_two_paths(tmp_path: Path) -> None:
    small_experiment(tmp_path)
    printed = invoke("--runs-dir", tmp_path, "--out", tmp_path / "a" / "b").stdout
    assert printed.split("\n")[:2] == [str(tmp_path / "a" / "b.md"), str(tmp_path / "a" / "b.html")]


def test_no_runs_and_unknown_languages_are_errors_with_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no runs in .*rlforge train"):
        invoke("--runs-dir", tmp_path)
    write_run(tmp_path, "run-01", [1, 0])
    with pytest.raises(UserError, match=r"--lang zhh: no such language \(did you mean 'zh'\?\)"):
        invoke("--runs-dir", tmp_path, "--lang", "zhh")


def test_a_place_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    small_experiment(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="choose another place with --out"):
        invoke("--runs-dir", tmp_path, "--out", tmp_path / "file" / "report.md")


@pytest.mark.parametrize(
    ("out", "markdown", "html"),
    [
        ("a.md", "a.md", "a.html"),
        ("a.html", "a.md", "a.html"),
        ("a.HTM", "a.md", "a.HTM"),
        ("a.markdown", "a.markdown", "a.html"),
        ("a", "a.md", "a.html"),
        ("v1.2", "v1.2.md", "v1.2.html"),
        ("folder", "folder/report.md", "folder/report.html"),
    ],
)
def test_out_may_name_either_file_both_or_a_folder(tmp_path: Path, out: str, markdown: str, html: str) -> None:
    (tmp_path / "folder").mkdir()
    assert paths_of(tmp_path / out) == (tmp_path / markdown, tmp_path / html)


def test_it_starts_without_the_heavy_libraries(tmp_path: Path) -> None:
    small_experiment(tmp_path)
    program = (
        "import sys; from pathlib import Path; from rlforge_cli.report import write_report, control_first\n"
        "from rlforge_cli.run_dir import RunDir; runs = Path(sys.argv[1])\n"
        "write_report(RunDir.all(runs), runs_dir=runs, out=runs / 'r.md')\n"
        "print([name for name in ('torch', 'transformers', 'datasets', 'scipy.stats') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# what it says


def test_equal_input_gives_equal_bytes_wherever_it_is_written(tmp_path: Path) -> None:
    small_experiment(tmp_path / "runs")
    for name in ("a", "b"):
        write(tmp_path / "runs", out=tmp_path / name)
    for suffix in (".md", ".html"):
        assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()


def test_no_time_of_day_and_no_machine_gets_in(tmp_path: Path) -> None:
    info = {"started": "2031-05-06T07:08:09Z", "finished": "2031-05-06T08:08:09Z", "host": "hosty", "pid": 987654}
    write_full_run(tmp_path, "run-01", [1, 0] * 50, info=info)
    write(tmp_path)
    for name in ("report.md", "report.html"):
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert not re.search("2031|hosty|987654", text)


def test_the_conclusion_names_baseline_best_and_the_single_change(tmp_path: Path) -> None:
    small_experiment(tmp_path)
    text = write(tmp_path)
    assert text.startswith("# gsm8k · Qwen/Qwen3-0.6B · NVIDIA H200\n")
    found = section(text, "Conclusion")
    assert "**20.8 % → 62.0 %**, from the untrained model to `run-02`." in found
    assert "Before training: 20.8 % [18.7, 23.1]." in found
    assert "Control `run-01`: 50.0 % [46.9, 53.1], greedy pass@1 on 1,000 problems of gsm8k test" in found
    assert "Best: `run-02` (**oversample 0→1.5**) with 62.0 % [59.0, 65.0], +12.00 points" in found
    assert "95 % interval [6.99, 17.01], adjusted p < 0.0001: **better** at recipe scope." in found
    assert "The single change that did it, at the same number of generated completions: **oversample 0→1.5**." in found
    assert "has one seed: confirm it with fresh seeds" in found
    assert "- Worse: `run-03` (kl_coef 0→0.01) −11.00." in found
    assert "- Inconclusive, which is not the same as equal: `run-04` (format 0.2→0.05) +1.00." in found


def test_an_inconclusive_best_stays_inconclusive(tmp_path: Path) -> None:
    a, b = paired(60, 100)
    write_full_run(tmp_path, "run-01", a)
    change = {"key": "optimizer.lr", "from": 1e-6, "to": 2e-6}
    write_full_run(tmp_path, "run-02", b, config={"optimizer.lr": 2e-6}, info={"parent": "run-01", "changes": [change]})
    found = section(write(tmp_path), "Conclusion")
    assert "Highest score: `run-02` (**lr 1e-06→2e-06**)" in found
    assert "+3.03 points against the control, 95 % interval [−1.60, 7.67]: **inconclusive** at recipe scope." in found
    assert "Whether the change did it is not shown." in found
    assert "single change that did it" not in found


def test_several_changes_at_once_are_not_given_the_credit(tmp_path: Path) -> None:
    a, b = paired(20, 220)
    write_full_run(tmp_path, "run-01", a)
    write_full_run(tmp_path, "run-02", b, config={"optimizer.lr": 2e-6, "grpo.kl_coef": 0.1})
    found = section(write(tmp_path), "Conclusion")
    assert "**better** at recipe scope. 2 things changed at once" in found
    assert "cannot be attributed to one of them" in found


def test_when_nothing_beats_the_control_it_says_so(tmp_path: Path) -> None:
    a, b = paired(150, 40)
    write_full_run(tmp_path, "run-01", a)
    write_full_run(tmp_path, "run-02", b, config={"grpo.kl_coef": 0.1})
    text = write(tmp_path)
    assert "No run scored above the control `run-01`" in section(text, "Conclusion")
    assert "Nothing is shown to be better yet" in section(text, "Next steps")


def test_the_table_holds_score_difference_verdict_and_gauges(tmp_path: Path) -> None:
    small_experiment(tmp_path)
    text = write(tmp_path)
    assert row(text, "run-01")[:5] == ["run-01", "–", "50.0 ± 3.1", "–", "control"]
    cells = row(text, "run-02")
    assert cells[:5] == ["run-02", "oversample 0→1.5", "62.0 ± 3.0", "+12.00 [6.99, 17.01]", "better"]
    last = curves(end=0.7, seed=2, change={"adv_std": 0.4})[-12:]
    assert cells[7] == f"{sum(record['adv_std'] for record in last) / 12:.2f}"
    assert cells[6] == f"{sum(record['completion_length'] for record in last) / 12:.0f}"
    assert cells[10] == "7,680"


def test_the_resolution_says_where_each_part_comes_from(tmp_path: Path) -> None:
    small_experiment(tmp_path)
    found = section(write(tmp_path), "Resolution")
    assert "margin of ±4 points and α = 0.05" in found
    assert "SD 1.53 points (prior 1.53 pp worth 6 df, no seeds measured)" in found
    assert "one in four one-seed comparisons" in found
    assert "Grader error: not measured, taken as 0." in found
    assert "reach 4.8 to 5.0 points to either side (median 5.0)" in found
    assert "adjusted for 3 comparisons" in found


def test_an_audit_on_disk_is_the_grader_error(tmp_path: Path) -> None:
    small_experiment(tmp_path)
    for name in ("run-01", "run-02", "run-03", "run-04"):
        audit = {"bias_pp": 0.0, "bias_ci95_pp": [-0.5, 0.5]}
        (tmp_path / name / "audit.json").write_text(json.dumps(audit))
    text = write(tmp_path)
    assert re.search(r"allow for 0\.\d\d points", section(text, "Resolution"))
    assert "rlforge audit" not in section(text, "Next steps")


def test_seeds_of_an_arm_have_no_row_of_their_own(tmp_path: Path) -> None:
    small_experiment(tmp_path)
    control, _ = paired(0, 30, n=1000, right_a=480)
    write_full_run(tmp_path, "run-05", control, seed=1, info={"parent": "run-01"})
    text = write(tmp_path)
    assert row(text, "run-01 ×2")[2].startswith("49.0")
    assert "| run-05" not in text
    assert "`run-01` stands for its seeds `run-01`, `run-05`" in text
    assert "(mean of 2 seeds)" in section(text, "Conclusion")
    assert "pooled with 2 runs of 1 arm" in section(text, "Resolution")


def test_evidence_names_metric_and_values(tmp_path: Path) -> None:
    records = [
        {
            "step": step,
            "zero_std_fraction": 0.1 if step <= 10 else 0.25,
            "completion_length": 100.0 if step <= 90 else 150.0,
            "accuracy": step / 100,
            "adv_std": 1.25,
            "completions_generated": 64 * step,
            "seconds_total": 36.0,
        }
        for step in range(1, 101)
    ]
    write_full_run(tmp_path, "run-01", [1, 0] * 50, records=records)
    found = section(write(tmp_path), "Evidence")
    assert (
        "- `zero_std_fraction` 10.0 % → 25.0 %: this share of the generated groups taught nothing at the end." in found
    )
    assert "- `completion_length` 100 → 150 tokens, together with `accuracy`: healthy growth." in found
    assert "- `adv_std` 1.25 → 1.25; smoothed, it stayed at 1.25 or above." in found
    assert "- `accuracy` 5.5 % → 95.5 %; it rises (p = 0.0275)." in found
    assert "- `completions_generated` 6,400 in 100 steps and 1 h 00 min." in found
    assert "- Not logged: `truncated_fraction`, `kl_ref`, `entropy`, `clip_fraction`." in found


def test_reward_curves_of_other_rewards_carry_a_warning(tmp_path: Path) -> None:
    small_experiment(tmp_path)
    text = write(tmp_path)
    assert "Reward curves are not comparable between runs whose rewards differ, here `run-04`" in section(
        text, "Training curves"
    )
    same = write(tmp_path, "run-01", "run-02", "run-03", out=tmp_path / "same.md")
    assert "not comparable between runs whose rewards differ" not in same


def test_next_steps_follow_the_order_and_hold_commands_to_paste(tmp_path: Path) -> None:
    small_experiment(tmp_path)
    found = section(write(tmp_path), "Next steps")
    titles = re.findall(r"^### (\d)\\?\. (.+)$", found, re.MULTILINE)
    assert [number for number, _ in titles] == list("12345678")
    at = f"--runs-dir {tmp_path}"
    commands = [line for block in re.findall(r"```sh\n(.*?)\n```", found, re.DOTALL) for line in block.split("\n")]
    assert commands[0] == f"rlforge seeds run-02 --n 3 --control run-01 {at}"
    assert re.fullmatch(rf"rlforge seeds run-04 --n \d+ --control run-01 {re.escape(at)}", commands[1])
    assert f"rlforge audit run-01 {at}" in commands
    assert f"rlforge audit run-02 {at}" in commands
    assert f"rlforge train --from run-02 --set lr=2e-06 --equal-steps {at}" in commands
    assert f"rlforge eval run-01 --checkpoint base --samples 8 --k 1 --k 8 {at}" in commands
    assert "Tried in `run-02` (better)." in found
    assert not any("oversample=1.5 --equal-samples" in line and "--from" in line for line in commands)


def test_a_single_run_is_reported_alone(tmp_path: Path) -> None:
    write_full_run(tmp_path, "run-01", [1, 0, 1, 1] * 25)
    text = write(tmp_path)
    assert "There is one run: nothing to compare it with yet." in text
    assert row(text, "run-01")[2].startswith("75.0 ±")
    assert "on validation" not in section(text, "Next steps")


def test_the_ceiling_is_shown_once_it_was_measured(tmp_path: Path) -> None:
    path = write_full_run(tmp_path, "run-01", [1, 0] * 50)
    (path / "evals" / "test-base-x8.json").write_text(json.dumps({"pass_at_k": {"1": 0.2, "8": 0.483}}))
    assert "pass@8 of the untrained model is 48.3 %" in section(write(tmp_path), "Next steps")


# runs that are not well


def damaged(path: Path, how: str) -> None:
    if how == "crashed":
        info = json.loads((path / "run.json").read_text())
        (path / "run.json").write_text(json.dumps(info | {"status": "running", "steps": 40}))
    elif how == "failed":
        info = json.loads((path / "run.json").read_text())
        (path / "run.json").write_text(json.dumps(info | {"status": "failed", "steps": 7, "reason": "no signal"}))
    elif how == "no evaluation":
        (path / "evals" / "test.jsonl").unlink()
        (path / "evals" / "test.json").unlink()
    elif how == "torn evaluation":
        text = (path / "evals" / "test.jsonl").read_text()
        (path / "evals" / "test.jsonl").write_text(text[:-30])
    elif how == "unequal samples":
        text = (path / "evals" / "test.jsonl").read_text()
        (path / "evals" / "test.jsonl").write_text(text + text.split("\n")[0] + "\n")
    elif how == "torn metrics":
        text = (path / "metrics.jsonl").read_text()
        (path / "metrics.jsonl").write_text(text[:-40])
    elif how == "no metrics":
        (path / "metrics.jsonl").unlink()
    elif how == "nan":
        records = curves()
        for record in records[-3:]:
            record |= {"kl_ref": None, "_nonfinite": ["kl_ref"]}
        (path / "metrics.jsonl").write_text(jsonl(records))
    elif how == "no entropy":
        (path / "metrics.jsonl").write_text(jsonl([{k: v for k, v in r.items() if k != "entropy"} for r in curves()]))
    elif how == "spoiled config":
        (path / "config.json").write_text("{")


DAMAGE = (
    ("crashed", "crashed after 40 steps: continue it with `rlforge train --resume run-03", "not comparable"),
    ("failed", "failed after 7 steps (no signal): continue it", "not comparable"),
    ("no evaluation", "no evaluation 'test': run `rlforge eval run-03` first", "not comparable"),
    ("torn evaluation", "1 incomplete line ignored in run-03 (evals/test.jsonl)", "not comparable"),
    ("unequal samples", "has 1 results where others have 2", "not comparable"),
    ("torn metrics", "1 incomplete line ignored in run-03 (metrics.jsonl)", "worse"),
    ("no metrics", "No training step was logged", "worse"),
    ("nan", "3 of 120 values are not finite", "worse"),
    ("no entropy", "Not logged: `entropy`.", "worse"),
    ("spoiled config", "config.json: unreadable and ignored", "worse"),
)


@pytest.mark.parametrize(("how", "reason", "verdict"), DAMAGE, ids=[how for how, _, _ in DAMAGE])
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_damaged_run_is_a_row_with_its_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], how: str, reason: str, verdict: str, lang: str
) -> None:
    small_experiment(tmp_path)
    damaged(tmp_path / "run-03", how)
    text = write(tmp_path, lang=lang)
    if lang == "zh":
        assert re.search(r"^\| run-03 \|.*(不可比|确定更差)", text, re.MULTILINE)
        return
    assert row(text, "run-03")[4] == verdict
    assert reason in text.replace("&#58;", ":").replace("\\", "")
    assert row(text, "run-02")[4] == "better"
    if "ignored" in reason:
        assert reason in capsys.readouterr().err


def test_nan_in_the_last_steps_shows_as_nan(tmp_path: Path) -> None:
    small_experiment(tmp_path)
    damaged(tmp_path / "run-03", "nan")
    text = write(tmp_path)
    assert row(text, "run-03")[8] == "nan"
    assert "not finite in the last tenth of the steps: kl_ref" in text


def test_a_control_without_a_result_leaves_every_row_a_reason(tmp_path: Path) -> None:
    small_experiment(tmp_path)
    damaged(tmp_path / "run-01", "no evaluation")
    text = write(tmp_path, "run-01", "run-02")
    assert row(text, "run-01")[2] == "–"
    assert "the control run-01 cannot be compared" in row(text, "run-02")[3]
    assert "The control `run-01` has no result" in section(text, "Conclusion")


def test_the_default_control_is_the_first_one_with_a_result(tmp_path: Path) -> None:
    small_experiment(tmp_path)
    damaged(tmp_path / "run-01", "crashed")
    _, redone = paired(40, 40, n=1000, right_a=500)
    write_full_run(tmp_path, "run-05", redone)
    order = [run.id for run in control_first(RunDir.all(tmp_path), tmp_path)]
    assert order == ["run-05", "run-01", "run-02", "run-03", "run-04"]


def test_a_run_outside_the_folder_goes_by_its_path(tmp_path: Path) -> None:
    small_experiment(tmp_path / "runs")
    write_full_run(tmp_path / "else", "run-01", [1, 0] * 500, config={"optimizer.lr": 2e-6})
    text = write(tmp_path / "runs", "run-01", str(tmp_path / "else" / "run-01"))
    assert row(text, str(tmp_path / "else" / "run-01"))[4] in ("worse", "inconclusive", "better")


def test_steps_logged_twice_after_a_resume_count_once(tmp_path: Path) -> None:
    first = [{"step": s, "accuracy": 0.0, "completions_generated": 64 * s} for s in range(16)]
    again = [{"step": s, "accuracy": 0.5, "completions_generated": 64 * s} for s in range(10, 100)]
    write_full_run(tmp_path, "run-01", [1, 0] * 50, records=[*first, *again])
    found = section(write(tmp_path), "Evidence")
    assert "`accuracy` 0.0 % → 50.0 %" in found
    assert "in 99 steps" in found


def test_results_of_several_samples_list_no_flips(tmp_path: Path) -> None:
    small_experiment(tmp_path)
    for name in ("run-01", "run-02"):
        path = tmp_path / name
        lines = (path / "evals" / "test.jsonl").read_text()
        (path / "evals" / "test.jsonl").write_text(lines + lines)
    text = write(tmp_path, "run-01", "run-02")
    assert "do not hold one answer a problem" in section(text, "Flipped problems")


def test_texts_of_another_type_than_text_are_shown_all_the_same(tmp_path: Path) -> None:
    small_experiment(tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "run-02" / "evals" / "test.jsonl").read_text().split("\n")[:-1]]
    changed = [line | {"completion": {"a": [1]}, "prediction": 7} for line in lines]
    (tmp_path / "run-02" / "evals" / "test.jsonl").write_text(jsonl(changed))
    assert "read as 7" in write(tmp_path)
    write_texts(tmp_path / "run-02", [1, 0] * 500)
