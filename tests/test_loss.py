from __future__ import annotations

import math

import pytest
import torch

from rlforge_cli.grpo import grpo_loss
from rlforge_cli.grpo.loss import kl_estimate, loss_denominator

CLIP = {"clip_low": 0.2, "clip_high": 0.28}


def tensor(rows):
    return torch.tensor(rows, dtype=torch.float64)


def test_hand_computed_loss_with_both_clips():
    # ratios 2, 0.5 / 1.1, 0.7; advantages +1 / -1
    logprobs = tensor([[math.log(2), math.log(0.5)], [math.log(1.1), math.log(0.7)]])
    mask = torch.ones(2, 2, dtype=torch.bool)
    loss, metrics = grpo_loss(logprobs, torch.zeros_like(logprobs), tensor([1.0, -1.0]), mask, **CLIP)
    # -min(2, 1.28) = -1.28, -min(.5, .8) = -.5; max(1.1, 1.1) = 1.1, max(.7, .8) = .8
    assert loss.item() == pytest.approx(((-1.28 - 0.5) / 2 + (1.1 + 0.8) / 2) / 2, abs=1e-12)
    assert metrics["clip_fraction_high"].item() == 0.25
    assert metrics["clip_fraction_low"].item() == 0.25
    assert metrics["clip_fraction"].item() == 0.5
    assert metrics["tokens_in_loss"].item() == 4
    assert metrics["ratio_mean"].item() == pytest.approx((2 + 0.5 + 1.1 + 0.7) / 4)


def test_aggregations_of_rows_of_different_length():
    logprobs = tensor([[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    mask = torch.tensor([[True, False, False], [True, True, True]])
    advantages = tensor([1.0, -1.0])
    losses = {
        name: grpo_loss(logprobs, logprobs, advantages, mask, aggregation=name, **CLIP)[0].item()
        for name in ("sequence", "token", "constant")
    }
    assert losses == pytest.approx({"sequence": 0.0, "token": 0.5, "constant": 2 / 6})


@pytest.mark.parametrize("aggregation", ["sequence", "token", "constant"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_micro_batches_with_the_whole_denominator_add_up(aggregation, size):
    generator = torch.Generator().manual_seed(3)
    logprobs = -torch.rand(6, 5, generator=generator, dtype=torch.float64)
    old = -torch.rand(6, 5, generator=generator, dtype=torch.float64)
    advantages = torch.randn(6, generator=generator, dtype=torch.float64)
    mask = torch.arange(5) < torch.tensor([5, 1, 3, 4, 2, 5])[:, None]
    whole, _ = grpo_loss(logprobs, old, advantages, mask, aggregation=aggregation, **CLIP)
    denominator = loss_denominator(mask, aggregation=aggregation)
    parts = [
        grpo_loss(logprobs[i : i + size], old[i : i + size], advantages[i : i + size], mask[i : i + size],
                  aggregation=aggregation, denominator=denominator, **CLIP)[0]
        for i in range(0, 6, size)
    ]  # fmt: skip
    torch.testing.assert_close(sum(parts), whole, rtol=0, atol=1e-14)


def test_token_mean_is_not_divided_by_the_accumulation_again():
    theta = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    # loss a token = -theta c; sequences of 2 tokens (c = 1) and 8 tokens (c = 0): the mean over ten tokens is -.2 theta
    for row, length in ((0, 2), (1, 8)):
        logprobs = torch.zeros(1, 8, dtype=torch.float64) + (theta - 1)
        mask = torch.arange(8)[None] < length
        advantage = torch.tensor([1.0 if row == 0 else 0.0], dtype=torch.float64)
        loss, _ = grpo_loss(logprobs, logprobs.detach(), advantage, mask, aggregation="token", denominator=10, **CLIP)
        loss.backward()
    assert theta.grad.item() == pytest.approx(-0.2, abs=1e-12)


def test_a_masked_completion_is_in_neither_numerator_nor_denominator():
    mask = torch.tensor([[True] * 4, [False] * 4])
    logprobs = tensor([[0.0] * 4, [0.0] * 4])
    for aggregation in ("sequence", "token"):
        loss, metrics = grpo_loss(logprobs, logprobs, tensor([-1.0, -5.0]), mask, aggregation=aggregation, **CLIP)
        assert loss.item() == 1.0
        assert metrics["tokens_in_loss"].item() == 4


def test_no_trained_token_gives_zero_and_no_gradient():
    logprobs = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    loss, metrics = grpo_loss(
        logprobs, logprobs.detach(), tensor([1.0, 1.0]), torch.zeros(2, 3, dtype=torch.bool), **CLIP
    )
    loss.backward()
    assert loss.item() == 0.0
    assert torch.equal(logprobs.grad, torch.zeros_like(logprobs))
    assert metrics["tokens_in_loss"].item() == 0


def test_nan_counts_only_where_tokens_are_trained():
    logprobs = torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
    old = tensor([[0.0, float("nan")]])
    loss, _ = grpo_loss(logprobs, old, tensor([[1.0, 1.0]]), torch.tensor([[True, False]]), **CLIP)
    loss.backward()
    assert loss.item() == -1.0
    assert logprobs.grad.tolist() == [[-1.0, 0.0]]
    shown, _ = grpo_loss(logprobs, old, tensor([[1.0, 1.0]]), torch.tensor([[True, True]]), **CLIP)
    assert shown.isnan()


def test_a_small_divergence_is_not_lost_in_float32():
    d = torch.tensor([1e-5, 1e-4, -1e-3])
    value = kl_estimate(torch.zeros(3), d)
    torch.testing.assert_close(value, d.square() / 2, rtol=1e-3, atol=1e-12)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_kl_is_finite_with_finite_gradient_far_away(estimator):
    logprobs = torch.zeros(3, requires_grad=True)
    value = kl_estimate(logprobs, torch.tensor([100.0, -100.0, 0.0]), estimator=estimator)
    value.sum().backward()
    assert value.isfinite().all()
    assert logprobs.grad.isfinite().all()
    assert value[2].item() == 0.0


def test_kl_estimators_by_hand():
    logprobs, reference = tensor([-1.0]), tensor([-1.5])
    values = {name: kl_estimate(logprobs, reference, estimator=name).item() for name in ("k1", "k2", "k3")}
    assert values == pytest.approx({"k1": 0.5, "k2": 0.125, "k3": math.exp(-0.5) + 0.5 - 1})


def test_kl_is_logged_without_a_coefficient_and_pulls_only_with_one():
    logprobs = torch.full((1, 2), -1.0, dtype=torch.float64, requires_grad=True)
    reference = torch.full((1, 2), -1.5, dtype=torch.float64)
    mask = torch.ones(1, 2, dtype=torch.bool)
    dead = tensor([0.0])
    for kl_coef, pulled in ((0.0, False), (0.04, True)):
        logprobs.grad = None
        loss, metrics = grpo_loss(
            logprobs, logprobs.detach(), dead, mask, kl_coef=kl_coef, ref_logprobs=reference, **CLIP
        )
        loss.backward()
        assert metrics["kl_ref"].item() == pytest.approx(math.exp(-0.5) + 0.5 - 1)
        assert loss.item() == pytest.approx(kl_coef * (math.exp(-0.5) - 0.5))
        assert bool(logprobs.grad.abs().sum() > 0) == pulled


def test_entropy_bonus_lowers_the_loss():
    logprobs = torch.zeros(1, 2, dtype=torch.float64)
    entropy = tensor([[0.5, 1.5]])
    loss, metrics = grpo_loss(
        logprobs, logprobs, tensor([0.0]), torch.ones(1, 2, dtype=torch.bool), entropy=entropy, entropy_coef=0.1, **CLIP
    )
    assert loss.item() == pytest.approx(-0.1)
    assert metrics["entropy"].item() == 1.0


def test_missing_inputs_are_refused():
    logprobs, mask = torch.zeros(1, 1), torch.ones(1, 1, dtype=torch.bool)
    with pytest.raises(ValueError, match="ref_logprobs"):
        grpo_loss(logprobs, logprobs, torch.zeros(1), mask, kl_coef=0.1, **CLIP)
    with pytest.raises(ValueError, match="entropy"):
        grpo_loss(logprobs, logprobs, torch.zeros(1), mask, entropy_coef=0.1, **CLIP)
