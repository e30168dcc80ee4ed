"""What only a CUDA device runs: the fused head, fused layers, parking, two devices. Skipped without one."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import msgspec
import pytest
import shared_work
import torch
from test_distributed import close, torchrun
from test_engine import LONG, LORA, SAMPLED, flat, gap, gaps
from test_packed import build, empty_cache
from toys import toy_policy

from rlforge_cli.engines import sampling
from rlforge_cli.engines.hf import HFEngine
from rlforge_cli.engines.lean import fused_kernels, lean_step, rotary_table
from rlforge_cli.grpo.logprobs import _ChunkedHead, fused_head, logprobs_and_entropy
from rlforge_cli.model import load_policy
from rlforge_cli.rollouts import SamplingParams
from rlforge_cli.triton_support import triton_lacks

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
GPU = torch.device("cuda")


@pytest.fixture
def triton() -> None:
    """Where it is installed it has to be of use: a test that wants it is not skipped for what it lacks."""
    pytest.importorskip("triton")
    assert triton_lacks() is None


def head_inputs(rows: int, vocabulary: int, *, scale: float = 1.0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    hidden = (scale * torch.randn(rows, 64, device=GPU)).bfloat16().requires_grad_()
    weight = torch.randn(vocabulary, 64, device=GPU).bfloat16().requires_grad_()
    return hidden, weight, torch.randint(vocabulary, (rows,), device=GPU)


@pytest.mark.usefixtures("triton")
@pytest.mark.parametrize("with_entropy", [False, True])
@pytest.mark.parametrize(("rows", "vocabulary", "chunk"), [(7, 50, 3), (33, 4096, 33), (20, 9001, 8), (1, 1, 1)])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_fused_head_is_the_chunked_head(rows, vocabulary, chunk, temperature, with_entropy):
    found = []
    for head in (_ChunkedHead, fused_head()):
        hidden, weight, targets = head_inputs(rows, vocabulary, scale=0.3)
        logprobs, entropy = head.apply(hidden, weight, targets, temperature, chunk)
        upstream = torch.linspace(-1, 2, rows, device=GPU)
        ((logprobs * upstream).sum() + (entropy.sum() * 0.5 if with_entropy else 0.0)).backward()
        found.append((logprobs, entropy, hidden.grad.float(), weight.grad.float()))
    for plain, fused in zip(found[0][:2], found[1][:2], strict=True):
        torch.testing.assert_close(fused, plain, rtol=1e-4, atol=1e-4)
    for plain, fused in zip(found[0][2:], found[1][2:], strict=True):  # through 16-bit logits
        assert (fused - plain).norm() <= 0.01 * plain.norm() + 1e-6


def test_fused_head_keeps_infinities_and_nan_where_they_belong():
    hidden, weight, targets = head_inputs(4, 300)
    with torch.no_grad():
        hidden[1] = float("nan")
        hidden[2] = 1e30
    logprobs, entropy = logprobs_and_entropy(hidden, weight, targets)
    assert logprobs[1].isnan()
    assert entropy[1].isnan()
    assert logprobs[[0, 3]].isfinite().all()
    assert entropy[[0, 3]].isfinite().all()


def test_fused_layers_change_neither_values_nor_gradients_beyond_rounding():
    from rlforge_cli.fused_layers import GatedMLP, fuse_layers, kernels

    if kernels() is None:
        pytest.skip("liger-kernel is not installed")
    plain = toy_policy(head_dim=32).model.to(GPU)
    fused = copy.deepcopy(plain)
    fuse_layers(fused, GPU)
    assert any(isinstance(module, GatedMLP) for module in fused.modules())
    ids = torch.randint(15, (3, 20), device=GPU)
    results = []
    for model in (plain, fused):
        logits = model(input_ids=ids, use_cache=False).logits
        logits.logsumexp(-1).sum().backward()
        results.append([logits, *(p.grad for p in model.parameters())])
    for ours, theirs in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.usefixtures("triton")
@pytest.mark.parametrize("name", ["qwen3", "qwen2", "llama"])
def test_fused_step_is_the_lean_step_at_every_length(name):
    exact = decode(build(name), lean_step)
    for ours, theirs in zip(decode(build(name), fused_kernels().fused_step), exact, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
    lean, quick = (
        [(found.float() - wanted).norm() for found, wanted in zip(decode(model, step), exact, strict=True)]
        for model, step in ((build(name).bfloat16(), lean_step), (build(name).bfloat16(), fused_kernels().fused_step))
    )
    assert all(ours <= 1.5 * theirs for ours, theirs in zip(quick, lean, strict=True))  # it rounds no more often


def decode(model: torch.nn.Module, step: Any) -> list[torch.Tensor]:
    """Hidden states [positions, rows, D], then the cache; rows of different lengths, at a block's borders too."""
    decoder: Any = model.to(GPU).get_decoder()
    rows, length = 5, 150
    ids = torch.randint(50, (rows, length), generator=torch.Generator().manual_seed(0)).to(GPU)
    behind = torch.tensor([0, 1, 63, 64, 65], device=GPU)
    hidden = []
    with torch.inference_mode():
        cache = empty_cache(decoder, rows=rows + 2, slots=2 * length)  # more than is used
        table = rotary_table(decoder, slots=2 * length)
        for position in range(length):
            slots = (position - behind).clamp(min=0)
            cache.slot, cache.window = slots, position + 1
            mask = (torch.arange(position + 1, device=GPU) <= slots[:, None])[:, None, None]
            more = {"mask": mask} if step is lean_step else {}
            hidden.append(step(decoder, ids[:, position], slots, cache=cache, table=table, **more))
    return [torch.stack(hidden), *cache.keys, *cache.values]


@pytest.mark.usefixtures("triton")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("vocabulary", [17, 1024, 1025, 151_936])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_fused_sampler_inverts_the_cumulative_distribution(vocabulary, temperature, dtype):
    torch.manual_seed(0)
    logits = (3 * torch.randn(500, vocabulary, device=GPU)).to(dtype)
    uniform = torch.rand(500, device=GPU)
    uniform[:2] = torch.tensor([0.0, 1 - 1e-7])
    tokens, logprobs = sampling.sample(logits, uniform, temperature=temperature)
    expected = (logits.double() / temperature).log_softmax(-1)
    reached = expected.exp().cumsum(-1)
    upper = reached.gather(1, tokens[:, None])[:, 0]
    lower = upper - expected.exp().gather(1, tokens[:, None])[:, 0]
    number = uniform.double().clamp(max=1 - 1e-6)
    assert (lower - 5e-6 <= number).all()  # float32 decides where the number falls close to a border
    assert (number <= upper + 5e-6).all()
    torch.testing.assert_close(logprobs.double(), expected.gather(1, tokens[:, None])[:, 0], rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("triton")
def test_fused_sampler_never_chooses_what_has_no_probability():
    logits = torch.full((4, 3000), -torch.inf, device=GPU)
    for row, token in enumerate((0, 1023, 1024, 2999)):
        logits[row, token] = 1.0
    for number in (0.0, 0.5, 1 - 1e-7):
        tokens, logprobs = sampling.sample(logits, torch.full((4,), number, device=GPU), temperature=1.0)
        assert tokens.tolist() == [0, 1023, 1024, 2999]
        assert logprobs.tolist() == [0.0] * 4
    lost = sampling.sample(torch.full((2, 3000), torch.nan, device=GPU), torch.rand(2, device=GPU), temperature=1.0)
    assert (lost[0] < 3000).all()
    assert lost[1].isnan().all()


@pytest.mark.parametrize(("dtype", "within"), [(torch.float32, 1e-3), (torch.bfloat16, 0.15)])
def test_what_the_engine_reports_is_what_the_policy_computes(dtype, within):
    policy = toy_policy(head_dim=32, device=GPU, dtype=dtype)
    engine = HFEngine(policy, batch_size=16)
    assert engine.fused == (find_spec("triton") is not None)
    prompts = [[1, 2, 3], [4], [5, 6, 7, 8, 9, 1, 2]]
    for limit in (5, 90, 40):  # the cache grows, and graphs are made anew
        params = SamplingParams(max_tokens=limit, temperature=1.0)
        completions = flat(engine.generate(prompts, n=7, params=params, seed=limit))
        again = flat(engine.generate(prompts, n=7, params=params, seed=limit))
        assert [c.completion_ids for c in again] == [c.completion_ids for c in completions]
        assert gap(policy, [prompt for prompt in prompts for _ in range(7)], completions) < within


@pytest.mark.parametrize(("adaptation", "within"), [("lora", 0.02), ("qlora", 0.1)])
def test_the_engine_decodes_with_the_adapter_of_the_moment(adaptation, within):
    if adaptation == "qlora":
        pytest.importorskip("bitsandbytes")
    policy = load_policy(msgspec.structs.replace(LORA.model, adaptation=adaptation, dtype="bfloat16", device="cuda"))
    engine = HFEngine(policy, batch_size=4)
    prompts = [prompt for prompt in LONG for _ in range(2)]
    start = flat(engine.generate(LONG, n=2, params=SAMPLED, seed=0))
    assert gaps(policy, prompts, start).mean() < within
    with torch.no_grad():
        for name, parameter in policy.trainable().items():
            if "lora_B" in name:
                parameter.add_(0.05 * torch.randn_like(parameter))
    moved = gaps(policy, prompts, flat(engine.generate(LONG, n=2, params=SAMPLED, seed=0))).mean()
    assert moved < within
    assert gaps(policy, prompts, start).mean() > 3 * moved


def test_what_is_parked_comes_back_as_it_was_and_gives_its_memory_back_meanwhile():
    from rlforge_cli.parking import Parking

    size = 1 << 22
    changed, constant = torch.rand(size, device=GPU), torch.rand(size, device=GPU)
    before = (changed.clone().cpu(), constant.clone().cpu())
    parking = Parking(GPU)
    allocated = torch.cuda.memory_allocated()
    for _ in range(3):
        parking.leave([changed], constant=[constant])
        parking.wait_left()
        assert not changed.is_cuda
        assert not constant.is_cuda
        assert torch.cuda.memory_allocated() == allocated - 2 * 4 * size
        assert torch.equal(changed, before[0])  # on the host it is the same tensor of numbers, and can be saved
        parking.fetch([changed, constant])
        parking.wait_fetched()
        assert torch.equal(changed.cpu(), before[0])
        assert torch.equal(constant.cpu(), before[1])
        changed += 1
        before = (before[0] + 1, before[1])


def test_what_a_step_changes_while_its_former_place_is_still_copied_is_not_lost():
    from rlforge_cli.parking import Parking

    tensor = torch.zeros(1 << 24, device=GPU)
    parking = Parking(GPU)
    for step in range(1, 4):
        parking.fetch([tensor])
        parking.wait_fetched()
        tensor.add_(1)  # enqueued; the copy has to wait for it
        parking.leave([tensor])
        parking.wait_left()
        assert tensor.min() == tensor.max() == step


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one CUDA device")
def test_two_devices_find_what_one_finds(tmp_path):
    found = []
    for name, command in (("one", [sys.executable]), ("two", torchrun())):
        folder = tmp_path / name
        folder.mkdir()
        done = subprocess.run(
            [*command, shared_work.__file__, str(folder)], env=os.environ | {"SHARED_WORK_DEVICE": "cuda"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found += [json.loads(file.read_text()) for file in sorted(folder.glob("rank-*.json"))]
    alone, *both = found
    assert len(both) == 2
    for name in shared_work.COMPARED:
        in_double = name in ("sequence", "token", "share", "one row")
        close(both[0][name], alone[name], within=1e-6 if in_double else 1e-4, where=name)
        assert both[0][name] == both[1][name]  # to the last bit
