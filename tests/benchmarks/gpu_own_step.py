"""Steps of rlforge on one GPU, timed whole and then part by part; JSON lines. Started by gpu_step.py."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Parts:
    """Seconds by part: of each wrapped function what its wrapped callees do not account for, the device's work done."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.inner: list[float] = []

    def wrap(self, owner: Any, name: str, part: str) -> None:
        setattr(owner, name, self.timed(getattr(owner, name), part))

    def timed(self, function: Callable[..., Any], part: str) -> Callable[..., Any]:
        import torch

        def run(*args: Any, **kwargs: Any) -> Any:
            torch.cuda.synchronize()
            begin = time.perf_counter()
            self.inner.append(0.0)
            try:
                return function(*args, **kwargs)
            finally:
                torch.cuda.synchronize()
                spent = time.perf_counter() - begin
                self.seconds[part] = self.seconds.get(part, 0.0) + spent - self.inner.pop()
                if self.inner:
                    self.inner[-1] += spent

        return run


def profile(trainer: Any, steps: int) -> dict[str, float]:
    """Mean seconds a step by part. Waiting for the device at each border costs a little overlap."""
    from rlforge_cli.engines import vllm_library

    parts = Parts()
    engine, optimizer = trainer.engine, trainer.optimizer
    if hasattr(engine, "_wake"):
        parts.wrap(engine, "_wake", "wake")
        parts.wrap(vllm_library, "complete", "decode")
        parts.wrap(vllm_library, "push_weights", "push weights")
    else:
        parts.wrap(engine, "_decode", "decode")
    parts.wrap(engine, "generate", "requests and detokenizing")
    parts.wrap(trainer, "own_groups", "prompts, grades, rewards")
    parts.wrap(engine, "offload", "sleep")
    parts.wrap(trainer.updater, "own_gradients", "forward and backward")
    parts.wrap(trainer.updater, "sampled_kl", "reference")
    parts.wrap(optimizer, "grad_norm", "gradient norm")
    parts.wrap(optimizer, "step", "optimizer")
    parts.wrap(engine, "sync_weights", "rest of sync")
    step = parts.timed(trainer.train_step, "everything else")
    for _ in range(steps):
        step()
    return {part: seconds / steps for part, seconds in parts.seconds.items()}


def emit(began: float, **values: Any) -> None:
    print(json.dumps({"since_start": time.time() - began} | values), flush=True)


def main() -> None:
    order = json.loads(sys.argv[1])
    began = order["began"]
    from rlforge_cli.libraries import load_libraries

    load_libraries()
    import torch

    from rlforge_cli import model
    from rlforge_cli.engines import vllm_library
    from rlforge_cli.experiment import Experiment
    from rlforge_cli.run_dir import RunDir
    from rlforge_cli.settings import load

    starting = {"torch and transformers": time.time() - began}
    config = load(order["preset"], sets=order["sets"])
    with tempfile.TemporaryDirectory() as folder:
        parts = Parts()
        parts.wrap(model, "load_policy", "policy")
        parts.wrap(vllm_library, "start", "vLLM")
        trainer = parts.timed(Experiment, "data, optimizer")(RunDir(Path(folder)), config).trainer
        parts.timed(trainer.engine.sync_weights, "first sync")(step=0)
        emit(began, event="ready", parts=starting | parts.seconds)
        records = []
        for _ in range(order["steps"]):
            torch.cuda.reset_peak_memory_stats()
            record = trainer.train_step()
            torch.cuda.synchronize()
            keys = ("rollout", "train", "sync", "total")
            records.append({key: record[f"seconds_{key}"] for key in keys} | {"tokens": record["tokens_generated"]})
            allocated = torch.cuda.max_memory_allocated() / 2**30
            agreement = {key: record[key] for key in ("sampling_diff_max", "kl_sampling") if key in record}
            emit(began, event="step", allocated_gib=allocated, **records[-1], **agreement)
        emit(began, event="parts", parts=profile(trainer, order.get("profiled", 2)))
        trainer.engine.close()


if __name__ == "__main__":
    main()
