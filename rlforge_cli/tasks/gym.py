"""reasoning-gym's procedural generators (extra ``tasks``), each with its own scorer: ``gym:basic_arithmetic``."""

from __future__ import annotations

from typing import Any

from rlforge_cli.errors import UserError, nearest
from rlforge_cli.tasks.base import Grade, Problem, Split
from rlforge_cli.tasks.grading import final_answer_text
from rlforge_cli.tasks.splits import hold_out

SIZES: dict[str, int] = {"train": 4000, "test": 500}
SEEDS: dict[str, int] = {"train": 1, "test": 2}


class GymTask:
    """Problems and scorer of one generator. Right means the scorer gives full marks."""

    def __init__(self, name: str, dataset: Any, splits: dict[Split, list[Problem]], entries: dict[str, Any]) -> None:
        import reasoning_gym

        self.name = f"gym:{name}"
        self.grader_version = f"reasoning-gym-{reasoning_gym.__version__}"
        self._dataset = dataset
        self._splits = splits
        self._entries = entries

    def problems(self, split: Split) -> list[Problem]:
        return self._splits[split]

    def grade(self, completion: str, problem: Problem) -> Grade:
        answer, asked = final_answer_text(completion)
        if answer is None:
            return Grade(False, False, False, None)
        try:
            correct = float(self._dataset.score_answer(answer, self._entries[problem.id])) >= 1.0
        except Exception as error:
            return Grade(False, False, asked, answer, error=f"{type(error).__name__}: {error}")
        return Grade(correct, correct and asked, asked, answer)


def gym_task(name: str, *, validation: int) -> GymTask:
    """The task of generator ``name`` at its default difficulty.

    Raises:
        UserError: the extra is not installed, or there is no such generator.
    """
    try:
        import reasoning_gym
        from reasoning_gym.factory import DATASETS
    except ImportError:
        raise UserError(f"data.task = 'gym:{name}' needs reasoning-gym: pip install 'rlforge[tasks]'") from None
    if name not in DATASETS:
        raise UserError(f"data.task = 'gym:{name}': no such generator{nearest(name, DATASETS)}")
    entries: dict[str, Any] = {}
    made: dict[str, list[Problem]] = {}
    for split, size in SIZES.items():
        dataset = reasoning_gym.create_dataset(name, size=size, seed=SEEDS[split])
        made[split] = []
        for index in range(size):
            entry = dataset[index]
            problem = Problem(f"{name}-{split}-{index:04d}", entry["question"], str(entry["answer"]))
            entries[problem.id] = entry
            made[split].append(problem)
    splits = hold_out(made["train"], made["test"], validation=validation, task=f"gym:{name}")
    return GymTask(name, dataset, splits, entries)
