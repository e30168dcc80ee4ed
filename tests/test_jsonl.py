from __future__ import annotations

import math
from pathlib import Path

import pytest

from rlforge_cli.jsonl import read_records


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
