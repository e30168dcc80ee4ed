"""Exact save and resume.

A checkpoint is written under a temporary name, flushed to disk and then renamed: a folder without its
``state.json`` (written last) is never chosen. The old one is removed only after the new one is there.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rlforge_cli.errors import RunFailed, UserError

STATE = "state.json"


def publish(target: Path, write: Callable[[Path], None]) -> None:
    """Let ``write(folder)`` fill a temporary folder, then put it in the place of ``target``.

    Raises:
        RunFailed: the disk is full (or another I/O error); says how much is needed and where. What was there stays.
    """
    from safetensors import SafetensorError

    temporary = target.parent / f".tmp-{target.name}-{os.getpid()}"
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        write(temporary)
        for path in temporary.rglob("*"):
            fsync(path)
        replace_folder(temporary, target)
        fsync(target.parent)
    except (OSError, RuntimeError, SafetensorError) as error:
        reason = disk_reason(error)
        if reason is None:
            raise
        written = sum(path.stat().st_size for path in temporary.rglob("*") if path.is_file())
        shutil.rmtree(temporary, ignore_errors=True)
        free = shutil.disk_usage(existing(target)).free
        raise RunFailed(
            f"{target}: could not be saved: {reason}; more than {mib(written)} needed, {mib(free)} free; "
            "earlier checkpoints are untouched: free some space, then continue with `rlforge train --resume`"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def disk_reason(error: BaseException) -> str | None:
    """Why writing failed, or None when it was not the disk.

    torch and safetensors report a failed write in types of their own, with the system's error behind or in the text.
    """
    chain: BaseException | None = error
    while chain is not None:
        if isinstance(chain, OSError) and chain.errno is not None:
            full = chain.errno in (errno.ENOSPC, errno.EDQUOT)
            return "no space left on the device" if full else chain.strerror or str(chain)
        chain = chain.__cause__ or chain.__context__
    text = str(error)
    if "No space left" in text:
        return "no space left on the device"
    if "inline_container" in text or "PytorchStreamWriter" in text:  # torch does not say why
        return "no space left on the device, or a limit on the size of files (ulimit -f)"
    return None


def existing(path: Path) -> Path:
    """``path`` or its nearest parent that is there."""
    return next(candidate for candidate in (path, *path.absolute().parents) if candidate.exists())


def mib(count: int) -> str:
    return f"{count / 2**20:.1f} MiB"


def fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_folder(new: Path, target: Path) -> None:
    """Rename ``new`` to ``target``; a folder that is there already is set aside until the new one is in place."""
    old = target.with_name(f".old-{target.name}")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        os.rename(target, old)
    os.rename(new, target)
    shutil.rmtree(old, ignore_errors=True)


def restore_set_aside(target: Path) -> None:
    """Undo a replacement that a crash cut in two."""
    old = target.with_name(f".old-{target.name}")
    if old.exists() and not target.exists():
        os.rename(old, target)


def step_of(path: Path) -> int:
    """The number at the end of a checkpoint's name (numbers, not texts, are compared: 9900 < 10000)."""
    match = re.fullmatch(r"[a-z]+-(\d+)", path.name)
    return int(match[1]) if match else -1


def complete(path: Path) -> bool:
    return path.is_dir() and step_of(path) >= 0 and (path / STATE).is_file()


def all_checkpoints(folder: Path) -> list[Path]:
    """Complete checkpoints, oldest first."""
    return sorted(filter(complete, folder.iterdir()), key=step_of) if folder.is_dir() else []


def incomplete_checkpoints(folder: Path) -> list[Path]:
    """What an interrupted save left behind."""
    if not folder.is_dir():
        return []
    return [path for path in sorted(folder.iterdir()) if path.is_dir() and not complete(path)]


def last_checkpoint(folder: Path) -> Path | None:
    """The newest complete checkpoint."""
    found = all_checkpoints(folder)
    return found[-1] if found else None


def prune(folder: Path, *, keep: int) -> None:
    """Remove all but the newest ``keep`` checkpoints; -1 keeps all.

    Raises:
        UserError: ``keep`` is 0: a run without a checkpoint could not be resumed.
    """
    if keep == 0 or keep < -1:
        raise UserError(f"checkpoint.keep = {keep}: use 1 or more, or -1 to keep all")
    if keep > 0:
        for path in all_checkpoints(folder)[:-keep]:
            shutil.rmtree(path)


def save(
    folder: Path,
    step: int,
    *,
    write_model: Callable[[Path], None],
    tensors: dict[str, Any],
    state: dict[str, Any],
    keep: int,
) -> Path:
    """Publish ``step-000100`` with the model's files, ``training.pt`` (tensors) and ``state.json``; then prune."""
    import torch

    def write(temporary: Path) -> None:
        write_model(temporary)
        torch.save(tensors, temporary / "training.pt")
        with open(temporary / STATE, "w", encoding="utf-8") as file:
            json.dump(state, file, allow_nan=False)

    target = folder / f"step-{step:06d}"
    publish(target, write)
    prune(folder, keep=keep)
    return target


def load(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """``(tensors, state)`` of a complete checkpoint."""
    import torch

    tensors = torch.load(path / "training.pt", map_location="cpu", weights_only=True)
    return tensors, json.loads((path / STATE).read_text(encoding="utf-8"))


@contextlib.contextmanager
def clean_start(folder: Path) -> Iterator[list[Path]]:
    """Yields the incomplete folders for a warning, then removes them."""
    left = incomplete_checkpoints(folder)
    yield left
    for path in left:
        shutil.rmtree(path, ignore_errors=True)
