"""Ending a run that is lost, while its last good checkpoint still exists (``train.stop_on_collapse``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlforge_cli import checkpoint
from rlforge_cli.checks.lost import lost, trouble_since
from rlforge_cli.config import Config
from rlforge_cli.errors import Collapsed
from rlforge_cli.run_dir import RunDir


class CollapseWatch:
    """Looks at every step as doctor would; ``step`` is where a resumed run continues."""

    def __init__(self, run: RunDir, config: Config, *, step: int) -> None:
        self.run = run
        self.config = config
        self.records = [record for record in run.metrics() if 0 < record["step"] <= step] if step else []

    def good(self, since: int) -> list[Path]:
        """Checkpoints from before a step, oldest first."""
        return [p for p in checkpoint.all_checkpoints(self.run.checkpoints) if checkpoint.step_of(p) < since]

    def keep(self) -> int:
        """How many checkpoints to keep, so that the last surely good one is among them."""
        wanted = self.config.checkpoint.keep
        since = trouble_since(self.records, self.config)
        if wanted < 0 or since is None or not (good := self.good(since)):
            return wanted
        newer = [p for p in checkpoint.all_checkpoints(self.run.checkpoints) if p not in good]
        return max(wanted, len(newer) + 2)  # the good one, the newer ones, and the one about to be saved

    def see(self, record: dict[str, Any]) -> None:
        """A finished step, before its checkpoint is saved.

        Raises:
            Collapsed: the run is lost; names the rule, the evidence, and the last good checkpoint.
        """
        self.records.append(record)
        found = lost(self.records, self.config)
        if found is None:
            return
        good = self.good(found.since)
        where = f"the last good checkpoint is {good[-1].name}" if good else "there is no checkpoint from before that"
        raise Collapsed(
            f"stopped at step {record['step']}: lost since about step {found.since} ({found.rule}): {found.evidence}; "
            f"{where}; {found.action}: rlforge train --from {self.run.id} --set ..."
        )
