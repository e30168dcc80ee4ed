"""The packed decoding step computes what the model's own forward pass does, for every architecture that it takes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rlforge_cli.engines.kv_cache import DecodeCache
from rlforge_cli.engines.lean import lean_step, rotary_table
from rlforge_cli.engines.packed import pack, packable, packed_step, position_table

SHAPE = {
    "vocab_size": 50, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 12, "max_position_embeddings": 64,
}  # fmt: skip


def build(name: str) -> nn.Module:
    import transformers

    config = {
        "qwen3": transformers.Qwen3Config(**SHAPE, rms_norm_eps=1e-3),
        "qwen2": transformers.Qwen2Config(**{**SHAPE, "num_attention_heads": 4, "num_key_value_heads": 2}),
        "llama": transformers.LlamaConfig(**SHAPE),
    }[name]
    torch.manual_seed(3)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # norms of 1 and biases of 0 would hide a missing one
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model


def empty_cache(decoder: nn.Module, *, rows: int, slots: int, transposed: bool = False) -> DecodeCache:
    """With room for all layers: a prompt of zeros makes it."""
    cache = DecodeCache(transposed=transposed)
    cache.reserve(rows=rows, slots=slots)
    zeros = decoder.embed_tokens.weight.new_zeros(
        rows, decoder.config.num_key_value_heads, 1, decoder.layers[0].self_attn.head_dim
    )
    for index in range(len(decoder.layers)):
        cache.update(zeros, zeros, index)
    return cache


@pytest.mark.parametrize("name", ["qwen3", "qwen2", "llama"])
def test_decoding_a_sequence_gives_the_forward_pass(name):
    model = build(name)
    decoder = model.get_decoder()
    ids = torch.randint(0, 50, (5, 9), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        expected = decoder(input_ids=ids, use_cache=False).last_hidden_state
        layers, table = pack(decoder), rotary_table(decoder, slots=16)
        for transposed, step in ((True, packed_step), (False, packed_step), (False, lean_step)):
            cache = empty_cache(decoder, rows=5, slots=16, transposed=transposed)
            for position in range(9):
                slots = torch.full((5,), position)
                cache.slot, cache.window = slots, position + 1
                mask = torch.ones(5, 1, 1, position + 1, dtype=torch.bool)
                if step is packed_step:
                    places = position_table(table)
                    hidden = packed_step(layers, decoder, ids[:, position], slots, cache=cache, table=places)
                else:
                    hidden = lean_step(decoder, ids[:, position], slots, mask, cache=cache, table=table)
                torch.testing.assert_close(hidden, expected[:, position], rtol=1e-4, atol=1e-5)


def test_adapters_and_other_types_are_left_to_the_modules():
    decoder = build("qwen3").get_decoder()
    assert packable(decoder)
    decoder.layers[1].mlp.up_proj = nn.Sequential(decoder.layers[1].mlp.up_proj)
    assert not packable(decoder)
    assert not packable(build("qwen3").to(torch.bfloat16).get_decoder())
