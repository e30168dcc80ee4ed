"""A run on disk: every artifact's name, reading and writing, atomically.

Readers never need a lock: files are replaced whole, and line files grow. One writer at a time holds ``lock``.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rlforge_cli.errors import UserError, nearest
from rlforge_cli.jsonl import read_steps, record_in, regular
from rlforge_cli.output import strict


class RunDir:
    """A run's folder. Example: ``RunDir.find("run-01", Path("runs")).metrics()``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def config_file(self) -> Path:
        return self.path / "config.json"

    @property
    def run_file(self) -> Path:
        return self.path / "run.json"

    @property
    def metrics_file(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def rollouts_file(self) -> Path:
        return self.path / "rollouts.jsonl"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def final(self) -> Path:
        """The model after the last step, as a Hugging Face folder."""
        return self.path / "final"

    @property
    def best(self) -> Path:
        """The model of the best validation, as a Hugging Face folder."""
        return self.path / "best"

    @property
    def evals(self) -> Path:
        return self.path / "evals"

    @classmethod
    def create(cls, runs_dir: Path) -> RunDir:
        """The next free ``run-NN``; safe when several processes start at once.

        Raises:
            UserError: the folder cannot be written.
        """
        try:
            runs_dir.mkdir(parents=True, exist_ok=True)
            while True:
                taken = [int(m[1]) for p in runs_dir.iterdir() if (m := re.fullmatch(r"run-(\d+)", p.name))]
                path = runs_dir / f"run-{max(taken, default=0) + 1:02d}"
                with contextlib.suppress(FileExistsError):
                    path.mkdir()
                    return cls(path)
        except OSError as error:
            raise UserError(f"{runs_dir}: cannot hold runs: {error.strerror}; choose another with --runs-dir") from None

    @classmethod
    def find(cls, name: str, runs_dir: Path) -> RunDir:
        """A run by id or by path.

        Raises:
            UserError: there is none, with the nearest ids.
        """
        for path in (runs_dir / name, Path(name)):
            if (path / "run.json").is_file():
                return cls(path)
        if (runs_dir / name).is_dir():
            raise UserError(f"{runs_dir / name}: no run.json in it: a damaged run, or another folder")
        known = [run.id for run in cls.all(runs_dir)]
        hint = nearest(name, known) if known else "; there are no runs yet: `rlforge train` makes one"
        raise UserError(f"run {name!r}: not found in {runs_dir}{hint}")

    @classmethod
    def all(cls, runs_dir: Path) -> list[RunDir]:
        """Every run of a folder, in order of creation (ids count up)."""
        if not runs_dir.exists():
            return []
        if not runs_dir.is_dir():
            raise UserError(f"{runs_dir}: not a folder; give the folder of the runs with --runs-dir")
        runs = [cls(path) for path in runs_dir.iterdir() if (path / "run.json").is_file()]
        return sorted(runs, key=lambda run: [int(t) if t.isdigit() else t for t in re.split(r"(\d+)", run.id)])

    def config(self) -> dict[str, Any]:
        return self._read(self.config_file)

    def info(self) -> dict[str, Any]:
        """run.json, with status ``crashed`` derived: it says running, but no process holds the lock."""
        info = self._read(self.run_file)
        if info.get("status") == "running" and not self.is_locked():
            info["status"] = "crashed"
        return info

    def _read(self, path: Path) -> dict[str, Any]:
        try:
            value = json.loads(regular(path).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise UserError(f"{path}: missing; {self.path} is not a complete run") from None
        except (OSError, ValueError, RecursionError) as error:
            raise UserError(f"{path}: cannot be read as JSON: {error}") from None
        if not isinstance(value, dict):
            raise UserError(f"{path}: expected a JSON object")
        return value

    def write_config(self, config: dict[str, Any]) -> None:
        write_json(self.config_file, config)

    def update_info(self, **values: Any) -> None:
        """Set keys of run.json, keeping the others."""
        info = self._read(self.run_file) if self.run_file.exists() else {}
        write_json(self.run_file, info | values)

    def metrics(self) -> list[dict[str, Any]]:
        """One record a step, in order of steps; of a step logged twice the later one counts.

        Raises:
            UserError: the file is there and cannot be read.
        """
        try:
            return read_steps(self.metrics_file)[0]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UserError(f"{self.metrics_file}: cannot be read: {error.strerror}") from None

    def steps(self, records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Of :meth:`metrics` the records of training steps, which are numbered from 1.

        Raises:
            UserError: there is none, or none with a metric in it: nothing can be said about the run.
        """
        steps = [record for record in records if record["step"] > 0]
        if not steps:
            raise UserError(f"{self.id} has logged no step: nothing to judge")
        if not any(value is not None for record in steps for key, value in record.items() if key != "step"):
            raise UserError(f"{self.metrics_file}: its {len(steps)} steps hold no metric: nothing to judge")
        return steps

    def is_locked(self) -> bool:
        """Whether a live process is writing this run."""
        from filelock import FileLock, Timeout

        if not (self.path / "lock").exists():
            return False
        try:
            with FileLock(self.path / "lock", timeout=0):
                return False
        except Timeout:
            return True

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the run's lock.

        Raises:
            UserError: another process holds it; names its pid and host.
        """
        from filelock import FileLock, Timeout

        lock = FileLock(self.path / "lock", timeout=1)  # a reader's probe holds it for microseconds
        try:
            lock.acquire()
        except Timeout:
            owner = self._read(self.run_file) if self.run_file.exists() else {}
            raise UserError(
                f"{self.id} is being written by pid {owner.get('pid', '?')} on {owner.get('host', '?')}; "
                "wait for it, or stop that process"
            ) from None
        try:
            yield
        finally:
            lock.release()


def write_json(path: Path, value: Any) -> None:
    """Replace ``path`` whole: a reader sees the old content or the new, also after a crash or a full disk."""
    write_whole(path, (json.dumps(strict(value), allow_nan=False, indent=2) + "\n").encode())


def write_whole(path: Path, content: bytes) -> None:
    """See :func:`write_json`."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def json_line(record: dict[str, Any]) -> str:
    """One strict JSON line; keys whose value is NaN or infinite become null and are named in ``_nonfinite``."""
    plain = {key: value.item() if hasattr(value, "item") else value for key, value in record.items()}
    lost = [key for key, value in plain.items() if isinstance(value, float) and not math.isfinite(value)]
    if lost:
        plain["_nonfinite"] = lost
    return json.dumps(strict(plain), allow_nan=False) + "\n"  # ASCII: U+2028 or a lone surrogate cannot break a line


class LineWriter:
    """Appends JSON lines, each flushed. First what an earlier crash left is taken out: a torn last line, and records
    of steps after ``after``, which are made again."""

    def __init__(self, path: Path, *, after: float = math.inf) -> None:
        cut_torn_line(path)
        cut_later_steps(path, after=after)
        self.file = open(path, "a", encoding="utf-8", newline="\n")  # noqa: SIM115 - lives as long as the run

    def write(self, record: dict[str, Any]) -> None:
        self.file.write(json_line(record))
        self.file.flush()

    def close(self) -> None:
        self.file.close()


def cut_torn_line(path: Path) -> None:
    """Cut what follows the last newline: a line that was never finished."""
    if not path.exists():
        return
    with open(path, "rb+") as file:
        data = file.read()
        end = data.rfind(b"\n") + 1
        if end < len(data):
            file.truncate(end)


def cut_later_steps(path: Path, *, after: float) -> None:
    """Leave out the records whose ``step`` is over ``after``; lines that are no record stay."""
    if after == math.inf or not path.exists():
        return

    def is_later(line: bytes) -> bool:
        step = (record_in(line) or {}).get("step")
        return isinstance(step, int) and step > after

    lines = path.read_bytes().split(b"\n")
    kept = [line for line in lines if not is_later(line)]
    if len(kept) < len(lines):
        write_whole(path, b"\n".join(kept))
