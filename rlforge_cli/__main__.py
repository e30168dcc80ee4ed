"""The `rlforge` command: registers the commands, and turns what they raise into one line and an exit code."""

from __future__ import annotations

import errno
import importlib
import os
import sys
import time
from typing import Any

import typer
from typer.core import TyperGroup

from rlforge_cli import __version__
from rlforge_cli.distributed import place
from rlforge_cli.errors import RunFailed, Terminated, UserError, memory_lack
from rlforge_cli.output import one_line

SECONDS_AFTER_THE_FIRST = 2.0
"""A process that fails ends all others, so the one that says why goes first."""


class InOrder(TyperGroup):
    def list_commands(self, ctx: object) -> list[str]:
        return list(self.commands)


app = typer.Typer(
    cls=InOrder, no_args_is_help=True, add_completion=True, pretty_exceptions_enable=False, rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="The whole life of a GRPO experiment: what raised the score, and whether it really did.",
)  # fmt: skip


def show_version(value: bool) -> None:
    if value:
        print(f"rlforge {__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", callback=show_version, is_eager=True, help="Print the version."),
) -> None:
    if place()[1] > 1 and context.invoked_subcommand not in SHARED:
        raise UserError(
            f"`rlforge {context.invoked_subcommand}` is the work of one process: start it without torchrun (only "
            f"{' and '.join(SHARED)} share theirs)"
        )


SHARED = ("train", "eval")
"""What several processes do together."""
COMMANDS = (
    "plan", "smoke", "train", "eval", "doctor", "compare", "seeds", "rounds", "report", "audit", "grade",
    "ls", "show", "diff", "rm", "presets", "explain",
)  # fmt: skip


def register() -> None:
    """Each command lives in the module of its name, in a function of its name (``eval_`` where Python has it)."""
    for name in COMMANDS:
        module = importlib.import_module(
            f"rlforge_cli.commands.{name}_" if name == "eval" else f"rlforge_cli.commands.{name}"
        )
        app.command(name)(getattr(module, name if hasattr(module, name) else f"{name}_"))


def main() -> None:
    """Run the command line; never shows a traceback for what a person can mend."""
    # Threads that spin for long while they wait make a busy machine ten times slower, and those that never spin a quiet
    # one twice as slow; must be set before torch loads.
    os.environ.setdefault("GOMP_SPINCOUNT", "5000")
    # a stream that the caller closed is None; what nobody reads may go nowhere
    sys.stdout, sys.stderr = (stream or open(os.devnull, "w") for stream in (sys.stdout, sys.stderr))  # noqa: SIM115
    register()
    try:
        code = app(standalone_mode=False, prog_name="rlforge")
        raise SystemExit(code if isinstance(code, int) else 0)
    except typer.Abort:
        raise SystemExit(130) from None
    except (UserError, RunFailed) as error:
        if place()[0] == 0:
            print(f"rlforge: {one_line(error)}", file=sys.stderr)
        else:
            time.sleep(SECONDS_AFTER_THE_FIRST)
        raise SystemExit(2 if isinstance(error, UserError) else 1) from None
    except Terminated:
        raise SystemExit(143) from None
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        print(f"rlforge: {error.filename or 'output'}: no space left on the device", file=sys.stderr)
        raise SystemExit(1) from None
    except Exception as error:
        if lack := memory_lack(error):
            print(f"rlforge: {one_line(lack)}", file=sys.stderr)
            raise SystemExit(1) from None
        if not hasattr(error, "format_message"):  # typer's own, of a class that it keeps to itself
            raise
        refuse(error)


def refuse(error: Any) -> None:
    """What typer has against the command line, as one line; help where nothing was asked."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        raise SystemExit(2)
    path = error.ctx.command_path if getattr(error, "ctx", None) else "rlforge"
    print(f"{path}: {one_line(error.format_message()).rstrip('.')}; see `{path} --help`", file=sys.stderr)
    raise SystemExit(2)


if __name__ == "__main__":
    main()
