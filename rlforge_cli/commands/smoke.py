"""rlforge smoke"""

from __future__ import annotations

import time
from typing import Annotated

import typer

from rlforge_cli.commands.common import Json, Preset, RunsDir, Sets, runs_folder


def smoke(
    preset: Preset = None,
    sets: Sets = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps to take, or to judge of an old run.")] = 20,
    run: Annotated[str | None, typer.Option(help="Judge the first steps of this run by what it logged.")] = None,
    rewards: Annotated[bool, typer.Option("--rewards", help="Check the reward only, without training.")] = False,
    runs_dir: RunsDir = None,
    as_json: Json = False,
) -> None:
    """Take twenty steps and check what must be true before hours are spent; exit code 1 when something is not."""
    from rlforge_cli import output, settings, smoke_view
    from rlforge_cli.checks import GATES, REWARD_GATES, Evidence, passed, run_gates
    from rlforge_cli.errors import UserError
    from rlforge_cli.forecast import plan_facts
    from rlforge_cli.lineage import run_config
    from rlforge_cli.progress import Progress
    from rlforge_cli.run_dir import RunDir
    from rlforge_cli.smoke import Smoked, check_rewards
    from rlforge_cli.smoke import smoke as run_smoke

    begin = time.perf_counter()
    if run is not None:
        if preset or sets or rewards:
            raise UserError("--run judges a run as it was: leave out --preset, --set and --rewards")
        found = RunDir.find(run, runs_folder(runs_dir))
        found.info()  # a damaged run.json is an error here too
        records = found.steps(found.metrics())[:steps]
        config = run_config(found)
        smoked = Smoked(Evidence(config=config, records=records, plan=plan_facts(config)))
    else:
        config = settings.load(preset, sets=sets or [])
        if rewards:
            smoked = check_rewards(config)
        else:
            with Progress("smoke", total=steps, quiet=as_json) as progress:
                smoked = run_smoke(config, steps=steps, plan=plan_facts(config), progress=progress.step)
    checks = run_gates(smoked.evidence, gates=REWARD_GATES if rewards else GATES)
    wall_s = time.perf_counter() - begin
    probes = smoked.evidence.probes
    result = {"passed": passed(checks) and smoked.missing is None, "checks": checks, "wall_s": wall_s}
    if rewards:
        result |= {"probes": probes.earnings, "components": probes.components}
    if as_json:
        output.print_json(result)
    else:
        if rewards and probes.earnings:
            smoke_view.payments(probes.earnings, probes.components or [])
        smoke_view.checks(checks, wall_s=wall_s, complete=smoked.missing is None)
    if smoked.missing is not None:
        raise UserError(smoked.missing)
    if not result["passed"]:
        raise typer.Exit(1)
