"""Small stand-ins: a toy tokenizer, a scripted engine, a task of two problems. They behave, they do not record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from rlforge_cli.model import Policy
from rlforge_cli.rollouts import Completion, SamplingParams
from rlforge_cli.tasks.base import Grade, Problem


class ToyTokenizer:
    """Ids 0..9 are the digits, 10 a space, 11 ``h``, 12 ``llo``, 13 a newline, 14 ``Q:``; 2 digits never merge.

    ``bos_token_id`` is 15, ``eos_token_id`` 16 and 17 is a second end token; all three decode to nothing.
    """

    pieces = (*"0123456789", " ", "he", "llo", "\n", "Q:")
    bos_token_id = 15
    eos_token_id = 16
    chat_template: str | None = None

    def __init__(self, *, adds_bos: bool = False, template: Callable[[str], str] | None = None) -> None:
        self.adds_bos = adds_bos
        self.template = template
        if template is not None:
            self.chat_template = "toy"

    def __call__(self, texts: Any, *, add_special_tokens: bool = True) -> dict[str, Any]:
        if isinstance(texts, str):
            return {"input_ids": self.encode(texts, add_special_tokens)}
        return {"input_ids": [self.encode(text, add_special_tokens) for text in texts]}

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        ids = [self.bos_token_id] if self.adds_bos and add_special_tokens else []
        while text:
            if text.startswith("<s>"):
                ids, text = [*ids, self.bos_token_id], text[3:]
                continue
            place = next(i for i, piece in enumerate(self.pieces) if text.startswith(piece))
            ids, text = [*ids, place], text[len(self.pieces[place]) :]
        return ids

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        return "".join(self.pieces[i] for i in ids if i < len(self.pieces))

    def apply_chat_template(self, conversations: list[list[dict[str, str]]], **_: Any) -> list[str]:
        assert self.template is not None
        return [self.template(messages[-1]["content"]) for messages in conversations]

    def save_pretrained(self, folder: Any) -> None: ...


class ToyTask:
    """Right when the completion's text is the answer."""

    name = "toy"
    grader_version = "toy-1"

    def __init__(self, count: int = 20) -> None:
        self.made = [Problem(f"p{i:02d}", f"{i % 10} {i // 10}", str(i % 10)) for i in range(count)]

    def problems(self, split: str) -> list[Problem]:
        return self.made

    def grade(self, completion: str, problem: Problem) -> Grade:
        right = completion.strip() == problem.answer
        return Grade(correct=right, correct_strict=right, format_ok=right, prediction=completion.strip() or None)


def toy_policy(
    *, seed: int = 0, dtype: torch.dtype = torch.float32, tied: bool = True, reference: bool = True,
    head_dim: int = 8, device: torch.device | str = "cpu",
) -> Policy:  # fmt: skip
    """A two-layer Qwen3 of 18 tokens, random weights large enough that its choices differ."""
    import copy

    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=18, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=head_dim, tie_word_embeddings=tied, max_position_embeddings=128,
        eos_token_id=[16, 17], pad_token_id=16, bos_token_id=15, initializer_range=0.3, attn_implementation="sdpa",
    )  # fmt: skip
    model = Qwen3ForCausalLM(config).to(device, dtype)
    frozen = copy.deepcopy(model).eval().requires_grad_(False) if reference else None
    return Policy(model, ToyTokenizer(), reference=frozen)


class ScriptedEngine:
    """Gives completions of fixed texts, by prompt order within a call; counts calls."""

    def __init__(self, script: Callable[[int, int, int], list[int]]) -> None:
        self.script = script
        self.calls: list[str] = []
        self.generated = 0

    def generate(
        self, prompts: Sequence[Sequence[int]], *, n: int, params: SamplingParams, seed: int,
        places: Sequence[int] | None = None,
    ) -> list[list[Completion]]:  # fmt: skip
        self.calls.append("generate")
        groups = []
        for _ in prompts:
            group = []
            for sample in range(n):
                ids = self.script(len(self.calls), self.generated, sample)
                text = ToyTokenizer().decode(ids)
                group.append(Completion(ids, [-1.0] * len(ids), "stop" if ids[-1] in (16, 17) else "length", text))
            self.generated += 1
            groups.append(group)
        return groups

    def sync_weights(self, *, step: int) -> None:
        self.calls.append("sync_weights")

    def offload(self) -> None:
        self.calls.append("offload")

    def close(self) -> None:
        self.calls.append("close")
