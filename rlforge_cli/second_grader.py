"""A second opinion on every graded item: math-verify (extra ``audit``), which shares no code with rlforge's grader.

It runs in a process of its own that is killed when one item takes too long: an expression can make a computer algebra
system compute for ever, and some of its loops hear no signal. What it cannot read it has no opinion about.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TextIO

import msgspec

NAME = "math-verify"
START_SECONDS = 120.0
"""The worker imports a computer algebra system first, on a machine that may be busy."""
MEMORY = 4 * 2**30
"""Bytes the worker may take."""
EXAMPLES = 5
SERVE = "from rlforge_cli.second_grader import serve; serve()"


class Opinion(msgspec.Struct, frozen=True):
    """``correct`` is None without an opinion; ``slow`` when it was killed for taking too long."""

    correct: bool | None
    slow: bool = False


class SecondGrader:
    """The worker, restarted when it had to be killed. A context manager."""

    def __init__(self, *, seconds: float = 5.0, command: Sequence[str] = (sys.executable, "-c", SERVE)) -> None:
        self.seconds = seconds
        self.command = list(command)
        self.process: subprocess.Popen[str] | None = None
        self.answers: queue.Queue[str | None] = queue.Queue()

    def __enter__(self) -> SecondGrader:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def judge(self, completion: str, answer: str) -> Opinion:
        """Whether the completion states the answer."""
        process = self.process if self.process is not None and self.process.poll() is None else self.start()
        if process is None:
            return Opinion(None)
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps({"completion": completion, "answer": answer}) + "\n")
            process.stdin.flush()
            line = self.answers.get(timeout=self.seconds)
        except queue.Empty:
            self.stop()
            return Opinion(None, slow=True)
        except BrokenPipeError:
            line = None
        if line is None:  # it died, of memory for one
            self.stop()
            return Opinion(None)
        return Opinion(json.loads(line)["correct"])

    def start(self) -> subprocess.Popen[str] | None:
        """A worker that said it is ready; None when it cannot start."""
        self.stop()
        process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8"
        )
        assert process.stdout is not None
        self.process = process
        self.answers = queue.Queue()
        threading.Thread(target=forward, args=(process.stdout, self.answers), daemon=True).start()
        with contextlib.suppress(queue.Empty):
            if self.answers.get(timeout=START_SECONDS) is not None:
                return process
        self.stop()
        return None

    def stop(self) -> None:
        if self.process is None:
            return
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        self.process = None


def forward(lines: TextIO, answers: queue.Queue[str | None]) -> None:
    """Every line into the queue, then None: a queue can be waited for with a time limit on every system."""
    with contextlib.suppress(ValueError):  # closed while reading: the worker was killed
        for line in lines:
            answers.put(line)
    answers.put(None)


def version() -> str | None:
    """Of the installed math-verify, None without it."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed(NAME)
    except PackageNotFoundError:
        return None


def disagreements(
    items: Iterable[tuple[str, str, str, bool]],
    *,
    grader: SecondGrader,
    progress: Callable[[int], None] = lambda done: None,
) -> dict[str, Any]:
    """How often the second grader says otherwise; ``items`` are (key, completion, gold answer, graded right).

    ``only_grader`` counts what only rlforge's grader calls right, ``only_second`` what only the second one does;
    ``keys`` names all of them and ``examples`` a few; ``no_opinion`` what the second could not read, ``slow`` of these
    what it was killed at.
    """
    counts = {"only_grader": 0, "only_second": 0, "no_opinion": 0, "slow": 0}
    keys: dict[str, list[str]] = {"only_grader": [], "only_second": []}
    n = 0
    for key, completion, answer, correct in items:
        opinion = grader.judge(completion, answer)
        n += 1
        progress(n)
        counts["slow"] += opinion.slow
        if opinion.correct is None:
            counts["no_opinion"] += 1
        elif opinion.correct != correct:
            kind = "only_grader" if correct else "only_second"
            counts[kind] += 1
            keys[kind].append(key)
    return {
        "name": NAME,
        "version": version(),
        "n": n,
        "disagree": counts["only_grader"] + counts["only_second"],
        **counts,
        "examples": {kind: found[:EXAMPLES] for kind, found in keys.items()},
        "keys": keys,
    }


def serve() -> None:
    """The worker: a JSON line in, a JSON line out; the first line out says that it is ready."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # the parser's own prints must not stand between the answers
    limit_memory()
    from math_verify import parse, verify

    print("{}", file=out, flush=True)
    for line in sys.stdin.buffer:
        item = json.loads(line)
        print(json.dumps({"correct": opinion(item["completion"], item["answer"], parse, verify)}), file=out, flush=True)


def opinion(completion: str, answer: str, parse: Callable[..., list[Any]], verify: Callable[..., bool]) -> bool | None:
    """None where the gold answer is nothing that math-verify reads, or it runs out of memory."""
    try:
        gold = parse(answer, parsing_timeout=None)
        return bool(verify(gold, parse(completion, parsing_timeout=None), timeout_seconds=None)) if gold else None
    except (MemoryError, RecursionError):
        return None


def limit_memory() -> None:
    try:
        import resource
    except ImportError:  # not a POSIX system
        return
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.RLIM_INFINITY))
