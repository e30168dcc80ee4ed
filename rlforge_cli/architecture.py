"""The numbers of a decoder that memory and time depend on, from a config.json or a table: no weights are needed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec


class Architecture(msgspec.Struct, frozen=True, kw_only=True):
    """A dense decoder with gated MLP and grouped-query attention. Example: Qwen3-0.6B has 596,049,920 parameters."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied: bool
    """The head is the embedding."""
    qk_norm: bool = True

    @property
    def shapes(self) -> dict[str, tuple[int, int]]:
        """(in, out) of every linear module of a layer."""
        query, key = self.heads * self.head_dim, self.kv_heads * self.head_dim
        hidden, wide = self.hidden, self.intermediate
        return {
            "q_proj": (hidden, query), "k_proj": (hidden, key), "v_proj": (hidden, key), "o_proj": (query, hidden),
            "gate_proj": (hidden, wide), "up_proj": (hidden, wide), "down_proj": (wide, hidden),
        }  # fmt: skip

    @property
    def linear(self) -> int:
        """Parameters of the layers' linear modules."""
        return self.layers * sum(a * b for a, b in self.shapes.values())

    @property
    def embeddings(self) -> int:
        """Parameters of the embedding and, unless tied, the head."""
        return self.vocab * self.hidden * (1 if self.tied else 2)

    @property
    def parameters(self) -> int:
        norms = self.layers * (2 * self.hidden + (2 * self.head_dim if self.qk_norm else 0)) + self.hidden
        return self.linear + self.embeddings + norms

    def lora(self, rank: int, targets: Sequence[str]) -> int:
        """Parameters of a rank-``rank`` adapter: rank x (in + out) a module."""
        return self.layers * sum(rank * (a + b) for name, (a, b) in self.shapes.items() if name in targets)


def qwen3(hidden: int, layers: int, heads: int, intermediate: int, *, tied: bool) -> Architecture:
    return Architecture(
        hidden=hidden, layers=layers, heads=heads, kv_heads=8, head_dim=128, intermediate=intermediate, vocab=151_936,
        tied=tied,
    )  # fmt: skip


KNOWN = {
    "Qwen/Qwen3-0.6B": qwen3(1024, 28, 16, 3072, tied=True),
    "Qwen/Qwen3-1.7B": qwen3(2048, 28, 16, 6144, tied=True),
    "Qwen/Qwen3-4B": qwen3(2560, 36, 32, 9728, tied=True),
    "Qwen/Qwen3-8B": qwen3(4096, 36, 32, 12288, tied=False),
    "Qwen/Qwen3-14B": qwen3(5120, 40, 40, 17408, tied=False),
    "Qwen/Qwen3-32B": qwen3(5120, 64, 64, 25600, tied=False),
    "HuggingFaceTB/SmolLM2-135M-Instruct": Architecture(
        hidden=576, layers=30, heads=9, kv_heads=3, head_dim=64, intermediate=1536, vocab=49_152, tied=True,
        qk_norm=False,
    ),
}  # fmt: skip
"""By hub name (Qwen3: arXiv 2505.09388, table 1, and the models' config.json)."""


def from_config(config: dict[str, Any]) -> Architecture | None:
    """From the fields of a config.json; None for what is no such decoder (a mixture of experts, an encoder)."""
    needed = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")
    if any(not isinstance(config.get(name), int) for name in needed) or config.get("num_experts"):
        return None
    heads = config["num_attention_heads"]
    return Architecture(
        hidden=config["hidden_size"], layers=config["num_hidden_layers"], heads=heads,
        kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or config["hidden_size"] // heads, intermediate=config["intermediate_size"],
        vocab=config["vocab_size"], tied=bool(config.get("tie_word_embeddings", True)),
        qk_norm=config.get("model_type") == "qwen3",
    )  # fmt: skip


def architecture_of(path: str) -> Architecture | None:
    """Of a model folder, the embedded model, or a hub name that the table or the local cache knows; else None."""
    file: Path | None = (
        Path(__file__).parent / "assets" / path if path == "tiny-arith" else Path(path)
    ) / "config.json"
    if file is not None and not file.is_file():
        if path in KNOWN:
            return KNOWN[path]
        file = cached_config(path)
    if file is None:
        return None
    try:
        return from_config(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None


def cached_config(name: str) -> Path | None:
    """config.json of a hub name in the local cache."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(name, "config.json")
    except HFValidationError:
        return None
    return Path(found) if isinstance(found, str) else None
