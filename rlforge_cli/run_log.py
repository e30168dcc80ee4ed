"""What a run writes while it goes: a line a step, samples of completions, and the sinks that want them too."""

from __future__ import annotations

from typing import Any

import msgspec

from rlforge_cli.config import Config
from rlforge_cli.run_dir import LineWriter, RunDir
from rlforge_cli.sinks import open_sinks


class Silent:
    """In the place of :class:`Writers` where another process writes."""

    def metrics(self, record: dict[str, Any]) -> None: ...

    def rollouts(self, step: int, collected: Any) -> None: ...

    def close(self) -> None: ...


class Writers:
    """The run's line files and sinks, to go on after step ``after`` (-1: from before the first)."""

    def __init__(self, run: RunDir, config: Config, *, after: int) -> None:
        self.sinks = open_sinks(config.log.sinks, run.path, msgspec.to_builtins(config))
        self._metrics = LineWriter(run.metrics_file, after=after)
        self._rollouts = LineWriter(run.rollouts_file, after=after)
        self.groups = config.log.rollouts

    def metrics(self, record: dict[str, Any]) -> None:
        self._metrics.write(record)
        for sink in self.sinks:
            sink.log(record)

    def rollouts(self, step: int, collected: Any) -> None:
        """A sample of completions with their reward components."""
        for group in collected.generated[: self.groups]:
            for index, (c, grade, score) in enumerate(zip(group.completions, group.grades, group.scores, strict=True)):
                self._rollouts.write(
                    {
                        "step": step, "id": group.problem.id, "sample": index, "prompt": group.problem.prompt,
                        "answer": group.problem.answer, "completion": c.text, "prediction": grade.prediction,
                        "correct": grade.correct, "reward": score.total, "components": score.components,
                        "finish_reason": c.finish_reason, "tokens": len(c.completion_ids),
                    }
                )  # fmt: skip

    def close(self) -> None:
        self._metrics.close()
        self._rollouts.close()
        for sink in self.sinks:
            sink.close()
