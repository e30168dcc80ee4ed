"""The section "My explanation": the user's own words, found in the last report and put back byte for byte.

It stands between two comment lines. The text runs from the first opening line to the last closing line, so that a
user's text may itself hold such lines; no other part of a report can (see :func:`rlforge_cli.report.markdown.fenced`).
"""

from __future__ import annotations

import re
from pathlib import Path

BEGIN = "<!-- rlforge:explanation:begin -->"
END = "<!-- rlforge:explanation:end -->"
_BEGIN = re.compile(rb"^" + re.escape(BEGIN).encode() + rb"[ \t]*\r?\n", re.MULTILINE)
_END = re.compile(rb"^" + re.escape(END).encode() + rb"[ \t]*\r?$", re.MULTILINE)


def find(document: bytes) -> bytes | None:
    """What stands between the markers, or None when they are not both there, in this order."""
    begin = _BEGIN.search(document)
    ends = list(_END.finditer(document))
    if begin is None or not ends or ends[-1].start() < begin.end():
        return None
    return document[begin.end() : ends[-1].start()]


def put(document: str, text: bytes) -> bytes:
    """``document``, whose explanation is empty, with ``text`` as its explanation."""
    before, _, after = document.encode("utf-8").partition((BEGIN + "\n").encode())
    return before + (BEGIN + "\n").encode() + text + after


def read_back(path: Path) -> tuple[bytes | None, Path | None]:
    """The explanation of an earlier report, and the backup that was made because none could be told from the rest.

    A file without the markers (damaged, or never a report) is copied beside itself before it is replaced.

    Raises:
        OSError: the file cannot be read, or the backup not be written.
    """
    try:
        document = path.read_bytes()
    except FileNotFoundError:
        return None, None
    text = find(document)
    if text is not None or not document.strip():
        return text, None
    return None, keep(path, document)


def keep(path: Path, document: bytes) -> Path:
    """A copy of ``document`` under the first free of ``<file>.bak``, ``<file>.bak2`` ...; an equal one serves."""
    number = 1
    while True:
        backup = path.with_name(f"{path.name}.bak{'' if number == 1 else number}")
        try:
            with open(backup, "xb") as file:
                file.write(document)
            return backup
        except FileExistsError:
            if backup.is_file() and backup.read_bytes() == document:
                return backup
            number += 1
