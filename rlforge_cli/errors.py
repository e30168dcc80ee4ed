"""The errors a command turns into one line and an exit code.

Anything else that escapes is a defect of rlforge and keeps its traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """Bad input: the message says what, where, the nearest valid thing and the way out. Exit code 2."""


class RunFailed(RuntimeError):
    """A run or a check failed for a reason that the message names. Exit code 1."""


class NotNumbers(RunFailed):
    """The policy's probabilities are NaN: its weights are spoiled."""


class Collapsed(RunFailed):
    """Training has spoiled the policy; what it was before is kept (train.stop_on_collapse)."""


class Terminated(BaseException):
    """SIGTERM: as KeyboardInterrupt, with exit code 143."""


def first_line(error: Exception) -> str:
    """Of what another library says."""
    return str(error).strip().partition("\n")[0]


def nearest(word: str, valid: Iterable[str]) -> str:
    """A suffix for an error: the closest valid names (``did you mean 'G'?``), or a short list when none is close.

    Example: ``nearest("tempature", ["temperature", "lr"])`` -> ``" (did you mean 'temperature'?)"``.
    """
    options = list(valid)
    by_lower = {name.lower(): name for name in reversed(options)}
    close = difflib.get_close_matches(word.lower(), by_lower, n=2, cutoff=0.6)
    if close:
        return " (did you mean " + " or ".join(repr(by_lower[name]) for name in close) + "?)"
    return f" (valid: {', '.join(options)})" if 0 < len(options) <= 12 else ""
