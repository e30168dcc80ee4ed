"""The configuration of an experiment: one frozen record a section, each field with its type, default and meaning.

Where values come from (presets, ``--set``) is :mod:`rlforge_cli.settings`; what must hold between fields is
:func:`check`.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from rlforge_cli.errors import UserError


def doc(text: str, **limits: Any) -> Meta:
    return Meta(description=text, **limits)


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of the TOML file; never changed in place."""


class RunConfig(Section, frozen=True):
    name: Annotated[str, doc("a label shown beside the run's id")] = ""
    note: Annotated[str, doc("why this run exists; free text")] = ""


class ModelConfig(Section, frozen=True):
    path: Annotated[str, doc("a model folder, a hub name, or 'tiny-arith' (embedded)")] = "tiny-arith"
    adaptation: Annotated[
        Literal["full", "lora", "qlora"], doc("train all weights, a LoRA adapter, or an adapter on a 4-bit base")
    ] = "full"
    dtype: Annotated[
        Literal["float32", "bfloat16"],
        doc("of the weights; under bfloat16 the optimizer keeps float32 masters, for a bf16 update loses small steps"),
    ] = "float32"
    device: Annotated[str, doc("auto, cpu, cuda or cuda:N")] = "auto"
    reference: Annotated[bool, doc("keep a frozen copy of the start so that kl_ref is logged even at kl_coef 0")] = True
    reference_share: Annotated[
        float, doc("share of a step's completions on which kl_ref is measured while kl_coef is 0", gt=0, le=1)
    ] = 1.0
    gradient_checkpointing: Annotated[bool, doc("recompute activations: less memory, more time")] = False
    lora_rank: Annotated[int, doc("rank of the adapter", ge=1)] = 16
    lora_alpha: Annotated[int, doc("scale of the adapter is alpha / rank", ge=1)] = 32
    lora_dropout: Annotated[float, doc("dropout before the adapter", ge=0, lt=1)] = 0.0
    lora_targets: Annotated[
        tuple[str, ...], doc("modules that get an adapter; default: attention and MLP projections")
    ] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class DataConfig(Section, frozen=True):
    task: Annotated[str, doc("arithmetic, gsm8k, jsonl, or gym:NAME (a reasoning-gym generator)")] = "arithmetic"
    path: Annotated[str, doc("a local folder (gsm8k) or folder/file (jsonl) instead of the hub")] = ""
    validation: Annotated[int, doc("problems held out of train; checkpoints are chosen on them", ge=1)] = 200
    difficulty: Annotated[str, doc("train only on problems with a pass rate in this band, such as 0.1-0.9")] = ""
    difficulty_from: Annotated[str, doc("where pass rates come from: an eval's .jsonl on the train split")] = ""


class PromptConfig(Section, frozen=True):
    system: Annotated[str, doc("system message; empty = none")] = ""
    prefix: Annotated[str, doc("text before the problem")] = ""
    suffix: Annotated[str, doc("text after the problem")] = ""
    thinking: Annotated[bool, doc("let a thinking model think (Qwen3's enable_thinking)")] = False


class RolloutConfig(Section, frozen=True):
    engine: Annotated[Literal["hf", "vllm"], doc("hf: on the policy's own weights; vllm: beside the policy")] = "hf"
    group_size: Annotated[int, doc("G: completions a prompt; unsure -> 8, 4 is the floor")] = 8
    prompts: Annotated[int, doc("P: prompts trained a step", ge=1)] = 8
    completions: Annotated[int, doc("completions a step; when given, prompts = completions / group_size", ge=0)] = 0
    max_tokens: Annotated[int, doc("longest completion, in tokens", ge=1)] = 512
    max_prompt_tokens: Annotated[int, doc("longest prompt, in tokens; longer ones are an error", ge=1)] = 512
    temperature: Annotated[float, doc("of sampling; divides the logits", gt=0)] = 1.0
    top_p: Annotated[float, doc("nucleus sampling; 1 = off", gt=0, le=1)] = 1.0
    top_k: Annotated[int, doc("keep the k likeliest tokens; 0 = off", ge=0)] = 0
    oversample: Annotated[
        float,
        doc(
            "dynamic sampling: sample ceil(oversample x P) groups, train the first P with spread; 0 = off", ge=0, le=100
        ),
    ] = 0.0
    max_rounds: Annotated[
        int, doc("dynamic sampling: rounds a step, refilling while fewer than P live; 1 = no refill", ge=1)
    ] = 1
    stop: Annotated[tuple[str, ...], doc("texts that end a completion")] = ("\nQuestion:", "\nProblem:")
    memory_share: Annotated[
        float, doc("vllm: share of the GPU (or of what this process may use) for its weights and KV cache", gt=0, lt=1)
    ] = 0.3
    sleep: Annotated[
        bool, doc("vllm: give the engine's memory back while the policy trains, unless half of the device stays free")
    ] = True
    eager: Annotated[bool, doc("vllm: capture no CUDA graphs; starts sooner, decodes slower")] = False
    compile: Annotated[bool, doc("vllm: compile the model; starts 40 s later, decodes up to a tenth faster")] = False
    logprob_share: Annotated[
        float, doc("vllm: share of the completions that report log-probabilities, for kl_sampling", ge=0, le=1)
    ] = 0.125


class RewardConfig(Section, frozen=True):
    correctness: Annotated[float, doc("for a right answer")] = 1.0
    format: Annotated[float, doc("for following the asked format exactly")] = 0.2
    truncation: Annotated[float, doc("added when the completion ran into max_tokens", le=0)] = -0.5
    length_coef: Annotated[float, doc("length penalty at max_tokens; linear from length_threshold; 0 = off", ge=0)] = (
        0.0
    )
    length_threshold: Annotated[int, doc("tokens from which the length penalty grows", ge=0)] = 0
    functions: Annotated[tuple[str, ...], doc("own rewards, module:function or file.py:function")] = ()


class GRPOConfig(Section, frozen=True):
    advantage_std: Annotated[Literal["population", "sample", "none"], doc("what divides a group's centred rewards")] = (
        "population"
    )
    clip_low: Annotated[float, doc("the ratio is clipped at 1 - clip_low", ge=0, lt=1)] = 0.2
    clip_high: Annotated[float, doc("the ratio is clipped at 1 + clip_high", ge=0)] = 0.28
    kl_coef: Annotated[float, doc("beta: weight of the KL to the reference in the loss", ge=0)] = 0.0
    kl_estimator: Annotated[Literal["k1", "k2", "k3"], doc("estimator of that KL; k3 is unbiased and positive")] = "k3"
    aggregation: Annotated[
        Literal["sequence", "token", "constant"],
        doc("sequence: every completion equal; token: every token equal; constant: sum / (completions x max_tokens)"),
    ] = "sequence"
    entropy_coef: Annotated[float, doc("weight of the entropy bonus", ge=0)] = 0.0
    updates: Annotated[int, doc("optimizer updates a rollout; each takes whole groups", ge=1)] = 1
    mask_truncated: Annotated[bool, doc("leave truncated completions out of the loss")] = False
    sampling_correction: Annotated[
        Literal["off", "token-truncate", "token-mask", "sequence-truncate", "sequence-mask"],
        doc(
            "importance weight for an engine that differs from the trainer, a token or a sequence: cut at "
            "sampling_cap, or 0 outside [1 / cap, cap]; the hf engine needs none"
        ),
    ] = "off"
    sampling_cap: Annotated[float, doc("largest importance weight of sampling_correction", gt=1)] = 2.0


class OptimizerConfig(Section, frozen=True):
    lr: Annotated[float, doc("AdamW's learning rate", gt=0)] = 1e-6
    beta1: Annotated[float, doc("AdamW's first decay", ge=0, lt=1)] = 0.9
    beta2: Annotated[float, doc("AdamW's second decay", ge=0, lt=1)] = 0.98
    eps: Annotated[float, doc("AdamW's epsilon", gt=0)] = 1e-8
    weight_decay: Annotated[float, doc("AdamW's decoupled decay", ge=0)] = 0.0
    warmup_steps: Annotated[int, doc("updates over which lr rises linearly", ge=0)] = 0
    schedule: Annotated[
        Literal["constant", "linear", "cosine"], doc("of lr after warm-up, over the planned updates")
    ] = "constant"
    max_grad_norm: Annotated[float, doc("clip the gradient's norm; 0 = off", ge=0)] = 1.0
    states: Annotated[
        Literal["float32", "paged-8bit"],
        doc("AdamW's moments; paged-8bit (bitsandbytes, CUDA) takes a quarter, and host memory holds the excess"),
    ] = "float32"


class TrainConfig(Section, frozen=True):
    steps: Annotated[int, doc("rollout-and-update steps", ge=1)] = 200
    max_completions: Annotated[int, doc("stop before generating more than this many; 0 = no limit", ge=0)] = 0
    seed: Annotated[int, doc("of data order and sampling", ge=0)] = 0
    micro_batch_size: Annotated[int, doc("completions a forward pass; never changes the result", ge=1)] = 2
    offload: Annotated[bool, doc("vllm: masters, moments and the reference wait in host memory while it generates")] = (
        False
    )
    max_skipped: Annotated[int, doc("stop after this many steps in a row without an update", ge=1)] = 5
    stop_on_collapse: Annotated[
        bool, doc("end a run that doctor would call lost: NaN, collapse, KL runaway, no signal")
    ] = False


class CheckpointConfig(Section, frozen=True):
    every: Annotated[int, doc("steps between checkpoints; 0 = only at the end", ge=0)] = 50
    keep: Annotated[int, doc("newest checkpoints kept; -1 = all")] = 2


class EvalConfig(Section, frozen=True):
    every: Annotated[int, doc("steps between validations; 0 = only at the end", ge=0)] = 25
    problems: Annotated[int, doc("validation problems a validation; 0 = all", ge=0)] = 200
    batch_size: Annotated[int, doc("completions decoded together", ge=1)] = 256
    max_tokens: Annotated[int, doc("longest completion at evaluation; 0 = as in training", ge=0)] = 0
    k: Annotated[tuple[int, ...], doc("k of pass@k, when several samples a problem are drawn")] = (1,)
    checkpoint: Annotated[Literal["best", "final"], doc("what `rlforge eval RUN` scores; best = on validation")] = (
        "best"
    )


class LogConfig(Section, frozen=True):
    rollouts_every: Annotated[int, doc("steps between samples of completions in rollouts.jsonl; 0 = never", ge=0)] = 10
    rollouts: Annotated[int, doc("groups in such a sample", ge=1)] = 2
    sinks: Annotated[tuple[str, ...], doc("also log to: tensorboard, wandb, trackio")] = ()


class Config(Section, frozen=True):
    """Everything that determines a run. Example: ``Config(train=TrainConfig(steps=20))``."""

    run: RunConfig = RunConfig()
    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    prompt: PromptConfig = PromptConfig()
    rollout: RolloutConfig = RolloutConfig()
    reward: RewardConfig = RewardConfig()
    grpo: GRPOConfig = GRPOConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    train: TrainConfig = TrainConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    eval: EvalConfig = EvalConfig()
    log: LogConfig = LogConfig()


def groups_per_round(config: Config) -> int:
    """Groups sampled in one round of a step: P, or ceil(oversample x P) under dynamic sampling."""
    rollout = config.rollout
    # the product is rounded first: 1.1 * 10 is 11.000000000000002 in floats
    return math.ceil(round(rollout.oversample * rollout.prompts, 9)) if rollout.oversample else rollout.prompts


def completions_per_step(config: Config) -> int:
    """Completions generated by a step whose first round suffices."""
    return groups_per_round(config) * config.rollout.group_size


def resolve(config: Config) -> Config:
    """``config`` with derived values filled in, after :func:`check`."""
    check(config)
    rollout = config.rollout
    if rollout.completions:
        rollout = msgspec.structs.replace(rollout, prompts=rollout.completions // rollout.group_size)
        config = msgspec.structs.replace(config, rollout=rollout)
        check(config)
    return config


def check(config: Config) -> None:
    """Refuse what cannot be run, before any model is loaded.

    Raises:
        UserError: naming the keys, their values, and valid ones.
    """
    rollout, grpo, total = config.rollout, config.grpo, config.rollout.completions
    if rollout.group_size < 2:
        raise UserError(
            f"rollout.group_size (G) is {rollout.group_size}: a group needs at least 2 completions to have a baseline; "
            "use --set G=8"
        )
    if total and total % rollout.group_size:
        valid = [size for size in range(2, total + 1) if total % size == 0]
        raise UserError(
            f"rollout.completions = {total} is no multiple of rollout.group_size (G) = {rollout.group_size}; "
            f"valid G for {total}: {', '.join(map(str, valid))}"
        )
    if 0 < rollout.oversample < 1:
        raise UserError(f"rollout.oversample = {rollout.oversample:g}: use 0 (off) or at least 1, such as 1.5")
    if rollout.max_rounds > 1 and not rollout.oversample:
        raise UserError("rollout.max_rounds needs dynamic sampling: add --set oversample=1.5")
    if bool(config.data.difficulty) != bool(config.data.difficulty_from):
        raise UserError(
            "data.difficulty (a band such as 0.1-0.9) and data.difficulty_from (the .jsonl of `rlforge eval RUN "
            "--split train --samples 8`) go together: set both"
        )
    if grpo.sampling_correction != "off" and (rollout.top_p < 1 or rollout.top_k):
        cut = f"rollout.top_p = {rollout.top_p:g}" if rollout.top_p < 1 else f"rollout.top_k = {rollout.top_k}"
        raise UserError(
            f"grpo.sampling_correction = {grpo.sampling_correction!r} with {cut}: the engine renormalises over the "
            "tokens it keeps, so the ratio to it is not 1 even for an unchanged policy; use --set top_p=1 --set "
            "top_k=0, or --set sampling_correction=off"
        )
    if grpo.sampling_correction != "off" and rollout.engine == "vllm" and rollout.logprob_share < 1:
        raise UserError(
            f"grpo.sampling_correction = {grpo.sampling_correction!r} with rollout.logprob_share = "
            f"{rollout.logprob_share:g}: a completion without log-probabilities cannot be corrected; use --set "
            "logprob_share=1, or --set sampling_correction=off"
        )
    prompts = total // rollout.group_size if total else rollout.prompts
    if prompts % grpo.updates:
        valid = [n for n in range(1, prompts + 1) if prompts % n == 0]
        raise UserError(
            f"grpo.updates = {grpo.updates} does not divide the {prompts} groups of a step (an update takes whole "
            f"groups); valid: {', '.join(map(str, valid))}"
        )
    if config.checkpoint.keep == 0 or config.checkpoint.keep < -1:
        raise UserError(f"checkpoint.keep = {config.checkpoint.keep}: use 1 or more, or -1 to keep all")
    if bad := [k for k in config.eval.k if k < 1]:
        raise UserError(f"eval.k holds {bad[0]}: every k of pass@k is at least 1")
    if rollout.engine == "hf" and config.model.adaptation == "qlora" and config.model.device == "cpu":
        raise UserError("model.adaptation = 'qlora' needs a CUDA device; on a CPU use --set model.adaptation=lora")
    if config.optimizer.states != "float32" and config.model.device == "cpu":
        raise UserError(
            "optimizer.states = 'paged-8bit' needs a CUDA device; on a CPU use --set optimizer.states=float32"
        )
    if unknown := [sink for sink in config.log.sinks if sink not in ("tensorboard", "wandb", "trackio")]:
        raise UserError(f"log.sinks holds {unknown[0]!r}; valid: tensorboard, wandb, trackio")
