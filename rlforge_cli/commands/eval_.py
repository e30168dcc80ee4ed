"""rlforge eval"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlforge_cli.commands.common import Json, Preset, RunsDir, Sets, runs_folder


def eval_(
    subject: Annotated[str, typer.Argument(metavar="RUN|MODEL", help="A run, a model folder, or a hub name.")],
    checkpoint: Annotated[str | None, typer.Option(help="best, final, base or step-000100 of a run.")] = None,
    task: Annotated[str | None, typer.Option(help="Another task than the run's own.")] = None,
    split: Annotated[str, typer.Option(help="test, validation or train.")] = "test",
    greedy: Annotated[
        bool, typer.Option("--greedy", help="Take the likeliest token (the default with one sample).")
    ] = False,
    samples: Annotated[int, typer.Option(min=1, help="Completions a problem.")] = 1,
    temperature: Annotated[
        float | None, typer.Option(min=0.0, help="Of sampling; default 1.0 with several samples.")
    ] = None,
    k: Annotated[list[int] | None, typer.Option("--k", min=1, help="k of pass@k; may be repeated.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N problems.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Longest completion, in tokens.")] = None,
    repeat: Annotated[int, typer.Option(min=1, help="Score N times: how much the checkpoint differs from itself.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Of sampling.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Write results here (.jsonl) instead of into the run.")] = None,
    preset: Preset = None,
    sets: Sets = None,
    runs_dir: RunsDir = None,
    as_json: Json = False,
) -> None:
    """Score a run or a model on held-out problems: pass@1 with its interval, pass@k, strict and flexible extraction."""
    from rlforge_cli import output, scoring, show
    from rlforge_cli.distributed import joined
    from rlforge_cli.errors import UserError

    if greedy and (temperature or samples > 1):
        raise UserError(
            "--greedy draws one completion a problem at temperature 0: leave out --samples and --temperature"
        )
    if temperature is None:
        temperature = 1.0 if samples > 1 else 0.0
    words = [*(sets or []), *([f"data.task={task}"] if task else [])]
    folder = runs_folder(runs_dir)
    with joined() as ranks:
        chosen = ranks.in_first(
            lambda: scoring.find_subject(subject, folder, checkpoint=checkpoint, preset=preset, sets=words)
        )
        with show.bar(f"eval {chosen.label}", shown=ranks.first) as progress:
            summary, results = scoring.score(
                chosen, split=split, samples=samples, temperature=temperature, max_tokens=max_tokens, limit=limit, k=k,
                repeat=repeat, seed=seed, progress=progress, ranks=ranks,
            )  # fmt: skip
    if not ranks.first:
        return
    name = scoring.eval_name(chosen, split=split, samples=samples, task=task)
    if limit:
        name += f"-first{limit}"
    target = out or (chosen.run.evals / f"{name}.jsonl" if chosen.run else None)
    if target is not None:
        scoring.store(results, summary, target)
    summary = {"subject": chosen.label, "results": str(target) if target else None} | summary
    if as_json:
        output.print_json(summary)
    else:
        show.evaluated(summary)
