r"""Reading JSON lines that a crash, another tool or a model's text may have damaged.

Lines end at ``\n`` only: U+2028, U+2029 and U+0085 are legal inside a JSON string; ``str.splitlines`` would cut there.
"""

from __future__ import annotations

import codecs
import errno
import json
import math
import sys
from pathlib import Path
from typing import Any

import msgspec

LARGEST = 1e100
"""Of a metric: the sums and squares of larger ones are beyond any float."""
_DECODER = msgspec.json.Decoder()


def record_in(line: bytes) -> dict[str, Any] | None:
    """The object that a line holds; None for a line that is torn, spoiled or something else."""
    try:
        try:
            value = _DECODER.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            value = json.loads(line)  # bare NaN and lone surrogates are not JSON, but other tools write them
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def read_records(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The objects of a JSON-lines file in order, and how many lines were no complete object (torn or spoiled).

    Example: ``b'{"step": 1}\\n{"step": 2, "rew'`` -> ``([{"step": 1}], 1)``.

    Raises:
        OSError: the file cannot be read.
    """
    records: list[dict[str, Any]] = []
    incomplete = 0
    for line in _as_utf8(path.read_bytes()).split(b"\n"):
        if not line.strip():
            continue
        record = record_in(line)
        if record is None:
            incomplete += 1
        else:
            records.append(record)
    return records, incomplete


def _as_utf8(data: bytes) -> bytes:
    """Without a byte order mark; UTF-16 that has one (what a Windows shell writes with ``>``) is taken over."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace").encode("utf-8", "replace")
    return data.removeprefix(codecs.BOM_UTF8)


def regular(path: Path) -> Path:
    """``path``, unless a pipe, a device or a folder stands where a run's file should: a pipe would block its reader.

    Raises:
        OSError: it is there and no regular file.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return path


def read_steps(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The records of a metrics file in order of steps, and how many lines were no complete object.

    Of a step logged twice the later record counts. Values are as a run writes them: numbers, true, false or null; what
    is not finite, or too large to reckon with, is null and named in ``_nonfinite``; anything else is left out.

    Raises:
        OSError: the file cannot be read.
    """
    records, incomplete = read_records(regular(path))
    records = [as_logged(record) for record in records]
    by_step = {record["step"]: record for record in records if isinstance(record.get("step"), int)}
    return [by_step[step] for step in sorted(by_step)], incomplete


def as_logged(record: dict[str, Any]) -> dict[str, Any]:
    """Example: ``{"loss": inf, "step": 1, "x": "a"}`` -> ``{"loss": None, "step": 1, "_nonfinite": ["loss"]}``."""
    named = record.get("_nonfinite")
    lost = [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
    kept: dict[str, Any] = {}
    for key, value in record.items():
        if value is None or isinstance(value, (bool, int, float)):
            beyond = isinstance(value, (int, float)) and not abs(within_floats(value)) <= LARGEST
            kept[key] = None if beyond else value
            lost += [key] if beyond and key not in lost else []
    return kept | ({"_nonfinite": lost} if lost else {})


def within_floats(value: Any) -> Any:
    """``value``; a whole number that no float can hold becomes an infinity of its sign. ``10**400`` -> ``inf``."""
    if isinstance(value, int) and abs(value) > sys.float_info.max:
        return math.inf if value > 0 else -math.inf
    return value


def number(value: Any) -> float | None:
    """A JSON value as a float; None for what is no number (true and false are none)."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(within_floats(value))
