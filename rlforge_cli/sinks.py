"""Optional places that also get the metrics: TensorBoard, Weights & Biases, trackio. metrics.jsonl is the record."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from rlforge_cli.errors import UserError


class Sink(Protocol):
    def log(self, record: dict[str, Any]) -> None: ...

    def close(self) -> None: ...


def numbers(record: dict[str, Any]) -> dict[str, float]:
    return {key: float(value) for key, value in record.items() if isinstance(value, (int, float)) and key != "step"}


class TensorBoardSink:
    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(folder / "tensorboard"))

    def log(self, record: dict[str, Any]) -> None:
        for key, value in numbers(record).items():
            self.writer.add_scalar(key, value, record["step"])

    def close(self) -> None:
        self.writer.close()


class ModuleSink:
    """wandb, or trackio, which takes the same calls."""

    def __init__(self, module: Any, folder: Path, config: dict[str, Any]) -> None:
        self.module = module
        where = {"dir": str(folder)} if module.__name__ == "wandb" else {}
        module.init(project="rlforge", name=f"{folder.parent.name}/{folder.name}", config=config, **where)

    def log(self, record: dict[str, Any]) -> None:
        self.module.log(numbers(record), step=record["step"])

    def close(self) -> None:
        self.module.finish()


def open_sinks(names: tuple[str, ...], folder: Path, config: dict[str, Any]) -> list[Sink]:
    """The sinks that ``log.sinks`` names.

    Raises:
        UserError: one that is not installed.
    """
    import importlib

    sinks: list[Sink] = []
    for name in names:
        try:
            sinks.append(
                TensorBoardSink(folder)
                if name == "tensorboard"
                else ModuleSink(importlib.import_module(name), folder, config)
            )
        except ImportError:
            raise UserError(f"log.sinks: {name} is not installed: pip install 'rlforge[tracking]'") from None
    return sinks
