from __future__ import annotations

import math

import pytest
import torch
from jaxtyping import TypeCheckError

from rlforge_cli.grpo import group_advantages, has_spread

NAN = float("nan")


@pytest.mark.parametrize(("std", "winner"), [("population", math.sqrt(3)), ("sample", 1.5), ("none", 0.75)])
def test_one_right_of_four(std, winner):
    advantages = group_advantages(torch.tensor([[1.0, 0, 0, 0]], dtype=torch.float64), std=std, eps=0.0)
    torch.testing.assert_close(advantages[0, 0].item(), winner, rtol=0, atol=1e-12)
    torch.testing.assert_close(advantages[0, 1].item(), -winner / 3, rtol=0, atol=1e-12)


def test_mean_and_std_are_of_each_group():
    rewards = torch.tensor([[1.2, 1.2, 0.2, 0.2], [0.2, 0.2, 0.2, 1.2]], dtype=torch.float64)
    expected = [[0.865875, 0.865875, -0.865875, -0.865875], [-0.4999, -0.4999, -0.4999, 1.4997]]
    torch.testing.assert_close(
        group_advantages(rewards, std="sample", eps=1e-4),
        torch.tensor(expected, dtype=torch.float64),
        rtol=0,
        atol=1e-5,
    )


def test_groups_of_unequal_size_are_padded_with_unscored():
    rewards = torch.tensor([[1.2, 0.2, 1.2, 0.2], [0.7, 0.7, 0.7, NAN], [0.2, 0.2, 0.2, 1.2]], dtype=torch.float64)
    expected = [[0.865875, -0.865875, 0.865875, -0.865875], [0, 0, 0, 0], [-0.4999, -0.4999, -0.4999, 1.4997]]
    advantages = group_advantages(rewards, std="sample", eps=1e-4)
    torch.testing.assert_close(advantages, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-5)
    shuffled = group_advantages(rewards[[2, 0, 1]][:, [3, 1, 0, 2]], std="sample", eps=1e-4)
    torch.testing.assert_close(shuffled, advantages[[2, 0, 1]][:, [3, 1, 0, 2]], rtol=0, atol=1e-14)


def test_an_unscored_completion_leaves_the_baseline_alone():
    advantages = group_advantages(torch.tensor([[1.2, NAN, 0.2, 1.2]], dtype=torch.float64), std="sample", eps=1e-4)
    expected = torch.tensor([[0.57725, 0.0, -1.154501, 0.57725]], dtype=torch.float64)
    torch.testing.assert_close(advantages, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("size", [6, 8, 12, 16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("value", [1.2, 0.2, 0.7, -0.3, 1.0, 0.0])
def test_equal_rewards_give_exactly_zero(value, dtype, size):
    alone = torch.full((1, size), value, dtype=dtype)
    batch = alone.expand(5, size)
    for rewards in (alone, batch):
        assert not has_spread(rewards).any()
        assert torch.equal(group_advantages(rewards), torch.zeros_like(rewards))


def test_small_but_real_spread_is_kept():
    groups = torch.tensor([[0.2] * 8, [1.2] * 7 + [0.2], [0.2] * 7 + [-0.3], [NAN] * 8])
    assert has_spread(groups).tolist() == [False, True, True, False]


def test_spread_of_a_live_batch_is_about_one():
    generator = torch.Generator().manual_seed(0)
    rewards = torch.rand(64, 8, generator=generator, dtype=torch.float64)
    advantages = group_advantages(rewards)
    torch.testing.assert_close(advantages.sum(-1), torch.zeros(64, dtype=torch.float64), rtol=0, atol=1e-12)
    assert advantages.std().item() == pytest.approx(math.sqrt(512 / 511), abs=1e-4)


def test_rewards_without_groups_are_refused():
    with pytest.raises((ValueError, TypeCheckError)):
        group_advantages(torch.zeros(4))
