r"""Reading JSON lines that a crash, another tool or a model's text may have damaged.

Lines end at ``\n`` only: U+2028, U+2029 and U+0085 are legal inside a JSON string; ``str.splitlines`` would cut there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

_DECODER = msgspec.json.Decoder()


def _decode(line: bytes) -> Any:
    try:
        return _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return json.loads(line)  # bare NaN and lone surrogates are not JSON, but other tools write them


def read_records(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The objects of a JSON-lines file in order, and how many lines were no complete object (torn or spoiled).

    Example: ``b'{"step": 1}\\n{"step": 2, "rew'`` -> ``([{"step": 1}], 1)``.

    Raises:
        OSError: the file cannot be read.
    """
    records: list[dict[str, Any]] = []
    incomplete = 0
    for line in path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        if not line.strip():
            continue
        try:
            value = _decode(line)
        except (ValueError, RecursionError):
            incomplete += 1
            continue
        if isinstance(value, dict):
            records.append(value)
        else:
            incomplete += 1
    return records, incomplete
