"""How good a tiny model is: greedy decoding with transformers' own ``generate``, graded as the task grades."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlforge_cli.tasks.arithmetic import Arithmetic
from rlforge_cli.tasks.base import Problem

MAX_NEW_TOKENS = 64
"""The limit of the preset ``tiny-arith``."""


def greedy(model: Any, tokenizer: Any, prompts: Sequence[str]) -> tuple[list[str], list[int]]:
    """One completion a prompt, without special tokens, and its length in tokens, the end token included.

    A length of ``MAX_NEW_TOKENS + 1`` says that the completion hit the limit without an end token.
    """
    import torch

    inputs = tokenizer(list(prompts), return_tensors="pt", padding=True, add_special_tokens=False)
    with torch.no_grad():
        ids = model.generate(**inputs, do_sample=False, max_new_tokens=MAX_NEW_TOKENS)
    ids = ids[:, inputs["input_ids"].shape[1] :]
    ended = (ids == tokenizer.eos_token_id).any(dim=1)
    lengths = (ids != tokenizer.pad_token_id).sum(dim=1).where(ended, MAX_NEW_TOKENS + 1)
    return tokenizer.batch_decode(ids, skip_special_tokens=True), lengths.tolist()


def greedy_scores(model: Any, tokenizer: Any, problems: Sequence[Problem]) -> dict[str, float]:
    """Shares of right answers (flexible and strict), of the asked format and of truncation; mean tokens."""
    task = Arithmetic()
    texts, lengths = greedy(model, tokenizer, [problem.prompt for problem in problems])
    grades = [task.grade(text, problem) for text, problem in zip(texts, problems, strict=True)]
    n = len(problems)
    return {
        "n": n,
        "accuracy": sum(grade.correct for grade in grades) / n,
        "accuracy_strict": sum(grade.correct_strict for grade in grades) / n,
        "format_ok": sum(grade.format_ok for grade in grades) / n,
        "truncated": sum(length > MAX_NEW_TOKENS for length in lengths) / n,
        "tokens": round(sum(min(length, MAX_NEW_TOKENS) for length in lengths) / n, 3),
    }
