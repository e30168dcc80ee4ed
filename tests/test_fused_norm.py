from __future__ import annotations

import pytest
import torch
from toys import toy_policy
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

from rlforge_cli.fused_norm import RMSNorm, fuse_norms


def pair(dtype: torch.dtype) -> tuple[torch.nn.Module, torch.nn.Module]:
    torch.manual_seed(0)
    plain, fused = Qwen3RMSNorm(16).to(dtype), Qwen3RMSNorm(16).to(dtype)
    with torch.no_grad():
        for module in (plain, fused):
            module.weight.copy_(torch.linspace(0.5, 2, 16))
    fuse_norms(fused)
    assert isinstance(fused, RMSNorm)
    return plain, fused


@pytest.mark.parametrize("shape", [(5, 16), (2, 3, 16), (2, 3, 4, 16)])
def test_values_and_gradients_are_those_of_the_model_library(shape):
    plain, fused = pair(torch.float32)
    upstream = torch.randn(shape)
    results = []
    for module in (plain, fused):
        hidden = torch.randn(shape, generator=torch.Generator().manual_seed(1)).mul(3).requires_grad_()
        output = module(hidden)
        output.backward(upstream)
        results.append((output, hidden.grad, module.weight.grad))
    for ours, theirs in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_bfloat16_rounds_where_the_library_does():
    plain, fused = pair(torch.bfloat16)
    hidden = torch.randn(200, 16).mul(3).bfloat16()
    assert (plain(hidden) != fused(hidden)).float().mean() < 0.01  # a sum in another order may flip the last bit


def test_gradients_by_finite_differences():
    hidden = torch.randn(3, 6, dtype=torch.float32, requires_grad=True)
    weight = torch.rand(6, requires_grad=True)
    module = Qwen3RMSNorm(6)
    fuse_norms(module)
    module.weight = torch.nn.Parameter(weight.detach())
    loss = (module(hidden) ** 3).sum()
    loss.backward()
    step = 1e-2
    for index in ((0, 0), (1, 3), (2, 5)):
        values = []
        for sign in (1, -1):
            moved = hidden.detach().clone()
            moved[index] += sign * step
            values.append((module(moved) ** 3).sum().item())
        assert hidden.grad[index].item() == pytest.approx((values[0] - values[1]) / (2 * step), rel=0.02, abs=0.02)


def test_names_and_saved_files_stay_as_they_are(tmp_path):
    policy = toy_policy()
    before = list(policy.model.state_dict())
    ids = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        expected = policy.model(ids).logits
        fuse_norms(policy.model)
        torch.testing.assert_close(policy.model(ids).logits, expected, rtol=1e-5, atol=1e-6)
    assert list(policy.model.state_dict()) == before
    policy.save(tmp_path / "model")
    from transformers import AutoModelForCausalLM

    again = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert type(again.model.norm).__name__ == "Qwen3RMSNorm"
