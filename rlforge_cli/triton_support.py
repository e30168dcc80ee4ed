"""Whether Triton can make kernels here: what launches them it compiles with the system's C compiler."""

from __future__ import annotations

import os
import shutil
import sysconfig
from functools import cache
from importlib.util import find_spec


def has_triton() -> bool:
    """Whether it is installed and has what it needs."""
    return find_spec("triton") is not None and triton_lacks() is None


@cache
def triton_lacks() -> str | None:
    """What an installed Triton would look for in vain: a compiler (CC, gcc or clang), or Python's headers."""
    if find_spec("triton") is None:
        return None
    if not (os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")):
        return "a C compiler (CC, gcc or clang)"
    scheme = sysconfig.get_default_scheme()
    headers = sysconfig.get_paths(scheme="posix_prefix" if scheme == "posix_local" else scheme)["include"]
    return None if os.path.isfile(os.path.join(headers, "Python.h")) else f"Python's headers ({headers}/Python.h)"
