"""Damaged model folders: each is refused in one line that names the folder and what is wrong with it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from rlforge_cli.config import ModelConfig, PromptConfig
from rlforge_cli.devices import resolve_device
from rlforge_cli.errors import UserError
from rlforge_cli.model import Policy, load_policy
from rlforge_cli.pretrained import model_source, readable
from rlforge_cli.prompts import PromptEncoder
from rlforge_cli.tasks.base import Problem

WEIGHTS = "model.safetensors"
PROJECTION = "model.layers.0.mlp.gate_proj.weight"


def damaged(folder: Path, damage: Callable[[Path], object]) -> str:
    """A copy of the embedded model with something wrong in it."""
    shutil.copytree(model_source("tiny-arith"), folder / "m")
    damage(folder / "m")
    return str(folder / "m")


def rewritten(change: Callable[[dict[str, torch.Tensor]], object], *, name: str = WEIGHTS) -> Callable[[Path], object]:
    def damage(folder: Path) -> None:
        tensors = load_file(folder / name)
        change(tensors)
        save_file(tensors, folder / name, metadata={"format": "pt"})

    return damage


def with_key(name: str, key: str, value: object) -> Callable[[Path], object]:
    def damage(folder: Path) -> None:
        read = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(read | {key: value}))

    return damage


def cut(name: str, size: int) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:size])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut(WEIGHTS, 100_000), "SafetensorError: .*not fully covered"),
        (cut(WEIGHTS, 0), "SafetensorError: .*header too small"),
        (cut("config.json", 3), "cannot be loaded as a model folder"),
        (rewritten(lambda w: w.pop(PROJECTION)), f"{PROJECTION} is not in its files and would be random"),
        (rewritten(lambda w: w[PROJECTION][3].fill_(float("nan"))), f"{PROJECTION} holds NaN or infinity"),
        (with_key("config.json", "vocab_size", 5), r"embed_tokens.weight has shape \(100, \d+\).* asks for \(5, \d+\)"),
        (lambda f: (f / "tokenizer.json").write_text('{"a": 1}'), "KeyError"),
        (
            lambda f: (f / "tokenizer.json").write_text('{"version": "1.0", "added_tokens": [], "model": 3}'),
            "cannot be",
        ),
        (lambda f: [path.unlink() for path in f.glob("token*")], "its tokenizer has no tokens"),
        (with_key("generation_config.json", "eos_token_id", "x"), "end token 'x': eos_token_id is a whole number"),
    ],
)
def test_a_damaged_model_folder_is_refused(damage, message, tmp_path):
    folder = damaged(tmp_path, damage)
    with pytest.raises(UserError, match=message) as raised:
        load_policy(ModelConfig(path=folder))
    assert "\n" not in str(raised.value)
    assert folder in str(raised.value) or "end token" in str(raised.value)


def with_adapter_in(folder: Path) -> tuple[Policy, Path]:
    policy = load_policy(ModelConfig(adaptation="lora", lora_rank=2))
    policy.save(folder)
    return policy, folder / "adapter_model.safetensors"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop(sorted(w)[3]), "the adapter's weight .*lora_.* is not in its file"),
        (lambda w: w[sorted(w)[3]].fill_(float("inf")), "lora_.* holds NaN or infinity"),
    ],
)
def test_a_damaged_adapter_is_refused(change, message, tmp_path):
    policy, _ = with_adapter_in(tmp_path)
    rewritten(change, name="adapter_model.safetensors")(tmp_path)
    with pytest.raises(UserError, match=message):
        load_policy(ModelConfig(adaptation="lora", lora_rank=2), path=str(tmp_path))
    with pytest.raises(UserError, match=message):
        policy.load_weights(tmp_path)


def test_an_adapter_folder_is_a_model_on_the_base_that_it_names(tmp_path):
    policy, _ = with_adapter_in(tmp_path)
    with torch.no_grad():
        for name, weight in policy.trainable().items():
            weight.add_(0.05 if "lora_B" in name else 0.0)
    policy.save(tmp_path)
    ids = torch.tensor([[1, 2, 3, 4]])
    wanted = policy.model(ids).logits
    again = load_policy(ModelConfig(path=str(tmp_path)))
    assert len(again.model.peft_config) == 1
    assert torch.equal(again.model(ids).logits, wanted)
    assert (wanted - load_policy(ModelConfig()).model(ids).logits).abs().max() > 0.01
    with_key("adapter_config.json", "base_model_name_or_path", None)(tmp_path)
    with pytest.raises(UserError, match=r"adapter_config\.json: names no base model"):
        load_policy(ModelConfig(path=str(tmp_path)))


def test_an_adapter_file_cut_short_is_refused(tmp_path):
    _, file = with_adapter_in(tmp_path)
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(UserError, match=f"{tmp_path}: the adapter cannot be loaded: SafetensorError"):
        load_policy(ModelConfig(adaptation="lora", lora_rank=2), path=str(tmp_path))


@pytest.mark.parametrize(
    ("template", "system", "message"),
    [
        ("{{ foo( }}{% if %}", "", "chat template refuses the prompts: unexpected"),
        ("{{ raise_exception('no system role') }}", "Be brief.", "no system role; leave prompt.system empty"),
    ],
)
def test_a_chat_template_that_refuses(template, system, message):
    tokenizer = load_policy(ModelConfig()).tokenizer
    tokenizer.chat_template = template
    encoder = PromptEncoder(tokenizer, PromptConfig(system=system), max_tokens=64)
    with pytest.raises(UserError, match=message):
        encoder.encode(Problem("p", "1+2=?", "3"))


@pytest.mark.parametrize("name", ["meta", "vulkan", *([] if torch.backends.mps.is_available() else ["mps"])])
def test_a_device_that_is_not_there(name):
    with pytest.raises(UserError, match=f"model.device = '{name}': no such device here; use --set device=cpu"):
        resolve_device(name)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("none left"),
        torch.OutOfMemoryError("CUDA"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_lack_of_memory_is_not_the_files_fault(error):
    with pytest.raises(type(error), match=str(error)), readable("a folder"):
        raise error
