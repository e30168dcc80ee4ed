"""Seconds a step of TRL's GRPOTrainer on the embedded model: one JSON object. Started by step_time.py."""

from __future__ import annotations

import json
import sys
import time


def main() -> None:
    steps, threads = int(sys.argv[1]), int(sys.argv[2])
    import torch
    from datasets import Dataset
    from transformers import AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from rlforge_cli.pretrained import EMBEDDED, model_source
    from rlforge_cli.tasks.arithmetic import Arithmetic

    torch.set_num_threads(threads)
    task = Arithmetic()
    problems = task.problems("train")
    answers = {problem.prompt: problem for problem in problems}
    data = Dataset.from_list([{"prompt": [{"role": "user", "content": problem.prompt}]} for problem in problems[:2000]])

    def reward(prompts: list, completions: list, **_: object) -> list[float]:
        values = []
        for prompt, completion in zip(prompts, completions, strict=True):
            grade = task.grade(completion[0]["content"], answers[prompt[-1]["content"]])
            values.append(1.0 * grade.correct + 0.2 * grade.format_ok)
        return values

    seconds: list[float] = []
    tokens: list[float] = []

    class Clock(TrainerCallback):
        def on_step_begin(self, *_: object, **__: object) -> None:
            self.start = time.perf_counter()

        def on_step_end(self, *_: object, **__: object) -> None:
            seconds.append(time.perf_counter() - self.start)

        def on_log(self, args: object, state: object, control: object, logs: dict, **_: object) -> None:
            if "completions/mean_length" in logs:
                tokens.append(64 * logs["completions/mean_length"])

    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder, per_device_train_batch_size=64, gradient_accumulation_steps=1, num_generations=8,
            max_completion_length=64, max_steps=steps, learning_rate=5e-5, warmup_steps=5,
            lr_scheduler_type="constant_with_warmup", adam_beta2=0.98, beta=0.0, epsilon=0.2, epsilon_high=0.28,
            temperature=1.0, loss_type="grpo", bf16=False, use_cpu=True, gradient_checkpointing=False, logging_steps=1,
            report_to=[], save_strategy="no", disable_tqdm=True, model_init_kwargs={"dtype": "float32"}, seed=0,
        )  # fmt: skip
        source = model_source(EMBEDDED)
        trainer = GRPOTrainer(
            model=source, args=config, train_dataset=data, callbacks=[Clock()], reward_funcs=reward,
            processing_class=AutoTokenizer.from_pretrained(source, padding_side="left"),
        )  # fmt: skip
        sys.stdout, real = sys.stderr, sys.stdout
        trainer.train()
        sys.stdout = real
    print(json.dumps({"seconds": seconds, "tokens": sum(tokens)}))


if __name__ == "__main__":
    main()
