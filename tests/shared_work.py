"""What one process and two must agree on. As a program, alone or under torchrun, it does all of it and
writes ``rank-N.json``.

Each function takes the ranks and returns plain values: called in a test with ``ALONE``, it is what one process gives.
On ``SHARED_WORK_DEVICE`` (cpu unless it says otherwise); "cuda" is a GPU for each rank.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from toys import ToyTask, toy_policy

from rlforge_cli.config import Config, PromptConfig
from rlforge_cli.devices import resolve_device
from rlforge_cli.distributed import Ranks, joined
from rlforge_cli.engines.hf import HFEngine
from rlforge_cli.errors import RunFailed, Terminated, UserError
from rlforge_cli.evaluation import evaluate
from rlforge_cli.experiment import Experiment
from rlforge_cli.model import Policy
from rlforge_cli.prompts import PromptEncoder
from rlforge_cli.rollouts import SamplingParams
from rlforge_cli.rows import Row
from rlforge_cli.settings import build
from rlforge_cli.trainer import Trainer


def configuration(**sections: dict[str, Any]) -> Config:
    base: dict[str, Any] = {
        "rollout": {"group_size": 4, "prompts": 3, "max_tokens": 8, "stop": []},
        "optimizer": {"lr": 0.01},
        "train": {"steps": 10, "micro_batch_size": 3},
    }
    return build({name: base.get(name, {}) | sections.get(name, {}) for name in {*base, *sections}}, where="test")


def device() -> torch.device:
    device = resolve_device(os.environ.get("SHARED_WORK_DEVICE", "cpu"))
    if device.type == "cuda":
        torch.cuda.set_device(device)  # as load_policy does
    return device


def make_trainer(ranks: Ranks, config: Config, *, policy: Policy | None = None) -> Trainer:
    policy = policy or toy_policy(device=device())
    task = ToyTask()
    encoder = PromptEncoder(policy.tokenizer, PromptConfig(), max_tokens=64)
    return Trainer(
        config, policy=policy, engine=HFEngine(policy), task=task, encoder=encoder, problems=task.problems("train"),
        ranks=ranks,
    )  # fmt: skip


def weights(trainer: Trainer) -> dict[str, list[float]]:
    return {name: p.detach().double().flatten().tolist() for name, p in trainer.policy.trainable().items()}


def rows(count: int) -> list[Row]:
    generator = torch.Generator().manual_seed(0)
    made = []
    for index in range(count):
        prompt = [index // 3 + 1] * (1 + index // 3)  # three completions a prompt
        completion = torch.randint(0, 15, (1 + (5 * index) % 7,), generator=generator).tolist()
        made.append(Row(prompt, completion, (-1.0) ** index * (1 + index / 8), [-1.0] * len(completion)))
    return made


def gradients(ranks: Ranks, *, count: int, aggregation: str = "sequence", share: float = 1.0) -> dict[str, Any]:
    """Of one update on ``count`` fixed rows, in float64, and its metrics."""
    policy = toy_policy(dtype=torch.float64, device=device())
    with torch.no_grad():  # so that the KL term pulls
        for parameter in policy.model.parameters():
            parameter.add_(0.01)
    config = configuration(
        grpo={"aggregation": aggregation, "kl_coef": 0.05 if share == 1 else 0.0, "entropy_coef": 0.01},
        model={"reference_share": share},
    )
    trainer = make_trainer(ranks, config, policy=policy)
    kept: dict[str, list[float]] = {}

    def keep(*, grad_norm: float) -> dict[str, float]:
        kept.update({name: p.grad.flatten().tolist() for name, p in policy.trainable().items() if p.grad is not None})
        return {}

    trainer.optimizer.step = keep  # type: ignore[method-assign]
    return {"record": trainer.updater.one_update(rows(count)), "gradients": kept}


def steps(ranks: Ranks, **sections: dict[str, Any]) -> dict[str, Any]:
    """Three steps: what was sampled, what was logged, and the weights at the end."""
    trainer = make_trainer(ranks, configuration(**sections))
    records, sampled = [], []
    for _ in range(3):
        record = trainer.train_step()
        records.append({k: v for k, v in record.items() if "seconds" not in k and k != "tokens_per_s"})
        groups = trainer.last_rollout.generated
        sampled.append([[g.problem.id, *(c.completion_ids for c in g.completions)] for g in groups])
    return {"records": records, "sampled": sampled, "weights": weights(trainer)}


def evaluated(ranks: Ranks) -> list[Any]:
    """Five problems in chunks of three, two samples each."""
    policy, task = toy_policy(device=device()), ToyTask(5)
    results = evaluate(
        HFEngine(policy), task=task, encoder=PromptEncoder(policy.tokenizer, PromptConfig(), max_tokens=64),
        problems=task.problems("test"), params=SamplingParams(max_tokens=8), samples=2, chunk=3, ranks=ranks,
    )  # fmt: skip
    return [[r.id, r.completion, r.tokens] for r in results]


def poisoned(ranks: Ranks) -> dict[str, Any]:
    """A step in which the last rank's gradient is not a number."""
    trainer = make_trainer(ranks, configuration())
    before = weights(trainer)
    original = trainer.updater.own_gradients

    def own_gradients(chosen: list[Row], *, denominator: float) -> dict[str, float]:
        sums = original(chosen, denominator=denominator)
        if ranks.rank == ranks.size - 1:
            next(iter(trainer.policy.trainable().values())).grad.fill_(torch.nan)  # type: ignore[union-attr]
        return sums

    trainer.updater.own_gradients = own_gradients  # type: ignore[method-assign]
    record = trainer.train_step()
    return {
        "skipped": record["skipped"], "kept": weights(trainer) == before, "updates": trainer.optimizer.updates,
        "in_a_row": trainer.skipped_in_a_row,
    }  # fmt: skip


def unlike(ranks: Ranks) -> list[str]:
    """What is said before and after the last rank's weights have moved by themselves."""
    trainer = make_trainer(ranks, configuration())
    run: Any = SimpleNamespace(ranks=ranks, trainer=trainer)
    said = [outcome(lambda: Experiment.require_equal_weights(run))]
    if ranks.rank == ranks.size - 1:
        with torch.no_grad():
            next(iter(trainer.policy.trainable().values())).view(-1)[3] += 1e-6
    return [*said, outcome(lambda: Experiment.require_equal_weights(run))]


def outcome(work: Any) -> str:
    try:
        return str(work())
    except (Exception, KeyboardInterrupt, Terminated) as error:
        return f"{type(error).__name__}: {error}"


def endings(ranks: Ranks) -> list[str]:
    """Errors and stop requests of the last rank only."""
    last = ranks.rank == ranks.size - 1

    def fail(error: Exception) -> str:
        if last:
            raise error
        return "fine"

    def stopped() -> str:
        if last:
            signal.raise_signal(signal.SIGTERM)
            return "not reached"
        return "fine"

    said = [
        outcome(lambda e=e: ranks.together(lambda: fail(e))) for e in (UserError("a"), RunFailed("b"), OSError("c"))
    ]
    said.append(outcome(lambda: ranks.in_first(lambda: "of the first" if ranks.first else "of another")))
    said.append(outcome(lambda: ranks.together(stopped)))
    said.append(outcome(lambda: ranks.together(lambda: "saved", interruptible=False)))
    said.append(outcome(lambda: ranks.together(lambda: "not begun in the last")))
    return said


COMPARED = {
    "sequence": lambda ranks: gradients(ranks, count=8),
    "token": lambda ranks: gradients(ranks, count=8, aggregation="token"),
    "share": lambda ranks: gradients(ranks, count=8, share=0.25),
    "one row": lambda ranks: gradients(ranks, count=1),
    "plain": lambda ranks: steps(ranks),
    "dynamic": lambda ranks: steps(ranks, rollout={"oversample": 1.5, "max_rounds": 3}),
    "updates": lambda ranks: steps(ranks, rollout={"prompts": 4}, grpo={"updates": 2, "kl_coef": 0.1}),
    "evaluated": evaluated,
    "poisoned": poisoned,
}
"""Equal for any number of ranks."""
OF_SEVERAL = {"unlike": unlike, "endings": endings}

if __name__ == "__main__":
    with joined() as these:
        wanted = COMPARED | (OF_SEVERAL if these.size > 1 else {})
        done = {name: work(these) for name, work in wanted.items()}
        (Path(sys.argv[1]) / f"rank-{these.rank}.json").write_text(json.dumps(done))
