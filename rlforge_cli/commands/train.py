"""rlforge train"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rlforge_cli.commands.common import Json, Preset, RunsDir, Sets, runs_folder

if TYPE_CHECKING:
    from rlforge_cli.config import Config
    from rlforge_cli.run_dir import RunDir


def train(
    preset: Preset = None,
    base: Annotated[
        str | None, typer.Option("--from", help="Start from the configuration of a run (its control).")
    ] = None,
    sets: Sets = None,
    control: Annotated[
        str | None, typer.Option(help="The run to compare with; default: the unchanged preset's.")
    ] = None,
    equal_samples: Annotated[
        bool, typer.Option("--equal-samples", help="As many steps as the control's generated completions pay for.")
    ] = False,
    equal_steps: Annotated[bool, typer.Option("--equal-steps", help="As many steps as the control.")] = False,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of data order and sampling.")] = None,
    note: Annotated[str | None, typer.Option(help="Why this run exists.")] = None,
    resume: Annotated[str | None, typer.Option(help="Continue a run exactly from its last checkpoint.")] = None,
    stop_on_collapse: Annotated[
        bool, typer.Option("--stop-on-collapse", help="End a run that is lost (NaN, collapse, KL runaway, no signal).")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and stop.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    runs_dir: RunsDir = None,
    as_json: Json = False,
) -> None:
    """Train a policy with GRPO; writes a run directory and prints its summary."""
    from rlforge_cli import lineage, output, show
    from rlforge_cli.distributed import joined
    from rlforge_cli.errors import UserError
    from rlforge_cli.experiment import check_data, preflight
    from rlforge_cli.lifecycle import execute

    folder = runs_folder(runs_dir)

    def chosen() -> tuple[RunDir, Config] | None:
        """The run to execute; None when the plan was all that was asked for."""
        if resume is not None:
            given = (preset, base, control, seed, note, equal_samples or None, equal_steps or None, dry_run or None,
                     stop_on_collapse or None)  # fmt: skip
            if any(value is not None for value in given):
                raise UserError(
                    "--resume continues a run as it is: it takes only --set steps=N, --quiet and --json beside it"
                )
            run, config = lineage.resumed(resume, folder, sets=sets or [])
        else:
            if equal_samples and equal_steps:
                raise UserError("--equal-samples and --equal-steps exclude each other")
            words = [*(sets or []), *([f"run.note={note}"] if note is not None else [])]
            words += ["train.stop_on_collapse=true"] if stop_on_collapse else []
            budget = "samples" if equal_samples else "steps" if equal_steps else None
            plan = lineage.prepare(
                runs_dir=folder, preset=preset, base=base, control=control, sets=words, seed=seed, budget=budget
            )
            for line in plan.notes:
                output.note(f"note: {line}")
            if dry_run:
                check_data(plan.config, load=False)
                show.plan(plan, as_json=as_json)
                return None
            preflight(plan.config)
            run, config = lineage.start(plan, folder), plan.config
        return run, config

    with joined() as ranks:
        found = ranks.in_first(chosen)
        if found is None:
            return
        run, config = found
        result = execute(run, config, resume=resume is not None, quiet=quiet, ranks=ranks)
    if not ranks.first:
        return
    if as_json:
        output.print_json(result)
    else:
        show.trained(run, result)
