"""``python -m rlforge_cli.tasks.tiny_model OUT``: make the embedded model again, about four minutes on one core.

Writes a Hugging Face folder and ``made.json``: versions, SHA-256 of the weights, and greedy scores on validation.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
from importlib.metadata import version
from pathlib import Path

from rlforge_cli.tasks.arithmetic import Arithmetic
from rlforge_cli.tasks.base import problems_hash
from rlforge_cli.tasks.tiny_model.greedy import greedy_scores
from rlforge_cli.tasks.tiny_model.tokenizer import build_tokenizer
from rlforge_cli.tasks.tiny_model.warm_start import STAGES, warm_start


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m rlforge_cli.tasks.tiny_model", description=__doc__)
    parser.add_argument("out", type=Path, help="folder to write; made if need be")
    out = parser.parse_args().out
    from transformers.utils import logging

    logging.disable_progress_bar()
    tokenizer = build_tokenizer()
    model = warm_start(report=_report)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    problems = Arithmetic().problems("validation")
    made = {
        "command": "python -m rlforge_cli.tasks.tiny_model OUT",
        "versions": {name: version(name) for name in ("torch", "transformers", "tokenizers")},
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, 1 thread",
        "parameters": model.num_parameters(),
        "weights_sha256": hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest(),
        "validation_hash": problems_hash(problems),
        "validation_greedy": greedy_scores(model, tokenizer, problems),
    }
    text = json.dumps(made, indent=2)
    (out / "made.json").write_text(text + "\n", encoding="utf-8")
    print(text)


def _report(stage: int, step: int, loss: float) -> None:
    if (step + 1) % 60 == 0:
        print(f"stage {stage + 1} of {len(STAGES)}, step {step + 1}: loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
