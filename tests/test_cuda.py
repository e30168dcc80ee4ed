"""What only a CUDA device runs: the fused head, fused layers, parking, two devices. Skipped without one."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys

import pytest
import shared_work
import torch
from test_distributed import close, torchrun
from toys import toy_policy

from rlforge_cli.grpo.logprobs import _ChunkedHead, fused_head, logprobs_and_entropy

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
GPU = torch.device("cuda")


def head_inputs(rows: int, vocabulary: int, *, scale: float = 1.0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    hidden = (scale * torch.randn(rows, 64, device=GPU)).bfloat16().requires_grad_()
    weight = torch.randn(vocabulary, 64, device=GPU).bfloat16().requires_grad_()
    return hidden, weight, torch.randint(vocabulary, (rows,), device=GPU)


@pytest.mark.parametrize("with_entropy", [False, True])
@pytest.mark.parametrize(("rows", "vocabulary", "chunk"), [(7, 50, 3), (33, 4096, 33), (20, 9001, 8), (1, 1, 1)])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_fused_head_is_the_chunked_head(rows, vocabulary, chunk, temperature, with_entropy):
    if fused_head() is None:
        pytest.skip("Triton is not installed")
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
