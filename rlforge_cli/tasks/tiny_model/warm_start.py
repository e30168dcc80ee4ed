"""The weights of the embedded model: supervised learning on right demonstrations, then briefly on spoiled ones.

Only prompts of the train split are seen. On one machine with one set of versions the weights come out bit for bit the
same: one thread, and every random number from ``seed``. Elsewhere they differ in the last bits, and shapes of text that
are nearly tied then flip together; so the checkpoint is shipped rather than made at first use.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from rlforge_cli.tasks.arithmetic import stream
from rlforge_cli.tasks.tiny_model.demonstrations import Demonstration, gold, spoiled
from rlforge_cli.tasks.tiny_model.tokenizer import MAX_LENGTH, build_tokenizer

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

BATCH = 64
"""Demonstrations a step."""

IGNORED = -100
"""Label of prompt and padding tokens: they are not learned."""


class Stage(NamedTuple):
    """A stretch of AdamW steps on one kind of demonstration, with an optimizer of its own."""

    write: Callable[[str, random.Random], Demonstration]
    steps: int
    lr: float
    warmup: int
    """Steps of linear warm-up."""
    decay: float
    """Share of the steps, at the end, over which the learning rate falls linearly to 0."""

    def lr_at(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        return self.lr * min(1.0, (step + 1) / self.warmup, (self.steps - step) / (self.decay * self.steps))


STAGES = (
    Stage(write=gold, steps=1200, lr=2e-3, warmup=30, decay=0.5),
    Stage(write=spoiled, steps=120, lr=6e-4, warmup=1, decay=1.0),
)
"""Chosen by greedy accuracy, share of right format and a throw-away 200-step GRPO run, all on validation problems."""


def build_config(tokenizer: PreTrainedTokenizerFast) -> Qwen3Config:
    """A Qwen3 of 2 layers and hidden size 128 over the tokenizer's vocabulary, embeddings tied."""
    from transformers import Qwen3Config

    return Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        intermediate_size=256,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        max_position_embeddings=MAX_LENGTH,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        dtype="float32",
    )


def warm_start(
    *, stages: Sequence[Stage] = STAGES, seed: int = 0, report: Callable[[int, int, float], None] | None = None
) -> Qwen3ForCausalLM:
    """Train a fresh model through ``stages``; ``report(stage, step, loss)`` is called after every step."""
    import torch
    from torch.nn.functional import cross_entropy
    from transformers import Qwen3ForCausalLM

    tokenizer = build_tokenizer()
    with _one_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(build_config(tokenizer)).train()
        rng = random.Random(seed)
        prompts = (prompt for prompt, _ in stream("train", rng))
        for number, stage in enumerate(stages):
            optimizer = torch.optim.AdamW(model.parameters(), lr=stage.lr, betas=(0.9, 0.98), weight_decay=0.0)
            for step in range(stage.steps):
                rows = [(prompt, stage.write(prompt, rng)) for prompt in islice(prompts, BATCH)]
                ids, labels = collate(rows, tokenizer)
                logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
                loss = cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORED)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.param_groups[0]["lr"] = stage.lr_at(step)
                optimizer.step()
                optimizer.zero_grad()
                if report:
                    report(number, step, loss.item())
    return model.eval()


def collate(rows: Sequence[tuple[str, Demonstration]], tokenizer: PreTrainedTokenizerFast) -> tuple[Tensor, Tensor]:
    """Token ids and labels, both [B, T], padded on the right; labels cover the demonstration and its end token."""
    import torch

    pairs = []
    for prompt, demonstration in rows:
        completion = tokenizer(demonstration.text, add_special_tokens=False)["input_ids"]
        pairs.append(
            (
                tokenizer(prompt, add_special_tokens=False)["input_ids"],
                completion + [tokenizer.eos_token_id] * demonstration.ends,
            )
        )
    width = max(len(prompt) + len(completion) for prompt, completion in pairs)
    ids = torch.full((len(pairs), width), tokenizer.pad_token_id)
    labels = torch.full((len(pairs), width), IGNORED)
    for row, (prompt, completion) in enumerate(pairs):
        end = len(prompt) + len(completion)
        ids[row, :end] = torch.tensor(prompt + completion)
        labels[row, len(prompt) : end] = torch.tensor(completion)
    return ids, labels


@contextmanager
def _one_thread() -> Iterator[None]:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the order of floating-point sums depends on the number of threads
    try:
        yield
    finally:
        torch.set_num_threads(threads)
