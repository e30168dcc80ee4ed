"""Tasks by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rlforge_cli.errors import UserError, nearest
from rlforge_cli.tasks.base import Task

if TYPE_CHECKING:
    from rlforge_cli.config import DataConfig

NAMES = ("arithmetic", "gsm8k", "jsonl", "gym:NAME")


def load_task(config: DataConfig) -> Task:
    """The task that ``config`` names, its files read and checked.

    Raises:
        UserError: unknown task, missing file, or a bad problem in it.
    """
    name, path = config.task, config.path
    if name == "arithmetic":
        from rlforge_cli.tasks.arithmetic import Arithmetic

        return Arithmetic(validation=config.validation)
    if name == "gsm8k":
        from rlforge_cli.tasks.gsm8k import gsm8k_task

        return gsm8k_task(path, validation=config.validation)
    if name == "jsonl":
        from rlforge_cli.tasks.jsonl import jsonl_task

        if not path or not Path(path).exists():
            raise UserError(
                f"data.path = {path!r}: no such file or folder; task jsonl reads prompts and answers from it"
            )
        return jsonl_task(Path(path), validation=config.validation)
    if name.startswith("gym:"):
        from rlforge_cli.tasks.gym import gym_task

        return gym_task(name.partition(":")[2], validation=config.validation)
    raise UserError(f"data.task = {name!r}: no such task{nearest(name, NAMES)}")
