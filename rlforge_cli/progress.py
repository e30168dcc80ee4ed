"""Live progress on stderr: one refreshed panel on a terminal, plain lines (at most one every two seconds) in a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

from rlforge_cli.output import make_console

SHOWN = (
    ("reward", "reward", ".3f"),
    ("accuracy", "acc", ".3f"),
    ("completion_length", "len", ".1f"),
    ("truncated_fraction", "trunc", ".2f"),
    ("adv_std", "adv_std", ".2f"),
    ("zero_std_fraction", "zero_std", ".2f"),
    ("clip_fraction", "clip", ".3f"),
    ("kl_ref", "kl_ref", ".4f"),
    ("entropy", "entropy", ".3f"),
    ("grad_norm", "grad", ".3f"),
    ("tokens_per_s", "tok/s", ".0f"),
)
SECONDS_BETWEEN_LINES = 2.0


def fields(record: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What a person watches, as (label, text): the gauges, and each reward component."""
    for name, label, form in SHOWN:
        if record.get(name) is not None:
            yield label, format(record[name], form)
        if name == "reward":
            for key, value in record.items():
                if key.startswith("reward/") and value is not None:
                    yield key.removeprefix("reward/"), format(value, ".3f")


def duration(seconds: float) -> str:
    """``75`` -> ``1:15``; ``3700`` -> ``1:01:40``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class Progress:
    """Shows steps as they come; a context manager, so that a terminal is left as it was."""

    def __init__(self, title: str, *, total: int, done: int = 0, quiet: bool = False) -> None:
        self.title = title
        self.total = total
        self.first = done
        self.begin = time.monotonic()
        self.first_step_began: float | None = None
        self.console = make_console(sys.stderr)
        self.quiet = quiet
        self.live: Any = None
        self.best: float | None = None
        self.last_line = 0.0

    def __enter__(self) -> Progress:
        if self.console.is_terminal and not self.quiet:
            from rich.live import Live

            self.live = Live(console=self.console, refresh_per_second=4, transient=False)
            self.live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self.live is not None:
            self.live.stop()

    def step(self, record: dict[str, Any]) -> None:
        """A finished step."""
        step = record["step"]
        now = time.monotonic()
        elapsed = now - self.begin
        done = step - self.first
        if self.first_step_began is None:  # what came before (a model, probes, a validation) does not come again
            self.first_step_began = now - record.get("seconds_total", elapsed)
        eta = (now - self.first_step_began) / done * (self.total - step) if done > 0 else 0.0
        if record.get("val_accuracy") is not None:
            self.best = max(self.best or 0.0, record["val_accuracy"])
        head = f"{self.title} step {step}/{self.total}  elapsed {duration(elapsed)}  ETA {duration(eta)}"
        if self.live is not None:
            self.live.update(self._panel(head, record))
        elif not self.quiet and (
            elapsed - self.last_line >= SECONDS_BETWEEN_LINES
            or done == 1
            or step == self.total
            or record.get("skipped")
        ):
            self.last_line = elapsed
            text = "  ".join(f"{label} {value}" for label, value in fields(record))
            mark = "  SKIPPED" if record.get("skipped") else ""
            self.console.print(f"{head}  {text}{mark}", soft_wrap=True)

    def note(self, message: str) -> None:
        """A line that stays: a validation, a checkpoint, a warning."""
        if not self.quiet:
            self.console.print(message, soft_wrap=True)

    def _panel(self, head: str, record: dict[str, Any]) -> Any:
        from rich.columns import Columns
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        cells = [Text.assemble((f"{label} ", "dim"), (value, "bold")) for label, value in fields(record)]
        if self.best is not None:
            cells.append(Text.assemble(("best validation ", "dim"), (f"{self.best:.3f}", "bold green")))
        line = Table.grid()  # a bar alone would not end its line
        line.add_row(ProgressBar(total=self.total, completed=record["step"], width=min(60, self.console.width)))
        return Group(Text(head), line, Columns(cells))
