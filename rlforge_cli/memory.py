"""Peak memory and time of a run, predicted from the configuration and the model's shape: no GPU, no weights.

What lies in memory throughout (weights, masters, moments, the reference, the in-process engine's cache) and what
comes and goes: gradients, activations and logits while training, the vLLM engine while generating. With sleep mode
the two meet only on a device that has plenty for both. The assumptions are in :data:`ASSUMPTIONS`; prompts and
completions count at their limits.
"""

from __future__ import annotations

import shutil
import subprocess

import msgspec

from rlforge_cli.architecture import KNOWN, Architecture, architecture_of
from rlforge_cli.config import Config, completions_per_step, groups_per_round

GIB = 2**30
REFERENCE_GIB = 32.0
"""The reference experiment's card, assumed where there is no other."""
CARDS = (24.0, 32.0, 80.0)
NF4_BYTES = 0.5 + 1 / 64 + 4 / (64 * 256)
"""Of a 4-bit weight: half a byte, an 8-bit scale for each 64, a float32 for each 256 of those (arXiv 2305.14314)."""
CHUNK_ELEMENTS = 1 << 28
"""As rlforge_cli.grpo.logprobs has it for the fused head."""
LOGIT_BYTES = 2
"""Of a logit in the fused head: 16 bits, and its gradient takes its place."""
HEAD_GRADIENT_BYTES = 4 + 2
"""Of a weight of the head: the float32 sum over the chunks, and the gradient made of it."""
MOMENT_BYTES = {"float32": 8.0, "paged-8bit": 2.0 + 2 * 4 / 256}
"""Of both moments of a weight; 8-bit ones have a float32 scale for each 256."""
CONTEXT_GIB = 0.6
"""CUDA context and libraries of a process."""
ASLEEP_GIB = 1.2
"""What a sleeping vLLM keeps: its context, graphs and buffers."""
SPARE_SLOTS = 32
"""Of a sequence in vLLM's cache: its last block may be cut, and one is reserved ahead."""
GRAPHS_GIB = 0.5
"""CUDA graphs of the engine, outside its memory share."""
PROFILE_GIB = 0.6
"""What vLLM sets aside inside its share for its own activations."""
PLENTY = 0.5
"""Share of the device. While an update and the engine take no more of it together, the engine does not sleep and torch
keeps what an update has freed, for giving memory back and taking it again costs time."""
SLACK = 0.05
"""Fragmentation of the allocator, of all that is allocated by the trainer."""
REFERENCE_SECONDS = 45.0
"""A step of qwen3-0.6b-full on the reference experiment's card."""
POSITION_SECONDS = 0.005
"""A decoding position takes at least this, however small the model is."""
QLORA_SLOWER = 1.4
"""4-bit layers are unpacked at every use; brings qwen3-8b-qlora to the reference's three minutes a step."""
ASSUMPTIONS = (
    "prompts and completions at their limits, one micro-batch in flight, logits a chunk of 512 MiB at a time",
    "bfloat16 weights have float32 masters and gradients; an adapter is float32; nf4 with double quantisation",
    f"CUDA context {CONTEXT_GIB} GiB, a sleeping vLLM {ASLEEP_GIB} GiB, its graphs {GRAPHS_GIB} GiB, slack 5 %;"
    " vLLM's share holds its own copy of the weights (4-bit under qlora); awake where half the card is free",
    "time scales with the arithmetic of a step, from the reference experiment's 45 s for qwen3-0.6b-full on a 32 GB "
    "card; 4-bit layers 1.4 times slower, and no position under 5 ms",
)


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """GiB by part, and the peak: the larger of the two phases."""

    parts: dict[str, float]
    training_gib: float
    generating_gib: float
    peak_gib: float
    gpu_gib: float
    fits: bool
    """Into the card, and the engine's share holds its weights and at least one sequence."""
    cache_tokens: int
    """Tokens that the engine's key-value cache holds."""
    parameters: int
    trainable: int
    seconds_per_step: float


def trainable_parameters(config: Config, model: Architecture) -> int:
    if config.model.adaptation == "full":
        return model.parameters
    return model.lora(config.model.lora_rank, config.model.lora_targets)


def weight_bytes(config: Config, model: Architecture) -> float:
    """Of the policy's weights, without an adapter."""
    size = 4 if config.model.dtype == "float32" else 2
    if config.model.adaptation == "qlora":
        return model.linear * NF4_BYTES + (model.parameters - model.linear) * size
    return model.parameters * size


def adapter_bytes(config: Config, model: Architecture) -> float:
    return 0.0 if config.model.adaptation == "full" else 4.0 * trainable_parameters(config, model)


def activation_bytes(config: Config, model: Architecture) -> float:
    """Kept for the backward pass of one micro-batch: of every layer, or (checkpointing) inputs and one layer."""
    size = 4 if config.model.dtype == "float32" else 2
    tokens = config.train.micro_batch_size * (config.rollout.max_prompt_tokens + config.rollout.max_tokens)
    hidden, wide = model.hidden, model.intermediate
    query, key = model.heads * model.head_dim, model.kv_heads * model.head_dim
    # what autograd keeps: residuals and normed inputs; queries and keys before norm and after rotation; values and
    # what attention mixed; gate, up and their product
    layer = size * (4 * hidden + 2 * query + 2 * key + key + query + 3 * wide)
    if config.model.adaptation != "full":  # an adapter's inputs are cast to its float32
        layer += 4 * sum(a for name, (a, _) in model.shapes.items() if name in config.model.lora_targets)
    if config.model.gradient_checkpointing:  # every layer's input; one layer again, with gradients of its widest parts
        return tokens * (model.layers * size * hidden + layer + size * (3 * wide + hidden))
    return tokens * model.layers * layer


def head_bytes(config: Config, model: Architecture) -> float:
    """The logits of a chunk, and the head's own gradient where it is trained."""
    rows = config.train.micro_batch_size * config.rollout.max_tokens
    chunk = min(rows * model.vocab, max(CHUNK_ELEMENTS, model.vocab)) * LOGIT_BYTES
    return chunk + (model.vocab * model.hidden * HEAD_GRADIENT_BYTES if config.model.adaptation == "full" else 0)


def cache_bytes(config: Config, model: Architecture) -> float:
    """The in-process engine's key-value cache, which holds the larger of a rollout and a validation batch."""
    rollout = groups_per_round(config) * config.rollout.group_size
    validation = config.eval.problems or config.eval.batch_size
    rows = min(config.eval.batch_size, max(rollout, validation))
    slots = config.rollout.max_prompt_tokens + max(config.rollout.max_tokens, config.eval.max_tokens)
    return token_bytes(config, model) * rows * slots


def engine_sequences(config: Config) -> int:
    """Sequences that vLLM decodes together: a step's completions or a validation batch."""
    return max(completions_per_step(config), config.eval.batch_size)


def engine_length(config: Config) -> int:
    """Tokens of vLLM's longest sequence."""
    return config.rollout.max_prompt_tokens + max(config.rollout.max_tokens, config.eval.max_tokens)


def cache_that_fills(config: Config, model: Architecture) -> float:
    """Bytes of keys and values with which none of vLLM's sequences ever waits for another; more is never used."""
    return engine_sequences(config) * (engine_length(config) + SPARE_SLOTS) * token_bytes(config, model)


def cache_room(config: Config, model: Architecture, *, share_gib: float) -> float:
    """Bytes that vLLM's weights and activations leave of its share."""
    weights = weight_bytes(config, model) + adapter_bytes(config, model)
    return max(0.0, (share_gib - PROFILE_GIB) * GIB - weights)


def token_bytes(config: Config, model: Architecture) -> float:
    """Keys and values of one token."""
    return 2 * model.layers * model.kv_heads * model.head_dim * (4 if config.model.dtype == "float32" else 2)


def predict(config: Config, model: Architecture, *, gpu_gib: float = REFERENCE_GIB) -> Prediction:
    """Peak memory in GiB by part, and seconds a step, on a card of ``gpu_gib``."""
    trained = trainable_parameters(config, model)
    masters = config.model.adaptation == "full" and config.model.dtype == "bfloat16"
    vllm = config.rollout.engine == "vllm"
    reference = weight_bytes(config, model) if config.model.adaptation == "full" and config.model.reference else 0.0
    lasting = {
        "weights": weight_bytes(config, model) + adapter_bytes(config, model),
        "masters": 4.0 * trained if masters else 0.0,
        "optimizer": MOMENT_BYTES[config.optimizer.states] * trained,
        "reference": reference,
    }
    training = {
        "gradients": 4.0 * trained,
        "activations": activation_bytes(config, model),
        "logits": head_bytes(config, model),
    }
    longest = config.rollout.max_prompt_tokens + config.rollout.max_tokens
    if vllm:
        share = gpu_gib * config.rollout.memory_share
        room = cache_room(config, model, share_gib=share)
        unused = max(0.0, room - cache_that_fills(config, model))
        room -= unused
        engine = share - unused / GIB + GRAPHS_GIB
    else:
        room = cache_bytes(config, model)
        engine = room / GIB
    cache_tokens = int(room / token_bytes(config, model))
    base = sum(lasting.values()) / GIB * (1 + SLACK) + CONTEXT_GIB
    busy = sum(training.values()) / GIB * (1 + SLACK)
    resting = (ASLEEP_GIB if config.rollout.sleep else engine) if vllm else engine
    parked = lasting["masters"] + lasting["optimizer"] + lasting["reference"] if config.train.offload and vllm else 0.0
    training_gib, generating_gib = base + busy + resting, base - parked / GIB * (1 + SLACK) + engine
    if vllm and not parked and base + busy + engine <= PLENTY * gpu_gib:
        training_gib = generating_gib = base + busy + engine
    peak = max(training_gib, generating_gib)
    parts = {name: size / GIB for name, size in (lasting | training).items() if size}
    parts |= {"engine and KV cache": engine, "context": CONTEXT_GIB}
    return Prediction(
        parts=parts, training_gib=training_gib, generating_gib=generating_gib, peak_gib=peak, gpu_gib=gpu_gib,
        fits=peak <= gpu_gib and cache_tokens >= longest, cache_tokens=cache_tokens,
        parameters=model.parameters, trainable=trained,
        seconds_per_step=step_seconds(config, model),
    )  # fmt: skip


def step_work(config: Config, model: Architecture) -> float:
    """Arithmetic of a step in FLOP: 2 a parameter and token forward, and what the backward pass adds."""
    rollout = config.rollout
    length = rollout.max_prompt_tokens / 4 + rollout.max_tokens / 2  # usual lengths, not limits
    generated = groups_per_round(config) * rollout.group_size * length
    trained = rollout.prompts * rollout.group_size * length
    passes = 1 + (2 if config.model.adaptation == "full" else 1) + int(config.model.gradient_checkpointing)
    passes += int(config.model.reference or config.model.adaptation != "full")
    slower = QLORA_SLOWER if config.model.adaptation == "qlora" else 1.0
    return 2 * model.parameters * (generated + passes * trained) * slower


def step_seconds(config: Config, model: Architecture) -> float:
    """By arithmetic, from the control configuration's 45 s; but at least the latency of every decoding position."""
    from rlforge_cli.settings import load

    control = step_work(load("qwen3-0.6b-full"), KNOWN["Qwen/Qwen3-0.6B"])
    return max(REFERENCE_SECONDS * step_work(config, model) / control, config.rollout.max_tokens * POSITION_SECONDS)


def predict_for(config: Config, *, gpu_gib: float = REFERENCE_GIB) -> Prediction | None:
    """Of a configuration whose model's shape is known without its weights; else None."""
    model = architecture_of(config.model.path)
    return None if model is None else predict(config, model, gpu_gib=gpu_gib)


def which_fit(config: Config, model: Architecture) -> dict[float, bool]:
    """Whether the peak fits into common cards; a vLLM share grows with the card."""
    return {card: predict(config, model, gpu_gib=card).fits for card in CARDS}


def device_gib() -> tuple[float, str] | None:
    """Memory and name of the first NVIDIA device, or None; asks the driver, so that torch need not be loaded."""
    if shutil.which("nvidia-smi") is None:
        return None
    query = ["nvidia-smi", "--query-gpu=memory.total,name", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    size, _, name = done.stdout.partition("\n")[0].partition(",")
    return (float(size) / 1024, name.strip()) if done.returncode == 0 and size.strip().isdigit() else None
