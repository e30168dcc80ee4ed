"""rlforge audit"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlforge_cli.commands.common import Json, RunsDir, runs_folder


def audit(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A scored run, by id or path.")],
    n: Annotated[int, typer.Option("--n", min=1, help="Items to check.")] = 50,
    seed: Annotated[int, typer.Option(min=0, help="Of the draw.")] = 0,
    answers: Annotated[
        Path | None, typer.Option(help='Read answers from a file of {"id", "right": true|false} lines, ask nothing.')
    ] = None,
    export: Annotated[
        Path | None, typer.Option(help="Write the drawn items to this file, to fill in for --answers, and stop.")
    ] = None,
    evaluation: Annotated[str, typer.Option("--eval", help="Name of the evaluation inside the run.")] = "test",
    second: Annotated[
        bool, typer.Option("--second/--no-second", help="Ask the second grader about every item.")
    ] = True,
    runs_dir: RunsDir = None,
    as_json: Json = False,
) -> None:
    """Check the grader by hand on a sample: its sensitivity, specificity and bias, which compare then allows for."""
    import shlex

    from rlforge_cli import audit, audit_view, output
    from rlforge_cli.audit_sample import prompts_of
    from rlforge_cli.run_dir import RunDir

    found = RunDir.find(run, runs_folder(runs_dir))
    work = audit.begin(found, n=n, seed=seed, evaluation=evaluation)
    if export is not None:
        audit.export(work, export, prompts_of(found, evaluation))
        if as_json:
            output.print_json({"run": found.id, "exported": str(export)})
        else:
            output.note(f"wrote {export}: set each right to true or false, then --answers {export}")
        return
    if answers is not None:
        left_out = audit.take_answers(work, answers)
        if left_out:
            shown = ", ".join(left_out[:5])
            output.note(f"note: {len(left_out)} answers are about items that were not drawn and do not count ({shown})")
    elif work.open:
        audit.ask_all(work, audit_view.asker(prompts_of(found, evaluation)))
    if second and not work.open:
        audit_view.second_opinion(work)
    audit.save(work)
    if as_json:
        output.print_json(audit.result(work))
        return
    words = ["rlforge", "audit", run, "--n", str(n), "--seed", str(seed)]
    words += ["--eval", evaluation] if evaluation != "test" else []
    words += ["--runs-dir", str(runs_dir)] if runs_dir else []
    audit_view.result(audit.result(work), command=shlex.join(words))
