"""A run that ends before it is done, as a killed process does: nothing is saved on the way out."""

from __future__ import annotations

from typing import Any

import pytest

from rlforge_cli import lifecycle
from rlforge_cli.config import Config
from rlforge_cli.run_dir import RunDir
from rlforge_cli.trainer import Trainer


class Stop(Exception):
    pass


def until(step: int, run: RunDir, config: Config, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
    """Execute ``run`` in this process until it has done ``step`` steps."""
    original = Trainer.train_step

    def train_step(self: Trainer) -> dict[str, Any]:
        if self.step == step:
            raise Stop
        return original(self)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "train_step", train_step)
        with pytest.raises(Stop):
            lifecycle.execute(run, config, quiet=True, **options)
