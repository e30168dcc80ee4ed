"""Generation by vLLM in this process, beside the policy on the same device.

Full weights are pushed after every update; an adapter is pushed as an adapter, under a number that never repeats, and
is never merged into its base. While the policy trains the engine can sleep, and does unless the device has plenty of
room: with full weights at level 2 (its weights are discarded, for the next push brings all of them), with an adapter at
level 1 (the frozen base waits in host memory).
"""

from __future__ import annotations

import contextlib
import copy
import math
import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file

from rlforge_cli import memory
from rlforge_cli.architecture import from_config
from rlforge_cli.config import Config
from rlforge_cli.distributed import place
from rlforge_cli.engines import vllm_library as library
from rlforge_cli.errors import UserError
from rlforge_cli.rollouts import Completion, SamplingParams, finish

if TYPE_CHECKING:
    from rlforge_cli.model import Policy

LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""What vLLM has room for; the next larger one serves any rank."""
TEMPERATURES = (0.01, 2.0)
"""vLLM refuses higher ones, and takes lower ones for the least, which is not what the trainer then divides by."""
CHECKED_PROMPTS, CHECKED_TOKENS = 4, 8
"""Of :meth:`VLLMEngine.weights_checksum`."""
IN_MEMORY = "/dev/shm"
"""A file system that is no disk."""
LESS_WANTED = "the model has no more: lower rollout.max_tokens, eval.max_tokens or rollout.max_prompt_tokens"
SURE_GIB = 1.0
"""By which the room for a cache may have been over-estimated."""


class VLLMEngine:
    """Implements :class:`rlforge_cli.rollouts.RolloutEngine`.

    Raises:
        UserError: vLLM cannot run this model, or not in this memory.
    """

    def __init__(self, policy: Policy, config: Config, *, overrides: Mapping[str, Any] | None = None) -> None:
        self.policy = policy
        self.on_cuda = policy.device.type == "cuda"
        self.ends = frozenset(policy.end_ids)
        self.sleep_level = (1 if policy.is_adapter else 2) if config.rollout.sleep else None
        """None: it never sleeps."""
        self.asleep: set[str] = set()
        """What sleeps: of "weights" and "kv_cache"."""
        self.roomy = False
        """It has shown that it need not sleep (:data:`rlforge_cli.memory.PLENTY`)."""
        self.synced = False
        self.adapter: Any = None
        self.adapter_id = 0
        if self.on_cuda:
            torch.cuda.empty_cache()  # vLLM looks at how much of the device is free
        self.kernels = contextlib.ExitStack()
        """vLLM's choice of them, for as long as it runs."""
        if policy.is_adapter:
            self.kernels.enter_context(library.repeatable_adapters(policy.device))
        with tempfile.TemporaryDirectory() as folder:
            # every weight is pushed before the first use, so full weights are not read twice
            if not policy.is_adapter:
                shape = copy.deepcopy(policy.causal.config)
                shape.architectures = [type(policy.causal).__name__]
                shape.save_pretrained(folder)
            source = policy.causal.name_or_path if policy.is_adapter else folder
            options = engine_options(policy, config, source=source) | dict(overrides or {})
            self.longest = options["max_model_len"]
            bound = self.longest < memory.engine_length(config)
            self.more_room = LESS_WANTED if bound else "raise rollout.max_prompt_tokens or eval.max_tokens"
            self.frugal = config.train.offload
            self.share = options.get("gpu_memory_utilization", 0.0)
            self.cache_bytes = options.get("kv_cache_memory_bytes")
            """None: what vLLM finds room for in its share."""
            try:
                self.llm: Any = library.start(options, architecture=type(policy.causal).__name__)
            except BaseException:
                self.kernels.close()
                raise

    def generate(
        self, prompts: Sequence[Sequence[int]], *, n: int, params: SamplingParams, seed: int,
        places: Sequence[int] | None = None,
    ) -> list[list[Completion]]:  # fmt: skip
        """``n`` completions of each prompt; see the protocol.

        ``params.logprob_share`` of them report log-probabilities, at even distances. On CUDA every completion has a
        seed of its own. The CPU build has no such thing: there the global generator is seeded, and left as it was.

        Raises:
            UserError: a prompt and its completion are longer than the engine was made for, or vLLM takes no such
                temperature.
        """
        assert self.synced, "sync_weights comes before the first generate"
        assert "weights" not in self.asleep, "sync_weights comes after offload"
        require_temperature(params.temperature)
        self._wake("kv_cache")
        longest = max(map(len, prompts), default=0)
        if longest + params.max_tokens > self.longest:
            raise UserError(
                f"rollout.engine = 'vllm': a prompt of {longest} tokens and max_tokens = {params.max_tokens} are over "
                f"its {self.longest}; {self.more_room}"
            )
        total = len(prompts) * n
        places = range(len(prompts)) if places is None else places
        drawn = torch.randint(2**62, (max(places, default=-1) + 1, n), generator=torch.Generator().manual_seed(seed))
        seeds = drawn[list(places)].flatten().tolist()
        requests = [
            library.sampling_params(
                max_tokens=params.max_tokens, temperature=params.temperature, top_p=params.top_p, top_k=params.top_k,
                stop_token_ids=sorted(self.ends), logprobs=0 if wanted else None,
                seed=own if self.on_cuda and params.temperature else None,
            )
            for own, wanted in zip(seeds, spread(total, share=params.logprob_share), strict=True)
        ]  # fmt: skip
        self.llm.reset_prefix_cache()  # what a former call left in it would change batches, and so roundings
        with torch.random.fork_rng(devices=[], enabled=not self.on_cuda):
            if not self.on_cuda:
                torch.manual_seed(seed + min(places, default=0))
            outputs = library.complete(
                self.llm, [prompt for prompt in prompts for _ in range(n)], requests, self.adapter
            )
        completions = [
            finish(list(output.token_ids), library.reported_logprobs(list(output.token_ids), output.logprobs),
                   ends=self.ends, tokenizer=self.policy.tokenizer, stop=params.stop)
            for output in outputs
        ]  # fmt: skip
        return [completions[start : start + n] for start in range(0, total, n)]

    def offload(self) -> None:
        """Sleep, if this engine does and the device is not roomy: keys and values go, weights go or wait in host
        memory."""
        if self.sleep_level is not None and not self.roomy and "weights" not in self.asleep:
            self._wake("kv_cache")  # vLLM cannot unmap twice, and nothing may have been generated since the last sync
            library.sleep(self.llm, level=self.sleep_level)
            self.asleep = {"weights", "kv_cache"}

    def _wake(self, what: str) -> None:
        if what in self.asleep:
            if self.on_cuda and not self.roomy:
                torch.cuda.empty_cache()  # what the update used and freed, which torch would keep for itself
            self.llm.wake_up(tags=[what])
            self.asleep.remove(what)

    def _fits_awake(self) -> bool:
        """Whether what an update has taken, and torch has kept, leaves the device half empty beside the engine."""
        if not self.on_cuda or self.frugal:
            return False
        free, whole = torch.cuda.mem_get_info(self.policy.device)
        allowed = whole * torch.cuda.get_per_process_memory_fraction(self.policy.device)
        weights = sum(parameter.nbytes for parameter in self.policy.model.parameters())
        cache = self.share * whole - weights if self.cache_bytes is None else self.cache_bytes
        sizes = {"weights": weights, "kv_cache": cache}
        return whole - free + sum(sizes[what] for what in self.asleep) <= memory.PLENTY * allowed

    def sync_weights(self, *, step: int) -> None:
        """Take over the policy's weights; keys and values stay asleep until they are needed."""
        if step and (self.asleep or self.roomy):  # after an update: what it takes is known
            self.roomy = self._fits_awake()
        self._wake("weights")
        if self.policy.is_adapter:
            self._push_adapter(step)
        else:
            library.push_weights(self.llm, list(self.policy.model.state_dict().items()), in_place=self.on_cuda)
        if not self.llm.reset_prefix_cache():
            raise RuntimeError("vLLM kept keys and values of former weights: its prefix cache is in use")
        self.synced = True

    def _push_adapter(self, step: int) -> None:
        """Numbers grow with the steps: odd ones after an update, even ones when a run starts or is resumed."""
        self.adapter_id = max(self.adapter_id + 1, 2 * step + (1 if self.synced else 2))
        with tempfile.TemporaryDirectory(dir=IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else None) as folder:
            save_adapter(self.policy, folder)
            adapter = library.adapter_request(self.adapter_id, folder)
            if self.adapter is not None:
                self.llm.llm_engine.remove_lora(self.adapter.lora_int_id)
            self.llm.llm_engine.add_lora(adapter)
        self.adapter = adapter

    def weights_checksum(self) -> object:
        """Changes with the weights: greedy tokens after fixed prompts, and their log-probabilities."""
        vocabulary = self.policy.causal.config.vocab_size
        prompts = [[(row + place) % vocabulary for place in range(2, 10)] for row in range(CHECKED_PROMPTS)]
        groups = self.generate(prompts, n=1, params=SamplingParams(max_tokens=CHECKED_TOKENS, temperature=0.0), seed=0)
        return [(c.completion_ids, c.sampling_logprobs) for group in groups for c in group]

    def close(self) -> None:
        """Free the device; the engine is of no use afterwards, and this process cannot talk to other ranks any more."""
        if self.llm is None:
            return
        llm, self.llm = self.llm, None
        if self.asleep:  # memory that is not mapped cannot be freed
            with contextlib.suppress(RuntimeError):  # an interrupted update may leave too little for it
                llm.wake_up(tags=sorted(self.asleep))
        library.stop(llm)
        self.kernels.close()


def engine_options(policy: Policy, config: Config, *, source: str) -> dict[str, Any]:
    """Arguments of ``vllm.LLM``; ``source`` is a folder with the model's shape, and with its weights for an adapter."""
    rollout = config.rollout
    longest = memory.engine_length(config)
    options: dict[str, Any] = {
        "model": source,
        "runner": "generate",
        "dtype": config.model.dtype,
        "seed": config.train.seed % 2**31,
        "skip_tokenizer_init": True,
        "generation_config": "vllm",  # the model folder's own sampling defaults stay out of it
        "max_model_len": min(longest, getattr(policy.causal.config, "max_position_embeddings", longest)),
        "max_num_seqs": memory.engine_sequences(config),
        "logprobs_mode": "processed_logprobs",
        "enable_prefix_caching": True,
        "enforce_eager": rollout.eager or policy.device.type == "cpu",
        "use_tqdm_on_load": False,
    }
    if policy.device.type == "cuda":
        # of what this process may use, so that a cap on it caps the engine too
        allowed = torch.cuda.get_per_process_memory_fraction(policy.device)
        options |= {"gpu_memory_utilization": rollout.memory_share * allowed, "enable_sleep_mode": rollout.sleep}
        whole = torch.cuda.get_device_properties(policy.device).total_memory / memory.GIB
        options |= whole_cache(policy, config, share_gib=rollout.memory_share * allowed * whole)
    if not options["enforce_eager"] and not rollout.compile:
        options["compilation_config"] = {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"}
    if not policy.is_adapter:
        options["load_format"] = "dummy"
    else:
        rank = next(size for size in LORA_RANKS if size >= config.model.lora_rank)
        options |= {"enable_lora": True, "max_loras": 1, "max_lora_rank": rank}
    if config.model.adaptation == "qlora":
        options["quantization"] = "bitsandbytes"
    if place()[1] > 1:
        options["distributed_executor_backend"] = "external_launcher"  # an engine of its own in every rank
    return options


def require_temperature(temperature: float) -> None:
    """
    Raises:
        UserError: neither greedy nor within :data:`TEMPERATURES`.
    """
    least, most = TEMPERATURES
    if temperature and not least <= temperature <= most:
        raise UserError(
            f"temperature = {temperature:g}: vLLM samples at {least:g} to {most:g}; choose one of these, or use --set "
            "rollout.engine=hf"
        )


def save_adapter(policy: Policy, folder: str) -> None:
    """What peft's ``save_pretrained`` writes of an adapter, without the model card and the walks through all modules
    that are three quarters of its time."""
    (name, config), *_ = policy.model.peft_config.items()
    weights = {key.replace(f".{name}.", "."): weight.detach() for key, weight in policy.trainable().items()}
    save_file(weights, os.path.join(folder, "adapter_model.safetensors"))
    config.save_pretrained(folder)


def whole_cache(policy: Policy, config: Config, *, share_gib: float) -> dict[str, Any]:
    """The size of the cache where the share has clearly room for all that can be used; else vLLM takes what is left."""
    shape = from_config(policy.causal.config.to_dict())
    if shape is None:
        return {}
    wanted = memory.cache_that_fills(config, shape)
    clear = wanted + SURE_GIB * memory.GIB <= memory.cache_room(config, shape, share_gib=share_gib)
    return {"kv_cache_memory_bytes": int(wanted)} if clear else {}


def spread(total: int, *, share: float) -> list[bool]:
    """Which of ``total`` are chosen: ``share`` of them (rounded up), at even distances.

    Example: ``spread(8, share=0.25)`` chooses the fourth and the eighth.
    """
    count = math.ceil(round(total * share, 9))
    return [(place + 1) * count // total > place * count // total for place in range(total)]
