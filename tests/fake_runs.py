"""Training and scoring that take no time and leave behind what the real ones do: status, budget, metrics, results."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from comparison_files import SUMMARY, lines

from rlforge_cli import lineage, series, settings
from rlforge_cli.config import Config
from rlforge_cli.errors import RunFailed
from rlforge_cli.planning import planned_completions
from rlforge_cli.run_dir import RunDir

ITEMS = 400


def noisy(rate: Callable[[Config], float]) -> Callable[[Config], list[int]]:
    """Right and wrong answers at ``rate``; equal for equal seeds."""

    def answers(config: Config) -> list[int]:
        draw = random.Random(1000 * config.rollout.group_size + config.train.seed).random
        return [int(draw() < rate(config)) for _ in range(ITEMS)]

    return answers


class Fake:
    """``interrupt``, ``fail`` and ``crash`` say at which runs, by id, training ends early."""

    def __init__(
        self,
        answers: Callable[[Config], list[int]],
        *,
        interrupt: set[str] = frozenset(),  # type: ignore[assignment]
        fail: set[str] = frozenset(),  # type: ignore[assignment]
        crash_scoring: set[str] = frozenset(),  # type: ignore[assignment]
    ) -> None:
        self.answers = answers
        self.interrupt, self.fail, self.crash_scoring = set(interrupt), set(fail), set(crash_scoring)
        self.started: list[str] = []
        self.tools = series.Tools(train=self.train, score=self.score)

    def train(self, run: RunDir, config: Config) -> None:
        self.started.append(run.id)
        run.update_info(status="running", task="arithmetic", task_hash="t0")
        record: dict[str, Any] = {"step": 1, "seconds_total": 0.5, "zero_std_fraction": 0.1}
        run.metrics_file.write_text(json.dumps(record) + "\n")
        if run.id in self.interrupt:
            self.interrupt.discard(run.id)
            run.update_info(status="interrupted")
            raise KeyboardInterrupt
        if run.id in self.fail:
            run.update_info(status="failed", reason="CUDA out of memory")
            raise RunFailed("CUDA out of memory")
        spent = planned_completions(config)
        run.update_info(
            status="completed", steps=config.train.steps, budget={"completions_generated": spent}, best={"step": 1}
        )

    def score(self, run: RunDir) -> None:
        if run.id in self.crash_scoring:
            raise RunFailed("out of memory while scoring")
        right = self.answers(lineage.run_config(run))
        run.evals.mkdir(exist_ok=True)
        (run.evals / "test.jsonl").write_text(lines(right))
        summary = SUMMARY | {"accuracy": sum(right) / len(right), "n": len(right), "task": "arithmetic"}
        (run.evals / "test.json").write_text(json.dumps(summary | {"checkpoint": "best"}))

    def run(
        self,
        runs: Path,
        *sets: str,
        base: str | None = None,
        seed: int | None = None,
        scored: bool = True,
        **labels: Any,
    ) -> RunDir:
        """A run as `train` makes it, finished."""
        plan = lineage.prepare(runs_dir=runs, preset=None if base else "tiny-arith", base=base, sets=sets, seed=seed)
        run = lineage.start(plan, runs, **labels)
        self.train(run, plan.config)
        if scored:
            self.score(run)
        return run


def with_seed(config: Config, seed: int) -> Config:
    return msgspec.structs.replace(config, train=msgspec.structs.replace(config.train, seed=seed))


def tiny(*sets: str) -> Config:
    return settings.load("tiny-arith", sets=sets)
