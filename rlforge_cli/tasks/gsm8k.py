"""GSM8K (arXiv 2110.14168): grade-school word problems, 7,473 train and 1,319 test, from the hub or a local folder."""

from __future__ import annotations

from pathlib import Path

from rlforge_cli.errors import UserError, first_line
from rlforge_cli.hub import settle_offline
from rlforge_cli.tasks.base import Problem
from rlforge_cli.tasks.grading import gold_answer
from rlforge_cli.tasks.jsonl import TextTask, read_problems
from rlforge_cli.tasks.splits import hold_out

HUB_NAME = "openai/gsm8k"


def gsm8k_task(path: str, *, validation: int) -> TextTask:
    """``path``: a folder with train.jsonl and test.jsonl (question, answer), or empty for the hub's copy."""
    train, test = (from_folder(Path(path), name) if path else from_hub(name) for name in ("train", "test"))
    return TextTask("gsm8k", hold_out(train, test, validation=validation, task="gsm8k"))


def numbered(split: str, problems: list[Problem]) -> list[Problem]:
    """Ids by position, as the published order is stable: ``gsm8k-test-0000``."""
    return [Problem(f"gsm8k-{split}-{index:04d}", p.prompt, p.answer) for index, p in enumerate(problems)]


def from_folder(folder: Path, split: str) -> list[Problem]:
    file = folder / f"{split}.jsonl"
    if not file.is_file():
        raise UserError(
            f"data.path = {folder}: no {split}.jsonl in it; a GSM8K folder holds train.jsonl and test.jsonl"
        )
    return numbered(split, read_problems(file, split, answer=gold_answer))


def from_hub(split: str) -> list[Problem]:
    settle_offline()
    from datasets import load_dataset

    try:
        data = load_dataset(HUB_NAME, "main", split=split)
    except (OSError, ValueError) as error:  # datasets raises either when neither hub nor cache has it
        reason = first_line(error)
        raise UserError(
            f"data.task = 'gsm8k': {HUB_NAME} could not be had from the hub or its cache ({reason}); give a local "
            "folder of train.jsonl and test.jsonl: --set data.path=FOLDER"
        ) from None
    return numbered(split, [Problem("", row["question"], gold_answer(row["answer"])) for row in data])
