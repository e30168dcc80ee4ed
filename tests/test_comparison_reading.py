"""What counts as results: plain files, repeated samples, lm-evaluation-harness logs."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest
from comparison_files import bits, jsonl, lines, only_row, paired, versus, write_results, write_run

from rlforge_cli.comparison.samples import normal_id, read_scores
from rlforge_cli.errors import UserError

A, B = paired(60, 100)


# reading results


@pytest.mark.parametrize(
    ("value", "item"),
    [(7, "7"), ("7", "7"), (7.0, "7"), ("q7", "q7"), ("007", "007"), (True, None), (None, None), ([1], None)],
)
def test_ids_have_one_spelling(value: object, item: str | None) -> None:
    assert normal_id(value) == item


def test_items_are_joined_by_id_not_by_order(tmp_path: Path) -> None:
    a = jsonl(tmp_path / "a.jsonl", *({"id": i, "correct": i < 5} for i in range(10)))
    b = jsonl(tmp_path / "b.jsonl", *({"id": str(i), "correct": int(i < 5)} for i in reversed(range(10))))
    row = only_row(tmp_path, a, b, scope="checkpoint")
    assert row.discordant == (0, 0)
    assert row.p == 1
    assert any("same checkpoint?" in reason for reason in row.reasons)


def test_repeated_ids_with_equal_counts_are_samples_of_one_item(tmp_path: Path) -> None:
    answers = {"a": "1111 1111 0000 0000", "b": "1111 1111 1110 0001"}
    for name, text in answers.items():
        rows = [{"id": i, "correct": bool(v)} for i, word in enumerate(text.split()) for v in bits(word)]
        jsonl(tmp_path / f"{name}.jsonl", *rows)
    row = only_row(tmp_path, str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl"), scope="checkpoint")
    assert (row.n_items, row.accuracy, row.delta_pp) == (4, 0.75, pytest.approx(25.0))
    assert row.discordant is None
    # item differences 0, 0, .75, .25: sd .35355, SE .17678, t(3) of 1.41421
    assert row.p == pytest.approx(0.252215, abs=1e-6)


def test_repeated_ids_with_unequal_counts_are_refused(tmp_path: Path) -> None:
    a = jsonl(tmp_path / "a.jsonl", *({"id": i, "correct": True} for i in (1, 1, 2)))
    with pytest.raises(UserError, match="id '2' has 1 results where others have 2"):
        versus(tmp_path, a, a)


def test_unequal_counts_in_a_run_are_its_row_and_no_other(tmp_path: Path) -> None:
    write_run(tmp_path, "run-01", A)
    write_run(tmp_path, "run-02", B, config={"optimizer.lr": 2e-6})
    odd = [
        write_run(tmp_path, "run-03", B, config={"optimizer.lr": 3e-6}),
        write_run(tmp_path, "run-04", B, seed=1, config={"optimizer.lr": 2e-6}),
    ]
    for run in odd:
        with open(run / "evals" / "test.jsonl", "a") as file:
            file.write(lines([1]))
    _, good, bad = versus(tmp_path, "run-01", "run-02", "run-03").rows
    assert good.delta_pp == pytest.approx(3.0326, abs=1e-4)
    assert any("run-04 is left out of the arm of run-02" in text and "repeated ids" in text for text in good.reasons)
    assert bad.verdict == "not_comparable"
    assert "has 1 results where others have 2: repeated ids must be" in bad.reasons[0]
    control = versus(tmp_path, "run-03", "run-01").rows
    assert [row.verdict for row in control] == ["not_comparable", "not_comparable"]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"correct": True}, "'id' is missing"),
        ({"id": 1}, "'correct' is missing"),
        ({"id": 1, "correct": None}, "'correct' is None"),
        ({"id": 1, "correct": 0.5}, "'correct' is 0.5"),
        ({"id": 1, "correct": "true"}, "'correct' is 'true'"),
        ({"id": [1], "correct": True}, r"'id' is \[1\]"),
        ({"id": math.inf, "correct": True}, "'id' is inf"),
        ({"id": 1, "correct": 10**400}, r"'correct' is 10+\.\.\.0+, expected"),
    ],
)
def test_a_file_without_results_is_an_error(tmp_path: Path, record: dict[str, Any], message: str) -> None:
    good = write_results(tmp_path / "good.jsonl", A)
    bad = jsonl(tmp_path / "bad.jsonl", {"id": 0, "correct": True}, record)
    with pytest.raises(UserError, match=f"bad.jsonl: record 2: {message}"):
        versus(tmp_path, str(good), bad)


def test_an_empty_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(UserError, match="holds no results; expected"):
        read_scores(tmp_path / "empty.jsonl")
    (tmp_path / "empty.jsonl").write_bytes(b'{"id": "\xe9", "correct": true}\n[1]\n')
    with pytest.raises(UserError, match="holds no results: none of its 2 lines is a JSON object; expected"):
        read_scores(tmp_path / "empty.jsonl")


def test_what_a_shell_pipes_in_is_a_file_of_results(tmp_path: Path) -> None:
    a = write_results(tmp_path / "a.jsonl", bits("1100"))
    read, write = os.pipe()
    os.write(write, a.read_bytes())
    os.close(write)
    row = only_row(tmp_path, str(a), f"/dev/fd/{read}", scope="checkpoint")
    os.close(read)
    assert row.discordant == (0, 0)


# lm-evaluation-harness logs


def harness_log(path: Path, flexible: str, strict: str | None = None, **extra: Any) -> str:
    records = []
    for name, text in (("strict-match", strict), ("flexible-extract", flexible)):
        for index, value in enumerate(bits(text or "")):
            record = {"doc_id": index, "filter": name, "metrics": ["exact_match"], "exact_match": float(value)}
            records.append(record | {"target": str(index), "resps": [["#### 1"]]} | extra)
    return jsonl(path, *records)


def test_harness_logs_use_one_filter(tmp_path: Path) -> None:
    a = harness_log(tmp_path / "a.jsonl", "11110000", "10100000")
    b = harness_log(tmp_path / "b.jsonl", "11111100", "11110000")
    row = only_row(tmp_path, a, b, scope="checkpoint")
    assert (row.n_items, row.delta_pp, row.discordant) == (8, 25.0, (0, 2))
    assert (row.accuracy_strict, row.delta_strict_pp) == (0.5, 25.0)
    strict = only_row(tmp_path, a, b, scope="checkpoint", filter="strict-match")
    assert (strict.accuracy, strict.discordant) == (0.5, (0, 2))


def test_a_filter_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    a = harness_log(tmp_path / "a.jsonl", "11110000", "10100000")
    with pytest.raises(UserError, match=r"no filter 'strict_match' \(did you mean 'strict-match'"):
        versus(tmp_path, a, a, filter="strict_match")


def test_the_only_filter_is_taken_without_asking(tmp_path: Path) -> None:
    rows = [{"doc_id": i, "filter": "none", "acc": float(i < 3), "acc_norm": 1.0} for i in range(6)]
    scores = read_scores(Path(jsonl(tmp_path / "a.jsonl", *rows)))
    assert scores.right.tolist() == [1, 1, 1, 0, 0, 0]


@pytest.mark.parametrize("extra", [{"filter": ["x"]}, {"metrics": 5}, {"metrics": [["x"], {}]}])
def test_odd_fields_of_a_harness_log_are_no_crash(tmp_path: Path, extra: dict[str, Any]) -> None:
    rows = [{"doc_id": i, "filter": "none", "exact_match": float(i < 2)} | extra for i in range(4)]
    assert read_scores(Path(jsonl(tmp_path / "a.jsonl", *rows))).right.tolist() == [1, 1, 0, 0]
    bare = [{key: value for key, value in row.items() if key != "exact_match"} for row in rows]
    with pytest.raises(UserError, match="no metric that is right or wrong"):
        read_scores(Path(jsonl(tmp_path / "b.jsonl", *bare)))


def test_harness_logs_and_plain_files_meet(tmp_path: Path) -> None:
    a = harness_log(tmp_path / "a.jsonl", "11110000")
    b = write_results(tmp_path / "b.jsonl", bits("11110011"))
    assert only_row(tmp_path, a, str(b), scope="checkpoint").discordant == (0, 2)


def test_a_harness_log_with_other_prompts_is_refused(tmp_path: Path) -> None:
    a = harness_log(tmp_path / "a.jsonl", "1100", prompt_hash="x")
    b = harness_log(tmp_path / "b.jsonl", "1110", prompt_hash="y")
    row = only_row(tmp_path, a, b)
    assert row.verdict == "not_comparable"
    assert row.reasons[0] == "prompts differ on 4 items (first: '0')"


def test_filters_without_names_are_no_samples(tmp_path: Path) -> None:
    rows = [{"doc_id": i, "exact_match": v, "resps": [["7"]]} for i in range(3) for v in (0.0, 1.0)]
    with pytest.raises(UserError, match="filters without names"):
        read_scores(Path(jsonl(tmp_path / "a.jsonl", *rows)))


def test_a_harness_log_without_a_yes_or_no_metric_is_an_error(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", {"doc_id": 0, "filter": "none", "bleu": 31.2, "metrics": ["bleu"]})
    with pytest.raises(UserError, match="no metric that is right or wrong"):
        read_scores(Path(path))
