"""Auditing the grader: the draw, the answers, the estimates, what compare makes of them, and the terminal."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from comparison_files import paired, versus, write_run
from typer.testing import CliRunner

from rlforge_cli import audit, audit_view, explanations, second_grader
from rlforge_cli.__main__ import app, register
from rlforge_cli.audit_estimates import estimate, items_to_halve, widths
from rlforge_cli.audit_sample import Item, draw, read_items, states
from rlforge_cli.errors import UserError
from rlforge_cli.run_dir import RunDir
from rlforge_cli.stats.stratified import Stratum, allocate

RUNS = Path("runs")


def record(index: int, graded: bool, completion: str) -> dict[str, Any]:
    return {"id": f"q{index}", "correct": graded, "answer": "26", "completion": completion}


def scored_run(name: str = "run-01", *, right: int = 60, near: int = 10, wrong: int = 30) -> RunDir:
    """A run of graded answers; ``near`` ones state the gold answer on the way."""
    path = write_run(RUNS, name, [1])
    records = [record(i, True, f"17+9=26 {i + 1000}\n#### 26") for i in range(right)]
    records += [record(right + i, False, f"17+9=26;26+1=27\n#### 27 {i + 1000}") for i in range(near)]
    records += [record(right + near + i, False, f"#### {i + 1000}") for i in range(wrong)]
    (path / "evals" / "test.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    return RunDir(path)


def begun(run: RunDir, *, n: int = 20, seed: int = 0) -> audit.Audit:
    return audit.begin(run, n=n, seed=seed, evaluation="test")


def answered(work: audit.Audit, *, wrong_about: set[str] = frozenset()) -> audit.Audit:  # type: ignore[assignment]
    """Everything answered as graded, but for the named ones."""
    for item in work.drawn:
        work.record(item, item.graded != (item.key in wrong_about))
    return work


# the draw


@pytest.mark.parametrize(
    ("completion", "answer", "expected"),
    [
        ("17+9=26;", "26", True),
        ("126 and 261", "26", False),
        ("2.6 and 26.5", "26", False),
        ("26.00", "26", True),
        ("1,072 or", "1072", True),
        ("1072", "1,072", True),
        ("12 500 in all", "12500", True),
        ("-5", "5", True),
        ("so Monday.", "monday", True),
        ("Mondays", "Monday", False),
        ("(a)*[", "*[", True),
        ("", "3", False),
    ],
)
def test_near_means_the_gold_answer_stands_in_the_text(completion: str, answer: str, expected: bool) -> None:
    assert states(completion, answer) is expected


def test_strata() -> None:
    items = read_items(scored_run(right=2, near=1, wrong=1), "test")
    assert [item.stratum for item in items] == ["right", "right", "near", "wrong"]


def test_samples_of_one_problem_have_keys_of_their_own() -> None:
    run = scored_run(right=2)
    path = run.evals / "test.jsonl"
    path.write_text(path.read_text().replace('"q1"', '"q0"'))
    assert [item.key for item in read_items(run, "test")][:3] == ["q0", "q0#2", "q2"]


def test_the_draw_is_seeded_and_grows() -> None:
    items = read_items(scored_run(), "test")
    small, large = draw(items, n=20, seed=0), draw(items, n=50, seed=0)
    assert [item.key for item in small] == [item.key for item in draw(list(reversed(items)), n=20, seed=0)]
    assert {item.key for item in small} < {item.key for item in large}
    assert {item.key for item in small} != {item.key for item in draw(items, n=20, seed=1)}
    counts = [sum(item.stratum == name for item in small) for name in ("right", "near", "wrong")]
    assert counts == [10, 3, 7]
    assert len(draw(items, n=500, seed=0)) == 100
    with pytest.raises(UserError, match="--n 0"):
        draw(items, n=0, seed=0)


# estimates


def test_estimates_are_reweighted_by_stratum() -> None:
    work = begun(scored_run())
    errors = {next(i.key for i in work.drawn if i.stratum == name) for name in ("right", "near")}
    found = audit.estimates(answered(work, wrong_about=errors))
    # 10 of 60, 3 of 10 and 7 of 30 checked; one of the first and one of the second graded wrongly
    truly_right = 0.6 * 9 / 10 + 0.1 * 1 / 3
    assert found["true_accuracy"] == pytest.approx(truly_right)
    assert found["bias_pp"] == pytest.approx(100 * (0.6 - truly_right))
    assert found["sensitivity"] == pytest.approx(0.54 / truly_right)
    assert found["specificity"] == pytest.approx((0.1 * 2 / 3 + 0.3) / (1 - truly_right))
    for name in ("bias", "sensitivity", "specificity"):
        low, high = found["bias_ci95_pp"] if name == "bias" else found[f"{name}_ci95"]
        assert low < (found["bias_pp"] if name == "bias" else found[name]) < high


def test_checking_everything_leaves_no_doubt() -> None:
    work = begun(scored_run(), n=100)
    found = audit.estimates(answered(work, wrong_about={"q0", "q1", "q60"}))
    assert found["bias_pp"] == pytest.approx(1.0)
    assert found["bias_ci95_pp"] == pytest.approx([1.0, 1.0])
    assert found["sensitivity"] == pytest.approx(58 / 59)
    assert found["specificity_ci95"] == pytest.approx([39 / 41, 39 / 41], abs=1e-9)


def test_nothing_is_estimated_half_way() -> None:
    work = begun(scored_run())
    work.record(work.drawn[0], True)
    assert audit.estimates(work) == {}
    audit.save(work)
    assert "bias_pp" not in json.loads(work.file.read_text())


def test_compare_allows_for_what_audits_measured() -> None:
    a, b = paired(60, 100)
    for name, right in (("run-11", a), ("run-12", b)):
        write_run(RUNS, name, right, config={"optimizer.lr": 1e-6 if name == "run-11" else 2e-6})
        path = RUNS / name / "evals" / "test.jsonl"
        lines = [json.loads(line) | {"completion": f"#### {i}"} for i, line in enumerate(path.read_text().splitlines())]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        work = audit.begin(RunDir(RUNS / name), n=200, seed=0, evaluation="test")
        audit.save(answered(work))
    result = versus(RUNS, "run-11", "run-12", scope="checkpoint")
    intervals = [json.loads((RUNS / name / "audit.json").read_text())["bias_ci95_pp"] for name in ("run-11", "run-12")]
    (la, ha), (lb, hb) = intervals
    # both biases are 0, so the bound is the outer end of their difference
    expected = max((lb**2 + ha**2) ** 0.5, (hb**2 + la**2) ** 0.5)
    assert result.grader_error_pp == pytest.approx(expected)
    assert not any("not measured" in note for note in result.notes)


# answers


def test_an_audit_is_taken_up_where_it_was_left() -> None:
    run = scored_run()
    work = begun(run)
    given = iter([True, False, None])
    audit.ask_all(work, lambda item, number, total: next(given))
    again = begun(run)
    assert len(again.open) == 18
    assert [again.right(item) for item in again.drawn[:3]] == [True, False, None]
    asked: list[tuple[int, int]] = []

    def ask(item: Item, number: int, total: int) -> bool:
        asked.append((number, total))
        return True

    audit.ask_all(again, ask)
    assert asked == [(number, 20) for number in range(3, 21)]
    assert begun(run, n=50).right(again.drawn[5]) is True


def test_an_answer_about_another_text_is_not_taken_over() -> None:
    run = scored_run()
    audit.save(answered(begun(run)))
    path = run.evals / "test.jsonl"
    first = begun(run).drawn[0]
    path.write_text(path.read_text().replace(json.dumps(first.completion), json.dumps(first.completion + " again")))
    assert [item.key for item in begun(run).open] == [first.key]


def test_a_file_of_answers_may_be_partial() -> None:
    run = scored_run()
    work = begun(run)
    keys = [item.key for item in work.drawn]
    other = next(item.key for item in work.items if item.key not in keys)
    answers = [{"id": keys[0], "right": True}, {"id": keys[1], "right": None}, {"id": other, "right": True}]
    Path("a.jsonl").write_text("\ufeff" + "\n\n".join(map(json.dumps, answers)), encoding="utf-8")
    assert audit.take_answers(work, Path("a.jsonl")) == [other]
    assert [work.right(item) for item in work.drawn[:2]] == [True, None]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"id": "q0", "right": "yes"}', "a.jsonl:1: expected"),
        ('{"id": "q0", "right": 1}', "a.jsonl:1: expected"),
        ('\n{"right": true}', "a.jsonl:2: expected"),
        ("[1]", "a.jsonl:1: expected"),
        ('{"id": "q0", "rig', "a.jsonl:1: not valid JSON"),
        ('{"id": "qq", "right": true}', "no graded item 'qq'"),
        (b"\xff\xfe", "is not UTF-8"),
        (None, "a.jsonl: cannot be read"),
    ],
)
def test_bad_answers(content: str | bytes | None, message: str) -> None:
    if content is not None:
        Path("a.jsonl").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=message):
        audit.take_answers(begun(scored_run()), Path("a.jsonl"))


def test_an_export_is_filled_in_and_read_back() -> None:
    work = begun(scored_run())
    audit.export(work, Path("a.jsonl"), {"q0": "what?"})
    lines = [json.loads(line) for line in Path("a.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines] == [item.key for item in work.drawn]
    assert {"right", "answer", "prompt", "completion"} < lines[0].keys()
    assert "correct" not in lines[0]  # nobody is told what the grader thinks
    Path("b.jsonl").write_text("".join(json.dumps(line | {"right": True}) + "\n" for line in lines))
    audit.take_answers(work, Path("b.jsonl"))
    assert work.open == []
    with pytest.raises(UserError, match="File exists"):
        audit.export(work, Path("a.jsonl"), {})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda run: (run.evals / "test.jsonl").unlink(), "has no evaluation 'test'"),
        (lambda run: (run.evals / "test.jsonl").write_text(""), "holds no results"),
        (lambda run: (run.evals / "test.jsonl").write_text('{"id": 1, "correct": true}\n'), "without answer"),
        (lambda run: (run.path / "audit.json").write_text('{"answers": [1]}'), "damaged; remove it"),
        (lambda run: (run.path / "audit.json").write_text("{"), "damaged; remove it"),
    ],
)
def test_what_cannot_be_audited(change: Any, message: str) -> None:
    run = scored_run()
    change(run)
    with pytest.raises(UserError, match=message):
        begun(run)


# the terminal


def shown(
    item: Item, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[Any, str]:
    monkeypatch.setattr("sys.stdin", io.StringIO(said))
    answer = audit_view.asker({"q": "2+2=?"})(item, 3, 50)
    captured = capsys.readouterr()
    assert captured.out == ""
    return answer, captured.err


@pytest.mark.parametrize(
    ("said", "answer", "questions"),
    [("y\n", True, 1), ("No\n", False, 1), ("what\n\nyes\n", True, 3), ("q\n", None, 1), ("", None, 1)],
)
def test_one_question(
    said: str, answer: bool | None, questions: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    item = Item("q", "q", "4", "so\n#### 4", True, "right")
    found, text = shown(item, said, monkeypatch, capsys)
    assert found is answer
    assert text.count("right?") == questions
    assert "  2+2=?" in text
    assert "  #### 4" in text


def test_hostile_text_is_shown_and_not_obeyed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = "\x1b[2J\x1b]0;gone\x07 [red]x[/red] :smile: \u202e \r#### 4"
    _, text = shown(Item("q", "q", "\x1b[31m", hostile, True, "right"), "y\n", monkeypatch, capsys)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\\x1b[2J" in text
    assert "[red]x[/red] :smile:" in text


def test_a_long_completion_keeps_its_end(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    _, text = shown(Item("q", "q", "4", "a" * 50_000 + "\n#### 4", True, "right"), "y\n", monkeypatch, capsys)
    assert len(text) < 7000
    assert "characters left out" in text
    assert "#### 4" in text


# the command


def registered() -> Any:
    if not app.registered_commands:
        register()
    return app


def command(*words: str, said: str = "") -> Any:
    return CliRunner().invoke(registered(), ["audit", *words], input=said)


def test_json_is_one_object_and_the_rest_goes_to_stderr() -> None:
    scored_run()
    done = command("run-01", "--n", "6", "--json", "--no-second", said="y\n" * 6)
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert (found["answered"], found["complete"], found["n"]) == (6, True, 6)
    assert json.loads((RUNS / "run-01" / "audit.json").read_text())["bias_pp"] == found["bias_pp"]


def test_quitting_keeps_the_answers_and_says_how_to_go_on() -> None:
    scored_run()
    done = command("run-01", "--n", "6", said="y\nn\nq\n")
    assert done.exit_code == 0
    assert "2 of 6 items checked" in done.stdout
    assert "rlforge audit run-01 --n 6" in done.stdout


def test_the_second_grader_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    run = scored_run()
    judged: list[str] = []

    class Contrary:
        def __enter__(self) -> Contrary:
            return self

        def __exit__(self, *exc: object) -> None: ...

        def judge(self, completion: str, answer: str) -> second_grader.Opinion:
            judged.append(completion)
            return second_grader.Opinion(completion.startswith("17+9=26;"))

    monkeypatch.setattr(second_grader, "SecondGrader", Contrary)
    monkeypatch.setattr(second_grader, "version", lambda: "9.9")
    for _ in range(2):
        done = command("run-01", "--n", "6", said="y\n" * 6)
    assert len(judged) == 100
    assert "math-verify 9.9 disagrees on 70 of 100; 60 right only here (q0, q1, q2, q3, q4)" in done.stdout
    path = run.evals / "test.jsonl"
    path.write_text(path.read_text().replace('"q1"', '"other"'))
    command("run-01", "--n", "6", said="y\n" * 6)
    assert len(judged) == 200


def test_without_the_second_grader_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    scored_run()
    monkeypatch.setattr(second_grader, "version", lambda: None)
    done = command("run-01", "--n", "6", said="y\n" * 6)
    assert done.exit_code == 0
    assert "pip install 'rlforge[audit]'" in done.stderr
    assert "second grader" not in done.stdout


def test_other_evaluations_are_audited_apart() -> None:
    run = scored_run()
    (run.evals / "validation.jsonl").write_text((run.evals / "test.jsonl").read_text())
    command("run-01", "--n", "6", "--eval", "validation", "--no-second", said="y\n" * 6)
    assert (run.path / "audit-validation.json").is_file()
    assert not (run.path / "audit.json").exists()


# how closely


def checked(*, n: int, errors: int = 0) -> dict[str, Stratum]:
    """The stated sample: 1,319 items of which 800 are graded right, 100 near and 419 wrong."""
    sizes = {"right": 800, "near": 100, "wrong": 419}
    counts = allocate(sizes, n)
    return {
        name: Stratum(
            weight=size / 1319, size=size, asked=counts[name], yes=counts[name] - errors if name == "right" else 0
        )
        for name, size in sizes.items()
    }


def test_what_explain_says_about_fifty_items_is_so() -> None:
    fifty = checked(n=50)
    wide = {name: round(width, 1) for name, width in widths(estimate(fifty)).items()}
    assert wide == {"bias": 14.5, "sensitivity": 10.0, "specificity": 16.7}
    assert "bias 14.5, sensitivity 10.0 and specificity 16.7 points wide" in explanations.COARSE
    assert explanations.COARSE in CliRunner().invoke(registered(), ["explain", "specificity"]).stdout
    assert all(abs(count - 105) <= 5 for count in items_to_halve(fifty).values())
    errors = [round(estimate(checked(n=n))["grader_error_pp"], 1) for n in (50, 200, 350)]
    assert errors == [10.3, 2.4, 1.2]


@pytest.mark.parametrize("errors", [0, 2])
def test_so_many_items_halve_the_interval(errors: int) -> None:
    before = checked(n=60, errors=errors)
    for name, count in items_to_halve(before).items():
        sizes = {key: s.size for key, s in before.items()}
        asked = allocate(sizes, count)
        after = {
            key: Stratum(weight=s.weight, size=s.size, asked=asked[key], yes=s.share * asked[key])
            for key, s in before.items()
        }
        ratio = widths(estimate(after))[name] / widths(estimate(before))[name]
        assert 0.47 < ratio <= 0.5
        # an interval without errors shrinks like 1/n, one with errors more slowly
        assert count > 60 * (1.6 if errors == 0 else 2.2) or name == "sensitivity"


def test_the_audit_says_how_coarse_it_is() -> None:
    run = scored_run(right=600, near=100, wrong=300)
    graded = {item.key: item.graded for item in read_items(run, "test")}

    def checked_by_hand(n: int) -> str:
        Path("answers.jsonl").write_text(
            "".join(json.dumps({"id": item.key, "right": graded[item.key]}) + "\n" for item in begun(run, n=n).drawn)
        )
        said = command("run-01", "--n", str(n), "--no-second", "--answers", "answers.jsonl")
        return str(said.stdout)

    text = checked_by_hand(50)
    found = json.loads((RUNS / "run-01" / "audit.json").read_text())
    low, high = found["specificity_ci95"]
    needed = found["items_to_halve"]["specificity"]
    assert f"specificity {100 * (high - low):.1f} pp wide ({needed} halve it)" in text
    assert f"leave a grader error of {found['grader_error_pp']:.1f} pp" in text
    assert "every item is checked: nothing is left to estimate" in checked_by_hand(1000)


def test_compare_counts_what_the_second_grader_disputes(monkeypatch: pytest.MonkeyPatch) -> None:
    run = scored_run()

    class Strict:
        def __enter__(self) -> Strict:
            return self

        def __exit__(self, *exc: object) -> None: ...

        def judge(self, completion: str, answer: str) -> second_grader.Opinion:
            return second_grader.Opinion(completion.startswith("17+9=26 ") and int(completion[8:12]) >= 1020)

    monkeypatch.setattr(second_grader, "SecondGrader", Strict)
    monkeypatch.setattr(second_grader, "version", lambda: "9.9")
    command("run-01", "--n", "6", said="y\n" * 6)
    other = write_run(RUNS, "run-02", [1], config={"optimizer.lr": 2e-6})
    records = [json.loads(line) for line in (run.evals / "test.jsonl").read_text().splitlines()]
    worse = [r | {"correct": r["correct"] and i >= 30} for i, r in enumerate(records)]
    (other / "evals" / "test.jsonl").write_text("".join(json.dumps(r) + "\n" for r in worse))
    row = versus(RUNS, "run-02", "run-01", scope="checkpoint").rows[1]
    assert (row.verdict, row.discordant, row.tipping_items, row.disputed_wins) == ("better", (0, 30), 25, 20)


def test_an_audit_that_cannot_be_kept_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    work = answered(begun(scored_run()))

    def refuse(path: Path, value: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(audit, "write_json", refuse)
    with pytest.raises(UserError, match=r"audit.json: cannot be written: Permission denied"):
        audit.save(work)
