"""The second grader: opinions, and a worker that is killed, dies or never starts."""

from __future__ import annotations

import sys

import pytest

from rlforge_cli import second_grader
from rlforge_cli.second_grader import Opinion, SecondGrader, disagreements

STUB = """
import json, os, sys, time
print("{}", flush=True)
for line in sys.stdin:
    item = json.loads(line)
    if item["completion"] == "hang":
        time.sleep(60)
    if item["completion"] == "die":
        os._exit(3)
    print(json.dumps({"correct": None if item["answer"] == "?" else item["completion"] == item["answer"]}), flush=True)
"""


def stub(*, seconds: float = 20.0) -> SecondGrader:
    return SecondGrader(seconds=seconds, command=(sys.executable, "-c", STUB))


def test_a_slow_item_is_killed_and_the_next_one_is_judged() -> None:
    with stub(seconds=0.5) as grader:
        assert grader.judge("hang", "1") == Opinion(None, slow=True)
        grader.seconds = 20.0
        assert grader.judge("1", "1") == Opinion(True)
        assert grader.judge("2", "1") == Opinion(False)


def test_a_worker_that_dies_is_started_again() -> None:
    with stub() as grader:
        assert grader.judge("die", "1") == Opinion(None)
        assert grader.judge("1", "1") == Opinion(True)


def test_a_worker_that_cannot_start_has_no_opinion() -> None:
    with SecondGrader(command=(sys.executable, "-c", "raise SystemExit(1)")) as grader:
        assert grader.judge("1", "1") == Opinion(None)


def test_no_process_is_left() -> None:
    with stub() as grader:
        grader.judge("1", "1")
        process = grader.process
        assert process is not None
    assert process.poll() is not None
    assert grader.process is None


def test_texts_pass_unharmed() -> None:
    with stub() as grader:
        for text in ("a\nb", "a\u2028b", '"', "\x1b[31m", "\ud800", "答"):
            assert grader.judge(text, text) == Opinion(True), repr(text)


def test_disagreements_are_counted_by_side() -> None:
    items = [
        ("a", "1", "1", True),
        ("b", "1", "1", False),
        ("c", "2", "1", True),
        ("d", "2", "1", True),
        ("e", "2", "1", False),
        ("f", "2", "?", True),
        ("g", "die", "1", True),
    ]
    seen: list[int] = []
    with stub() as grader:
        found = disagreements(items, grader=grader, progress=seen.append)
    assert {key: found[key] for key in ("n", "disagree", "only_grader", "only_second", "no_opinion", "slow")} == {
        "n": 7,
        "disagree": 3,
        "only_grader": 2,
        "only_second": 1,
        "no_opinion": 2,
        "slow": 0,
    }
    assert found["examples"] == {"only_grader": ["c", "d"], "only_second": ["b"]}
    assert seen == [1, 2, 3, 4, 5, 6, 7]


def test_math_verify_agrees_where_the_answer_is_plain() -> None:
    pytest.importorskip("math_verify")
    with SecondGrader(seconds=60.0) as grader:
        for completion, answer, correct in [
            ("17+9=26\n#### 26", "26", True),
            ("#### 27", "26", False),
            ("so it is \\boxed{1{,}072}.", "1072", True),
            ("", "3", False),
            ("#### Monday", "Monday", None),
        ]:
            assert grader.judge(completion, answer) == Opinion(correct), completion
        # a power tower that computes for ever
        grader.seconds = 1.0
        assert grader.judge("\\boxed{9^{9^{9^{9}}}}", "26") == Opinion(None, slow=True)


def test_the_version_is_none_where_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second_grader, "NAME", "no-such-package")
    assert second_grader.version() is None
