"""Steps of TRL's GRPOTrainer with its colocated vLLM on one GPU: JSON lines. Started by gpu_step.py."""

from __future__ import annotations

import json
import sys
import tempfile
import time


def main() -> None:
    order = json.loads(sys.argv[1])
    began = order["began"]
    import torch
    from datasets import Dataset
    from transformers import AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    def emit(**values: object) -> None:
        print(json.dumps({"since_start": time.time() - began} | values), flush=True)

    with open(order["data"], encoding="utf-8") as file:
        questions = [json.loads(line)["question"] for line in file][:200]
    data = Dataset.from_list([{"prompt": [{"role": "user", "content": question}]} for question in questions])

    class Clock(TrainerCallback):
        def on_step_begin(self, *_: object, **__: object) -> None:
            torch.cuda.synchronize()
            self.start = time.perf_counter()

        def on_step_end(self, *_: object, **__: object) -> None:
            torch.cuda.synchronize()
            emit(
                event="step", total=time.perf_counter() - self.start,
                allocated_gib=torch.cuda.max_memory_allocated() / 2**30,
            )  # fmt: skip

    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder, per_device_train_batch_size=order["micro_batch"],
            gradient_accumulation_steps=64 // order["micro_batch"], num_generations=8,
            max_completion_length=order["max_tokens"], max_steps=order["steps"], learning_rate=1e-6, beta=0.0,
            temperature=1.0, loss_type="grpo", bf16=True, gradient_checkpointing=False, logging_steps=1, report_to=[],
            save_strategy="no", disable_tqdm=True, model_init_kwargs={"dtype": "bfloat16"}, use_vllm=True,
            vllm_mode="colocate", vllm_gpu_memory_utilization=order["memory_share"], vllm_enable_sleep_mode=True,
            vllm_max_model_length=1024,
        )  # fmt: skip
        trainer = GRPOTrainer(
            model=order["model"], args=config, train_dataset=data, callbacks=[Clock()],
            # rewards with spread, so that every group is trained on
            reward_funcs=lambda completions, **_: [len(str(c)) % 7 / 7 for c in completions],
            processing_class=AutoTokenizer.from_pretrained(order["model"], padding_side="left"),
        )  # fmt: skip
        emit(event="ready")
        trainer.train()


if __name__ == "__main__":
    main()
