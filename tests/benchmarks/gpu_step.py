"""rlforge, with vLLM in its process or with its own engine, against TRL with vLLM in its: one GPU, one model, 8 prompts
x 8 completions.

    python tests/benchmarks/gpu_step.py --model FOLDER --data GSM8K_FOLDER [--steps 8] [--only rlforge-16,trl-16]

Each program runs alone, one after the other. The table has the time from the start of the process to the end of the
first step, the median step (the first two left out), the largest use of the device that nvidia-smi saw, and each
ratio to TRL at the same micro-batch. Below it: what a start and a step of rlforge are made of, and the least that a
step's arithmetic and memory traffic would take on an H200. A model with random weights makes the programs' token counts
equal. Every program starts without compiled kernels, as on a new machine; with ``--caches FOLDER`` each keeps its own
there, so a second call with the same folder shows starts that find them.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SPREAD = HERE.parent / "gpu" / "spread.py"
SHARE = 0.3
MATRIX_RATE, MEMORY_RATE = 790e12, 4.8e12
"""FLOP/s in bfloat16 and bytes/s of an H200."""
PROGRAMS = {
    "rlforge-16-offload": (16, ["train.offload=true"]),
    "rlforge-16": (16, []),
    "rlforge-16-hf": (16, ["rollout.engine=hf"]),
    "trl-16": (16, None),
    "rlforge-64": (64, []),
    "trl-64": (64, None),
}
"""Micro-batch, and rlforge's further settings (None: TRL)."""
COMPILED = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "VLLM_CACHE_ROOT", "CUDA_CACHE_PATH")
"""Where the libraries keep compiled kernels."""
OWN_PARTS = ("rollout", "train", "sync")


def own_sets(options: argparse.Namespace, micro_batch: int, more: list[str]) -> list[str]:
    """As TRL's: no checkpointing, no reference model, an engine for a step's sequences, rewards that differ."""
    return [
        f"model.path={options.model}", f"data.path={options.data}", f"max_tokens={options.max_tokens}",
        f"micro_batch={micro_batch}", "gradient_checkpointing=false", "model.reference=false",
        f"memory_share={SHARE}", "eval.batch_size=64", f"reward.functions={SPREAD}:spread", *more, *options.set,
    ]  # fmt: skip


def device() -> str:
    """What nvidia-smi calls the first GPU that torch sees."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]


def measure(script: str, order: dict, *, limit: float, caches: str | None = None) -> dict:
    """The lines a program printed, and the largest use of the device in MiB; it is ended after ``limit`` seconds."""
    environment = os.environ | {"PYTHONPATH": f"{HERE.parents[1]}:{os.environ.get('PYTHONPATH', '')}"}
    with (
        tempfile.TemporaryFile("w+") as used, tempfile.TemporaryFile("w+") as errors,
        tempfile.TemporaryDirectory() as fresh,
    ):  # fmt: skip
        environment |= {name: f"{caches or fresh}/{name.lower()}" for name in COMPILED}
        watch = subprocess.Popen(
            ["nvidia-smi", "-i", device(), "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-lms", "50"],
            stdout=used,
        )
        order["began"] = time.time()
        program = subprocess.Popen(
            [sys.executable, str(HERE / script), json.dumps(order)], stdout=subprocess.PIPE, stderr=errors, text=True,
            env=environment, start_new_session=True,
        )  # fmt: skip
        try:
            printed, _ = program.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(program.pid, signal.SIGKILL)
            printed, _ = program.communicate()
        watch.terminate()
        watch.wait()
        used.seek(0)
        errors.seek(0)
        lines = [json.loads(line) for line in printed.splitlines() if line.startswith('{"since_start"')]
        peak = max((int(line) for line in used.read().split() if line.isdigit()), default=0)
        return {"lines": lines, "peak_mib": peak, "rc": program.returncode, "stderr": errors.read()[-3000:]}


def summary(run: dict) -> dict | None:
    """None for a run that made fewer than three steps."""
    steps = [line for line in run["lines"] if line["event"] == "step"]
    if len(steps) < 3:
        return None
    steady = steps[2:]
    parts, start = (
        next((line["parts"] for line in run["lines"] if line["event"] == event and "parts" in line), {})
        for event in ("parts", "ready")
    )
    made = {key: statistics.median(step[key] for step in steady) for key in OWN_PARTS if key in steady[0]}
    return made | {
        "first": steps[0]["since_start"], "peak_gib": run["peak_mib"] / 1024, "parts": parts,
        "start": start | {"first step": steps[0]["total"]} if start else {},
        "step": statistics.median(step["total"] for step in steady),
        "allocated_gib": max(step["allocated_gib"] for step in steps),
    }  # fmt: skip


def floor(model: str, *, max_tokens: int, rows: int = 64, prompt: int = 120) -> tuple[float, float]:
    """Seconds of an H200: the update's matrix products at full rate, and decoding's reads of weights and cache."""
    from rlforge_cli.architecture import architecture_of

    shape = architecture_of(model)
    assert shape is not None, "no shape of this model is known"
    matrices = 6 * shape.parameters * rows * (prompt + max_tokens)
    cached = rows * (prompt + max_tokens / 2) * 2 * shape.layers * shape.kv_heads * shape.head_dim * 2
    return matrices / MATRIX_RATE, max_tokens * (2 * shape.parameters + cached) / MEMORY_RATE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a Qwen3-0.6B folder")
    parser.add_argument("--data", required=True, help="a folder with GSM8K's train.jsonl and test.jsonl")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=512)
    parser.add_argument("--limit", type=float, default=300, help="seconds for each program")
    parser.add_argument("--caches", help="where each program keeps compiled kernels for its next start")
    parser.add_argument("--only", default=",".join(PROGRAMS), help="which programs, in this order")
    parser.add_argument("--set", action="append", default=[], help="further settings of rlforge, key=value")
    options = parser.parse_args()
    made: dict[str, dict] = {}
    for name in options.only.split(","):
        micro_batch, more = PROGRAMS[name]
        order: dict = {"steps": options.steps}
        if more is None:
            order |= {
                "model": options.model, "data": f"{options.data}/test.jsonl", "micro_batch": micro_batch,
                "max_tokens": options.max_tokens, "memory_share": SHARE,
            }  # fmt: skip
        else:
            order |= {"preset": "qwen3-0.6b-full", "sets": own_sets(options, micro_batch, more)}
        run = measure("gpu_peer_step.py" if more is None else "gpu_own_step.py", order, limit=options.limit,
                      caches=options.caches and f"{options.caches}/{name}")  # fmt: skip
        found = summary(run)
        print(json.dumps({"program": name, "rc": run["rc"], "result": found}), flush=True)
        if found is None:
            print(f"{name} made too few steps:\n{run['stderr']}", file=sys.stderr, flush=True)
        else:
            made[name] = found
    show(made, options)


def show(made: dict[str, dict], options: argparse.Namespace) -> None:
    from rlforge_cli import output

    def ratio(name: str, found: dict, value: str) -> str:
        peer = made.get(f"trl-{PROGRAMS[name][0]}")
        return f"{found[value] / peer[value]:.2f}" if peer else "-"

    rows = [
        [
            name, f"{found['step']:.2f}", ratio(name, found, "step"),
            *(f"{found[part]:.2f}" if part in found else "-" for part in OWN_PARTS),
            f"{found['first']:.0f}", ratio(name, found, "first"), f"{found['peak_gib']:.1f}",
            ratio(name, found, "peak_gib"),
        ]
        for name, found in made.items()
    ]  # fmt: skip
    columns = ["program", "s/step", "/ TRL", "rollout", "update", "sync", "first", "/ TRL", "GiB", "/ TRL"]
    title = f"8 x 8 x {options.max_tokens} tokens, median of {options.steps - 2} steps"
    output.stdout().print(output.table(columns, rows, title=title, right=tuple(range(1, 10))))
    update, decode = floor(options.model, max_tokens=options.max_tokens)
    least = {f"least: update {update:.2f} + decoding {decode:.2f}": update + decode}
    show_parts("to the end of the first step", {name: found["start"] for name, found in made.items()})
    show_parts("a step", {name: found["parts"] | least for name, found in made.items() if found["parts"]})


def show_parts(title: str, tables: dict[str, dict[str, float]]) -> None:
    from rlforge_cli import output

    tables = {name: table for name, table in tables.items() if table}
    names = dict.fromkeys(part for table in tables.values() for part in table)
    rows = [[part, *(f"{table[part]:.3f}" if part in table else "-" for table in tables.values())] for part in names]
    columns = ["part", *tables]
    output.stdout().print(output.table(columns, rows, title=f"seconds: {title}", right=tuple(range(1, len(columns)))))


if __name__ == "__main__":
    main()
