"""What makes a model trainable in less memory: LoRA adapters, a 4-bit base, activations that are computed again."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from rlforge_cli.errors import UserError, nearest
from rlforge_cli.pretrained import readable, require_finite
from rlforge_cli.seeding import derive

if TYPE_CHECKING:
    from rlforge_cli.config import ModelConfig


def recompute_activations(model: Any) -> None:
    """Gradient checkpointing, also where the embedding is frozen: without input gradients LoRA's B would stay 0."""
    options = {"use_reentrant": False}
    if hasattr(model, "activation_checkpointing_enable"):  # the name since transformers 5.24
        model.activation_checkpointing_enable(activation_checkpointing_kwargs=options)
    else:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)
    model.enable_input_require_grads()


def four_bit_config() -> Any:
    from importlib.util import find_spec

    from transformers import BitsAndBytesConfig

    if find_spec("bitsandbytes") is None:
        raise UserError("model.adaptation = 'qlora' needs bitsandbytes: pip install 'rlforge[qlora]'")
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )


@contextlib.contextmanager
def without_peft_notes() -> Iterator[None]:
    """Without what peft says of names that transformers 5.24 renamed, and of what rlforge looks at itself."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning, module="peft")
        warnings.filterwarnings("ignore", message=".*gradient_checkpointing", category=FutureWarning)
        warnings.filterwarnings("ignore", message="Found missing adapter keys")  # whole_adapter refuses them
        yield


@without_peft_notes()
def with_adapter(model: Any, config: ModelConfig, saved: Path | None, *, seed: int = 0) -> Any:
    """``model`` frozen, with a new LoRA adapter (B = 0: it starts as the base) or a saved one."""
    from peft import LoraConfig, PeftModel, get_peft_model

    model.requires_grad_(False)
    if saved is not None:
        with readable(f"{saved}: the adapter cannot be loaded"):
            adapted = PeftModel.from_pretrained(model, saved, is_trainable=True)
            whole_adapter(adapted, saved)
        return in_order(adapted)
    tied = {"lm_head", "embed_tokens"} & set(config.lora_targets)
    if tied and getattr(model.config, "tie_word_embeddings", False):
        raise UserError(
            f"model.lora_targets holds {sorted(tied)[0]!r}, which this model ties to its other end: an adapter there "
            "would change both or be lost at saving; leave it out"
        )
    if not config.lora_targets:
        raise UserError(f"model.lora_targets is empty: name what gets an adapter, such as {linear_names(model)[0]!r}")
    missing = [t for t in config.lora_targets if not any(name.endswith(t) for name, _ in model.named_modules())]
    if missing:
        hint = nearest(missing[0], linear_names(model))
        raise UserError(f"model.lora_targets holds {missing[0]!r}: the model has no such module{hint}")
    lora = LoraConfig(
        r=config.lora_rank, lora_alpha=config.lora_alpha, lora_dropout=config.lora_dropout, bias="none",
        target_modules=list(config.lora_targets), task_type="CAUSAL_LM",
    )  # fmt: skip
    with torch.random.fork_rng():  # peft draws A on the device, from torch's global generators
        torch.manual_seed(derive(seed, "adapter"))
        return in_order(get_peft_model(model, lora))


def in_order(model: Any) -> Any:
    """The names of its targets in one order: peft keeps a set, which each process would save in an order of its own."""
    for lora in model.peft_config.values():
        if not isinstance(lora.target_modules, str):  # a pattern
            lora.target_modules = sorted(lora.target_modules)
    return model


def load_adapter(model: Any, folder: Path) -> None:
    """Give a model's adapter the weights in ``folder``; raises what :func:`whole_adapter` does."""
    from peft import set_peft_model_state_dict

    set_peft_model_state_dict(model, whole_adapter(model, folder))


def whole_adapter(model: Any, folder: Path) -> dict[str, torch.Tensor]:
    """The weights in ``folder``, which are all that the model's adapter has.

    Raises:
        UserError: some are missing there (peft would leave the model's as they are), or not finite.
    """
    from peft import get_peft_model_state_dict, load_peft_weights

    saved: dict[str, torch.Tensor] = load_peft_weights(str(folder), device="cpu")
    if missing := sorted(get_peft_model_state_dict(model).keys() - saved.keys()):
        raise UserError(f"{folder}: the adapter's weight {missing[0]} is not in its file: copy the whole folder again")
    require_finite(saved.items(), str(folder))
    return saved


def linear_names(model: nn.Module) -> list[str]:
    """Last parts of the names of linear modules, each once. Example: ``["q_proj", "k_proj", ...]``."""
    linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    return list(dict.fromkeys(name.rpartition(".")[2] for name in linear))
