"""The policy being trained, and its frozen reference: full weights, a LoRA adapter, or an adapter on a 4-bit base."""

from __future__ import annotations

import copy
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from rlforge_cli.adapters import four_bit_config, load_adapter, recompute_activations, with_adapter
from rlforge_cli.devices import resolve_device
from rlforge_cli.errors import UserError
from rlforge_cli.fused_layers import fuse_layers
from rlforge_cli.grpo.batch import Batch
from rlforge_cli.grpo.logprobs import logprobs_and_entropy
from rlforge_cli.output import note
from rlforge_cli.packed_attention import enable_packing, packed_hidden
from rlforge_cli.pretrained import base_of, load_model, load_tokenizer, model_source, quiet_transformers
from rlforge_cli.triton_support import triton_lacks

if TYPE_CHECKING:
    from rlforge_cli.config import ModelConfig


class Policy:
    """A causal language model with its tokenizer.

    ``model`` is what is trained and saved (a PeftModel with an adapter), ``backbone`` its decoder without the head.
    """

    def __init__(self, model: nn.Module, tokenizer: Any, *, reference: nn.Module | None = None) -> None:
        self.model: Any = model
        self.tokenizer = tokenizer
        whole: Any = model
        causal: Any = whole.get_base_model() if hasattr(whole, "get_base_model") else whole
        self.causal = causal
        self.backbone: Any = causal.get_decoder()
        self.reference: Any = reference
        # transformers 5.24 renamed the argument
        named = inspect.signature(self.backbone.forward).parameters
        self.cache_keyword = "cache" if "cache" in named else "past_key_values"
        self.is_adapter = causal is not model
        self.end_ids = declared_end_ids(causal, tokenizer)
        self.packs = enable_packing(self.backbone)
        """Whether batches for :meth:`logprobs` may be packed."""
        if reference is not None:
            enable_packing(self.reference_decoder)
        self.parameter_count = sum(p.numel() for p in model.parameters())

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def reference_decoder(self) -> Any:
        return self.reference.get_decoder()

    @property
    def has_reference(self) -> bool:
        return self.is_adapter or self.reference is not None

    def trainable(self) -> dict[str, nn.Parameter]:
        """Trainable parameters by name, each once (a tied head is its embedding)."""
        return {name: p for name, p in self.model.named_parameters() if p.requires_grad}

    def head(self, hidden: Tensor) -> Tensor:
        """[..., D] -> logits [..., V]."""
        return self.causal.get_output_embeddings()(hidden)

    def hidden(self, input_ids: Tensor, *, cache: Any = None, **kwargs: Any) -> Tensor:
        """[B, L] -> last hidden states [B, L, D]."""
        if cache is not None:
            kwargs[self.cache_keyword] = cache
        return self.backbone(input_ids=input_ids, use_cache=cache is not None, **kwargs).last_hidden_state

    def logprobs(self, batch: Batch, *, temperature: float) -> tuple[Tensor, Tensor]:
        """Log-probabilities and entropies [B, T] of the completion tokens at ``temperature``; 0 outside the mask."""
        return completion_logprobs(self.backbone, self.causal.get_output_embeddings().weight, batch, temperature)

    def reference_logprobs(self, batch: Batch, *, temperature: float) -> Tensor:
        """The same of the reference: the frozen copy, or this model with its adapter disabled."""
        with torch.no_grad():
            if self.is_adapter:
                with self.model.disable_adapter():
                    return self.logprobs(batch, temperature=temperature)[0]
            self.reference.to(self.device)  # it may be parked
            weight = self.reference.get_output_embeddings().weight
            return completion_logprobs(self.reference_decoder, weight, batch, temperature)[0]

    def load_weights(self, folder: Path) -> None:
        """Take over the weights that :meth:`save` wrote, in place (the reference stays as it is)."""
        if self.is_adapter:
            load_adapter(self.model, folder)
            return
        with quiet_transformers():
            self.model.load_state_dict(load_model(str(folder), dtype=self.model.dtype).state_dict())

    def save(self, folder: Path) -> None:
        """A Hugging Face model folder (or adapter folder) with the tokenizer."""
        with quiet_transformers():
            self.model.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)


def completion_logprobs(decoder: Any, head_weight: Tensor, batch: Batch, temperature: float) -> tuple[Tensor, Tensor]:
    """Only the positions that predict a completion token reach the head."""
    batch = batch.to(head_weight.device)
    if batch.packing is not None:
        hidden = packed_hidden(decoder, batch.input_ids, batch.packing)
    else:
        hidden = decoder(input_ids=batch.input_ids, use_cache=False).last_hidden_state
    predicting = hidden.reshape(-1, hidden.shape[-1]).index_select(0, batch.source)
    logprobs, entropy = logprobs_and_entropy(predicting, head_weight, batch.targets, temperature=temperature)
    blank = logprobs.new_zeros(batch.completion_mask.numel())
    shape = batch.completion_mask.shape
    # by index, for a mask would have to be counted by the host
    return blank.index_copy(0, batch.slots, logprobs).view(shape), blank.index_copy(0, batch.slots, entropy).view(shape)


def declared_end_ids(model: Any, tokenizer: Any) -> list[int]:
    """Every end token that the generation config, the model config or the tokenizer declares."""
    ends: set[int] = set()
    for source in (getattr(model, "generation_config", None), model.config, tokenizer):
        value = getattr(source, "eos_token_id", None)
        ends.update(value if isinstance(value, (list, tuple)) else [] if value is None else [value])
    if wrong := [end for end in ends if not isinstance(end, int)]:
        raise UserError(
            f"the model declares the end token {wrong[0]!r}: eos_token_id is a whole number or a list of them"
        )
    if not ends:
        raise UserError("the model declares no end token (eos_token_id): every completion would count as truncated")
    return sorted(ends)


def load_policy(config: ModelConfig, *, path: str | None = None, seed: int = 0) -> Policy:
    """Load what ``config`` describes; ``path`` (a run's artifact) takes the place of ``config.path``.

    A new adapter's A is drawn from ``seed``.

    Raises:
        UserError: see :mod:`rlforge_cli.pretrained`.
    """
    source = model_source(path or config.path)
    device = resolve_device(config.device)
    if device.type == "cuda":
        if device.index is not None:
            torch.cuda.set_device(device)  # libraries take the current one
        # torch's first choice on an H100, which makes a plan for every new length: most micro-batches have one
        torch.backends.cuda.enable_cudnn_sdp(False)
        if lacking := triton_lacks():
            note(f"Triton cannot make kernels without {lacking}: slower ones are used")
    adapter = Path(source) / "adapter_config.json"
    base_source = base_of(model_source(config.path)) if adapter.is_file() else source
    kwargs: dict[str, Any] = {"dtype": getattr(torch, config.dtype), "attn_implementation": "sdpa"}
    if config.adaptation == "qlora":
        kwargs |= {"quantization_config": four_bit_config(), "device_map": {"": device}}
    with quiet_transformers():
        model = load_model(base_source, **kwargs)
        tokenizer = load_tokenizer(base_source)
    fuse_layers(model, device)
    if config.adaptation != "qlora":
        model.to(device)
    if config.adaptation == "full" and not adapter.is_file():
        reference = copy.deepcopy(model).eval().requires_grad_(False) if config.reference else None
        model.requires_grad_(True)
    else:
        model = with_adapter(model, config, adapter.parent if adapter.is_file() else None, seed=seed)
        reference = None
    if config.gradient_checkpointing:
        recompute_activations(model)
    model.train()
    return Policy(model, tokenizer, reference=reference)
