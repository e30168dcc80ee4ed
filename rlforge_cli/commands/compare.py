"""``rlforge compare``: does a change raise the score, or is it noise?"""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from rlforge_cli.commands.common import Json, RunsDir, runs_folder


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN",
            help="Run ids, run folders, or JSONL files with id and correct (lm-eval sample logs too). "
            "The first is the control; A1,A2,A3 spells out the seeds of one arm, A1, (with its comma) an arm of one.",
        ),
    ],
    scope: Annotated[
        Literal["recipe", "checkpoint"],
        typer.Option(help="recipe: would training again this way differ? checkpoint: do these checkpoints differ?"),
    ] = "recipe",
    margin: Annotated[float, typer.Option(help="Smallest difference that matters, in points.")] = 4.0,
    alpha: Annotated[float, typer.Option(help="Two-sided significance level.")] = 0.05,
    grader_error: Annotated[
        float | None, typer.Option(help="Points by which the grader may favour one run (default: from audits, else 0).")
    ] = None,
    seed_sd: Annotated[
        float | None, typer.Option(help="SD of the score over training seeds, in points (default: measured and prior).")
    ] = None,
    rule: Annotated[
        Literal["stats", "simple"], typer.Option(help="simple: any difference of at least the margin is a finding.")
    ] = "stats",
    evaluation: Annotated[str, typer.Option("--eval", help="Name of the evaluation inside the runs.")] = "test",
    filter: Annotated[
        str | None, typer.Option(help="Filter of an lm-eval sample log (default: flexible-extract).")
    ] = None,
    runs_dir: RunsDir = None,
    as_json: Json = False,
) -> None:
    """Compare a control with other runs: paired, with seed noise, and a verdict in words."""
    from rlforge_cli import output
    from rlforge_cli.comparison import Options
    from rlforge_cli.comparison import compare as compare_runs

    options = Options(
        scope=scope,
        margin=margin,
        alpha=alpha,
        grader_error=grader_error,
        seed_sd=seed_sd,
        rule=rule,
        evaluation=evaluation,
        filter=filter,
        runs_dir=runs_folder(runs_dir),
    )
    result = compare_runs(runs, options=options)
    for warning in result.warnings:
        output.note(f"warning: {warning}")
    if as_json:
        output.print_json(result)
        return
    from rlforge_cli.comparison.view import show

    show(result, output.stdout())
