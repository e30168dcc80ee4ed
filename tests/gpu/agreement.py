"""Do vLLM and the trainer hold the same model? On one NVIDIA GPU, for full weights, an adapter, and a 4-bit base.

    python tests/gpu/agreement.py --model FOLDER --data GSM8K_FOLDER --kind full|lora|qlora [--syncs 1000]

Compares log-probabilities of sampled tokens after 0, 1 and 20 updates; greedy tokens before and after sleep; two calls
of one seed; of an adapter, each projection perturbed alone, and the frozen base after many syncs, bit for bit. Exits
with 1 if a line fails. Any Qwen3 will do, one with random weights too.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from rlforge_cli.experiment import Experiment
from rlforge_cli.grpo.batch import make_batch
from rlforge_cli.rollouts import Completion, SamplingParams
from rlforge_cli.run_dir import RunDir
from rlforge_cli.settings import load

LIMIT = {"full": 0.02, "lora": 0.02, "qlora": 0.1}
"""Of the mean |difference| of log-probabilities, in bfloat16 and with a 4-bit base."""
MOVED = 0.01
"""By this much at least a perturbed projection, or training, moves the log-probabilities of former completions."""
ROWS = 2


def bits(module: Any) -> dict[str, int]:
    """A sum of the bytes of every frozen weight; also of vLLM's model, whose adapters have a name of their own."""
    return {
        name: int(p.detach().contiguous().view(torch.uint8).to(torch.int64).sum())
        for name, p in module.named_parameters()
        if "lora" not in name
    }


class Check:
    def __init__(self, options: argparse.Namespace) -> None:
        self.kind = options.kind
        self.begin = time.perf_counter()
        self.failed = 0
        self.config = load(
            "qwen3-0.6b-full",
            sets=[
                f"model.path={options.model}", f"data.path={options.data}", f"adaptation={options.kind}",
                f"max_tokens={options.tokens}", "G=4", "P=4", "micro_batch=8", "lr=1e-4", "logprob_share=1",
                "gradient_checkpointing=false", "model.reference=false", "memory_share=0.1", "eval.batch_size=64",
                f"reward.functions={Path(__file__).resolve().with_name('spread.py')}:spread", *options.set,
            ],
        )  # fmt: skip
        self.trainer = Experiment(RunDir(Path(tempfile.mkdtemp())), self.config).trainer
        self.engine: Any = self.trainer.engine
        self.policy = self.trainer.policy
        self.engine.sync_weights(step=0)
        self.prompts = [self.trainer.encoder.encode(problem) for problem in self.trainer.problems[:8]]
        self.say("the engine is ready", True, "")

    def say(self, what: str, good: bool, value: str) -> None:
        self.failed += not good
        spent = time.perf_counter() - self.begin
        print(f"{spent:6.1f} s  {self.kind:5}  {'ok  ' if good else 'FAIL'}  {what}: {value}", flush=True)

    def sample(self, *, n: int = ROWS, seed: int = 0, temperature: float = 1.0) -> list[Completion]:
        params = SamplingParams(max_tokens=self.config.rollout.max_tokens, temperature=temperature)
        return [c for group in self.engine.generate(self.prompts, n=n, params=params, seed=seed) for c in group]

    def gap(self, completions: list[Completion]) -> tuple[float, float]:
        """Mean and largest |log p of the engine - log p of the trainer|."""
        prompts = [prompt for prompt in self.prompts for _ in range(ROWS)]
        found = []
        with torch.no_grad():
            for start in range(0, len(completions), 8):
                part = completions[start : start + 8]
                batch = make_batch(prompts[start : start + 8], [c.completion_ids for c in part])
                logprobs = self.policy.logprobs(batch, temperature=1.0)[0].cpu()
                for row, c in enumerate(part):
                    reported = torch.tensor(c.sampling_logprobs)
                    found.append((logprobs[row, : len(reported)] - reported).abs())
        every = torch.cat(found)
        return float(every.mean()), float(every.max())

    def agree(self, what: str, *, unlike: list[Completion] | None = None) -> None:
        """``unlike`` are completions of former weights, whose log-probabilities must be others by now."""
        mean, most = self.gap(self.sample())
        moved = self.gap(unlike)[0] if unlike else float("inf")
        text = f"mean {mean:.4f}, largest {most:.3f}" + (f"; former completions {moved:.3f}" if unlike else "")
        self.say(what, mean <= LIMIT[self.kind] and moved >= MOVED, text)

    def training(self) -> None:
        start = self.sample()
        self.agree("after 0 updates")
        for step in range(1, 21):
            self.trainer.train_step()
            if step in (1, 20):
                self.agree(f"after {step} updates", unlike=start if step == 20 else None)

    def repeating(self) -> None:
        before = self.sample(n=1, temperature=0.0)
        self.engine.offload()
        self.engine.sync_weights(step=20)
        self.same("greedy tokens after sleep and waking", before, self.sample(n=1, temperature=0.0))
        self.same("tokens of one seed", self.sample(seed=5), self.sample(seed=5))
        self.same("greedy tokens again", before, self.sample(n=1, temperature=0.0))

    def same(self, what: str, first: list[Completion], second: list[Completion]) -> None:
        equal = sum(a.completion_ids == b.completion_ids for a, b in zip(first, second, strict=True))
        self.say(what, equal == len(first), f"{equal} of {len(first)} equal")

    def projections(self) -> None:
        second = {name: p for name, p in self.policy.trainable().items() if "lora_B" in name}
        self.change(second, lambda name, p: torch.zeros_like(p))
        start = self.sample()
        for module in self.config.model.lora_targets:
            self.change(
                second,
                lambda name, p, own=f".{module}.lora_B": (
                    0.05 * torch.randn_like(p) if own in name else torch.zeros_like(p)
                ),
            )
            self.agree(f"{module} alone", unlike=start)

    def change(self, parameters: dict[str, Any], value: Callable[[str, Any], torch.Tensor]) -> None:
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(value(name, parameter))
        self.engine.sync_weights(step=30)

    def base(self, syncs: int) -> None:
        second = {name: p for name, p in self.policy.trainable().items() if "lora_B" in name}
        trainer, (engine,) = bits(self.policy.causal), self.engine.llm.apply_model(bits)
        for _ in range(syncs):
            self.change(second, lambda name, p: p * 0.999 + 1e-4)
        self.agree(f"after {syncs} syncs")
        self.engine.offload()
        self.engine.sync_weights(step=40)
        self.agree("and sleep")
        self.say("the trainer's base", bits(self.policy.causal) == trainer, f"{len(trainer)} weights, bit for bit")
        self.say("vLLM's base", self.engine.llm.apply_model(bits)[0] == engine, f"{len(engine)} weights, bit for bit")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--kind", choices=sorted(LIMIT), default="full")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--syncs", type=int, default=1000)
    parser.add_argument("--set", action="append", default=[], help="further settings, key=value")
    options = parser.parse_args()
    check = Check(options)
    check.training()
    check.repeating()
    if options.kind != "full":
        check.projections()
        check.base(options.syncs)
    sys.stdout.flush()
    os._exit(min(1, check.failed))  # at once: nothing of vLLM's ending is measured here


if __name__ == "__main__":
    main()
