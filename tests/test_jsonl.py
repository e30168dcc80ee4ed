from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from rlforge_cli.jsonl import number, read_records, read_steps, regular


def read(tmp_path: Path, data: bytes) -> tuple[list[dict[str, object]], int]:
    path = tmp_path / "x.jsonl"
    path.write_bytes(data)
    return read_records(path)


@pytest.mark.parametrize(
    ("data", "records", "incomplete"),
    [
        (b'{"step": 1}\n{"step": 2, "rew', [{"step": 1}], 1),
        (b'{"step": 1}\n{"step": 2}', [{"step": 1}, {"step": 2}], 0),  # whole, only its newline is missing
        (b'{"a": 1}\n{"b{"b": 2}\n{"c": 3}\n', [{"a": 1}, {"c": 3}], 1),
        (b'\xef\xbb\xbf{"a": 1}\r\n\r\n{"a": 2}\r\n', [{"a": 1}, {"a": 2}], 0),
        (b'{"a": "\xe2\x80', [], 1),
        (b'[1]\n"x"\n5\nnull\n{"a": 1}\n', [{"a": 1}], 4),
        (b"[" * 100_000, [], 1),
        (b"", [], 0),
        ('{"a": "é"}\r\n{"a": 2}\n'.encode("utf-16-le").join((b"\xff\xfe", b"")), [{"a": "é"}, {"a": 2}], 0),
        (b"\xfe\xff" + '{"a": 1}\n{"a": 2}\n'.encode("utf-16-be"), [{"a": 1}, {"a": 2}], 0),
        (b"\xff\xfe" + '{"a": 1}\n'.encode("utf-16-le") + b"{", [{"a": 1}], 1),
    ],
)
def test_complete_records_survive(
    tmp_path: Path, data: bytes, records: list[dict[str, object]], incomplete: int
) -> None:
    assert read(tmp_path, data) == (records, incomplete)


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085", "\x0b", "\x1c"])
def test_only_a_newline_ends_a_line(tmp_path: Path, separator: str) -> None:
    text = f"step one{separator}step two #### 5"
    escaped = text.encode() if separator > "\x7f" else text.encode("unicode_escape").replace(b"\\x", b"\\u00")
    records, incomplete = read(tmp_path, b'{"completion": "' + escaped + b'"}\n')
    assert (records, incomplete) == ([{"completion": text}], 0)


def test_what_other_tools_write(tmp_path: Path) -> None:
    (record,), incomplete = read(tmp_path, b'{"kl": NaN, "grad": -Infinity, "text": "\\ud800"}\n')
    assert incomplete == 0
    assert math.isnan(record["kl"])  # type: ignore[arg-type]
    assert record["grad"] == -math.inf
    assert record["text"] == "\ud800"


def test_steps_are_in_order_and_the_later_record_counts(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 2, "a": 1}\n{"step": 1}\n{"step": "x"}\n{"a": 3}\n{"step": 2, "a": 2}\n{"step": 3, "a')
    assert read_steps(path) == ([{"step": 1}, {"step": 2, "a": 2}], 1)


def test_what_cannot_be_reckoned_with_is_null_and_named(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    big = "1" + "0" * 400
    path.write_text(
        f'{{"step": 1, "a": {big}, "b": -{big}, "c": 1e400, "d": 12, "e": Infinity, "f": NaN, "g": 1e308}}\n'
        f'{{"step": {big}}}\n'
        '{"step": 2, "a": "x", "b": [1], "c": {}, "d": null, "e": true, "_nonfinite": ["d", 5]}\n'
        '{"step": 3, "_nonfinite": "d"}\n'
    )
    assert read_steps(path)[0] == [
        {"step": 1, "d": 12, **dict.fromkeys("abcefg"), "_nonfinite": list("abcefg")},
        {"step": 2, "d": None, "e": True, "_nonfinite": ["d"]},
        {"step": 3},
    ]


@pytest.mark.parametrize(
    ("value", "expected"),
    [(3, 3.0), (0.5, 0.5), (10**400, math.inf), (-(10**400), -math.inf), (True, None), ("3", None), (None, None)],
)
def test_numbers(value: object, expected: float | None) -> None:
    assert number(value) == expected


def test_a_pipe_in_place_of_a_file_blocks_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "metrics.jsonl")
    for path in (tmp_path / "metrics.jsonl", tmp_path):
        with pytest.raises(OSError, match="not a regular file"):
            read_steps(path)
    assert regular(tmp_path / "absent") == tmp_path / "absent"
    with pytest.raises(FileNotFoundError):
        read_steps(tmp_path / "absent")
