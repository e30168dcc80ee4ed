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


def memory_lack(error: Exception) -> str | None:
    """What to say of an error that is a lack of memory, of the device's or the machine's; None for any other."""
    out = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"  # torch's
    if not out and "DefaultCPUAllocator: " not in str(error):
        return None
    said = first_line(error).partition("DefaultCPUAllocator: ")[2] or first_line(error) or "no more to be had"
    return (
        f"out of memory: {said}; lower train.micro_batch_size, rollout.max_tokens or eval.batch_size (`rlforge plan` "
        "says what fits); a run is continued with --resume"
    )


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
