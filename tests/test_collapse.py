from __future__ import annotations

import pytest

from rlforge_cli import checkpoint, lineage
from rlforge_cli.errors import RunFailed
from rlforge_cli.lifecycle import execute

SETS = (
    "steps=30", "lr=5e-2", "optimizer.warmup_steps=0", "prompts=4", "eval.every=0", "eval.problems=4",
    "checkpoint.every=1", "checkpoint.keep=1", "train.max_skipped=30",
)  # fmt: skip


def test_a_lost_run_ends_early_with_its_reason_and_its_last_good_checkpoint(tmp_path):
    plan = lineage.prepare(runs_dir=tmp_path, preset="tiny-arith", sets=[*SETS, "train.stop_on_collapse=true"])
    run = lineage.start(plan, tmp_path)
    with pytest.raises(RunFailed, match=r"lost since about step \d+ \(kl_runaway\)"):
        execute(run, plan.config, quiet=True)
    info = run.info()
    assert info["status"] == "failed"
    assert "kl_runaway" in info["reason"]
    assert "step-000001" in info["reason"]
    assert info["steps"] < 15
    # keep=1 alone would have left only the newest, which is lost
    assert checkpoint.all_checkpoints(run.checkpoints)[0].name == "step-000001"
    assert checkpoint.load(run.checkpoints / "step-000001")[1]["trainer"]["step"] == 1
