"""Rewards that users write: ``module:function`` or ``path/to/file.py:function``, found, called and checked.

A function takes ``(completions, problems)``, the texts and their :class:`~rlforge_cli.tasks.base.Problem` in the same
order, and returns one number a completion, or None for one that it does not score.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from numbers import Real
from pathlib import Path
from types import ModuleType
from typing import Any

from rlforge_cli.errors import UserError, nearest
from rlforge_cli.tasks.base import Problem

LARGEST = 1e30
"""A reward's size: the sums and squares of larger ones overflow."""
WAY_OUT = "write reward.functions as module:function or path/to/file.py:function"


def function_name(spec: str) -> str:
    """The name under which the component is logged: ``"my_rewards:brevity"`` -> ``"brevity"``."""
    return spec.rpartition(":")[2]


def load_function(spec: str) -> Callable[..., Any]:
    """The function that ``spec`` names; a module is looked for as Python does, then in the working directory.

    Raises:
        UserError: no such module, file or function (with the nearest), or its own code failed on import.
    """
    where, colon, name = spec.rpartition(":")
    if not (colon and where and name):
        raise UserError(f"reward function {spec!r} names no module and function; {WAY_OUT}")
    module = _file_module(str(Path(where).resolve())) if where.endswith(".py") else _module(spec, where)
    function = getattr(module, name, None)
    if function is None:
        callables = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise UserError(f"reward function {spec!r}: {where} has no {name!r}{nearest(name, callables)}; {WAY_OUT}")
    if not callable(function):
        raise UserError(f"reward function {spec!r}: {name!r} is no function but a {type(function).__name__}; {WAY_OUT}")
    return function


def _module(spec: str, name: str) -> ModuleType:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)  # at the end: a user's file never hides an installed module
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            files = [file.stem for file in Path(here).glob("*.py")]
            hint = nearest(name, files) if files else ""
            raise UserError(
                f"reward function {spec!r}: no module {name!r} here or installed{hint}; {WAY_OUT}"
            ) from None
        raise UserError(f"reward function {spec!r}: {_blame(error)}") from error
    except (Exception, SystemExit) as error:
        raise UserError(f"reward function {spec!r}: {_blame(error)}") from error


@functools.cache
def _file_module(path: str) -> ModuleType:
    file = Path(path)
    if not file.is_file():
        near = nearest(file.name, [other.name for other in file.parent.glob("*.py")])
        raise UserError(f"reward function: no file {file}{near}; {WAY_OUT}")
    name = f"rlforge_user_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look a module up by its name
    try:
        with contextlib.redirect_stdout(sys.stderr):
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise UserError(f"reward function: {_blame(error)}") from error
    return module


def _blame(error: BaseException) -> str:
    """The user's line that failed, in one line: ``rewards.py:3: ZeroDivisionError: division by zero``."""
    frames = [
        f for f in traceback.extract_tb(error.__traceback__) if f.filename != __file__ and "importlib" not in f.filename
    ]
    place = f"{frames[-1].filename}:{frames[-1].lineno}: " if frames else ""
    message = str(error).partition("\n")[0]
    return f"{place}{type(error).__name__}: {message}"


def call_function(spec: str, completions: Sequence[str], problems: Sequence[Problem]) -> list[float | None]:
    """What the function gives each completion.

    Raises:
        UserError: it raised, or returned anything but one finite number or None a completion.
    """
    function = load_function(spec)
    try:
        with contextlib.redirect_stdout(sys.stderr):  # stdout is for results
            returned = function(list(completions), list(problems))
    except (Exception, SystemExit) as error:
        raise UserError(f"reward function {spec!r} failed at {_blame(error)}") from error
    if hasattr(returned, "tolist"):  # an array or a tensor
        returned = returned.tolist()
    if not isinstance(returned, (list, tuple)):
        raise UserError(
            f"reward function {spec!r} returned a {type(returned).__name__}; return a list with one number a "
            "completion, and None in place of those that it does not score"
        )
    if len(returned) != len(completions):
        raise UserError(
            f"reward function {spec!r} returned {len(returned)} values for {len(completions)} completions; "
            "return one for each, None for one that it does not score"
        )
    return [_checked(spec, index, value) for index, value in enumerate(returned)]


def _checked(spec: str, index: int, value: object) -> float | None:
    if value is None:
        return None
    value = value.item() if hasattr(value, "item") else value  # a numpy or torch scalar
    if not isinstance(value, Real) or not abs(value) <= LARGEST:  # type: ignore[operator]
        raise UserError(
            f"reward function {spec!r} returned {value!r} for completion {index}; return a finite number (at most "
            f"{LARGEST:g} in size), or None for one that it does not score"
        )
    return float(value)
