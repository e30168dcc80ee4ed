from __future__ import annotations

import math

import pytest
import torch

from rlforge_cli.grpo import grpo_loss, importance_weights
from rlforge_cli.grpo.correction import over_reported, sampling_metrics

CLIP = {"clip_low": 0.2, "clip_high": 0.28}
NAN, INF = float("nan"), float("inf")
# what the trainer's probability is of the engine's; products 1.5 x 4 x 0.75 = 4.5 and 0.4 x 1.5 = 0.6
RATIOS = [[1.5, 4.0, 0.75], [0.4, 1.5, 7.0]]
MASK = torch.tensor([[True, True, True], [True, True, False]])
BY_HAND = [
    ("token-truncate", [[1.5, 2.0, 0.75], [0.4, 1.5, 0.0]], [[0, 1, 0], [0, 0, 0]]),
    ("token-mask", [[1.5, 0.0, 0.75], [0.0, 1.5, 0.0]], [[0, 1, 0], [1, 0, 0]]),
    ("sequence-truncate", [[2.0, 2.0, 2.0], [0.6, 0.6, 0.0]], [[1, 1, 1], [0, 0, 0]]),
    ("sequence-mask", [[0.0, 0.0, 0.0], [0.6, 0.6, 0.0]], [[1, 1, 1], [0, 0, 0]]),
]


def tensor(rows):
    return torch.tensor(rows, dtype=torch.float64)


def pair(ratios=RATIOS):
    """Log-probabilities of trainer and engine with these ratios."""
    old = tensor([[-0.3, -1.1, -2.0], [-0.7, -0.2, -5.0]])[:, : len(ratios[0])]
    return old, old - tensor(ratios).log()


@pytest.mark.parametrize(("mode", "weights", "outside"), BY_HAND)
def test_weights_by_hand(mode, weights, outside):
    old, sampling = pair()
    got, changed = importance_weights(old.requires_grad_(), sampling, MASK, mode=mode, cap=2.0)
    torch.testing.assert_close(got, tensor(weights), rtol=0, atol=1e-12)
    assert changed.int().tolist() == outside
    assert not got.requires_grad


@pytest.mark.parametrize(("mode", "weights", "outside"), BY_HAND)
def test_gradients_by_hand(mode, weights, outside):
    old, sampling = pair()
    logprobs = old.clone().requires_grad_()
    used, _ = importance_weights(old, sampling, MASK, mode=mode, cap=2.0)
    loss, _ = grpo_loss(logprobs, old, tensor([1.0, -2.0]), MASK, weights=used, **CLIP)
    loss.backward()
    # at ratio 1: -A w / tokens of the sequence / sequences
    row, other = weights
    expected = [[-w / 3 / 2 for w in row], [2.0 * w / 2 / 2 for w in other]]
    torch.testing.assert_close(logprobs.grad, tensor(expected), rtol=0, atol=1e-12)
    assert loss.item() == pytest.approx(sum(map(sum, expected)), abs=1e-12)


@pytest.mark.parametrize(("mode", "weights", "outside"), BY_HAND)
def test_the_correction_multiplies_the_clipped_term_and_stays_apart_from_its_ratio(mode, weights, outside):
    old, sampling = pair()
    logprobs = (old + math.log(1.5)).requires_grad_()  # above the clip: no gradient where A > 0, 1.5 where A < 0
    used, _ = importance_weights(old, sampling, MASK, mode=mode)
    loss, metrics = grpo_loss(logprobs, old, tensor([1.0, -1.0]), MASK, weights=used, **CLIP)
    loss.backward()
    expected = [[0.0] * 3, [1.5 * w / 4 for w in weights[1]]]
    torch.testing.assert_close(logprobs.grad, tensor(expected), rtol=0, atol=1e-12)
    assert loss.item() == pytest.approx(-1.28 * sum(weights[0]) / 6 + 1.5 * sum(weights[1]) / 4, abs=1e-12)
    assert metrics["ratio_mean"].item() == pytest.approx(1.5)


def test_kl_and_entropy_are_not_weighted():
    old, _ = pair()
    extra = {
        "ref_logprobs": old - 0.5, "kl_coef": 0.04, "entropy": torch.full_like(old, 0.3), "entropy_coef": 0.1,
    }  # fmt: skip
    found = []
    for advantages, weights in ((tensor([0.0, 0.0]), None), (tensor([3.0, -1.0]), torch.zeros_like(old))):
        logprobs = old.clone().requires_grad_()
        loss, _ = grpo_loss(logprobs, old, advantages, MASK, weights=weights, **extra, **CLIP)
        loss.backward()
        found.append((loss.item(), logprobs.grad))
    assert found[0][0] == found[1][0] != 0
    assert torch.equal(found[0][1], found[1][1])
    assert found[0][1].abs().sum() > 0


@pytest.mark.parametrize("aggregation", ["sequence", "token", "constant"])
def test_no_weights_are_weights_of_one_to_the_last_bit(aggregation):
    generator = torch.Generator().manual_seed(0)
    old = -torch.rand(2, 3, generator=generator)
    found = []
    for weights in (None, torch.ones(2, 3)):
        logprobs = (old + 0.3 * torch.randn(2, 3, generator=torch.Generator().manual_seed(1))).requires_grad_()
        loss, _ = grpo_loss(
            logprobs, old, torch.tensor([1.0, -0.7]), MASK, aggregation=aggregation, weights=weights, **CLIP
        )
        loss.backward()
        found.append((loss, logprobs.grad))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])


@pytest.mark.parametrize("mode", [mode for mode, _, _ in BY_HAND])
def test_an_engine_that_agrees_gets_weights_of_one(mode):
    old, _ = pair()
    weights, outside = importance_weights(old, old, MASK, mode=mode)
    assert torch.equal(weights, MASK.double())
    assert not outside.any()


@pytest.mark.parametrize("mode", [mode for mode, _, _ in BY_HAND])
def test_padding_and_the_other_rows_change_nothing(mode):
    old, sampling = pair()
    whole, outside = importance_weights(old, sampling, MASK, mode=mode)
    for row, length in ((0, 3), (1, 2)):
        for width in (length, 3):
            part = slice(row, row + 1), slice(0, width)
            got, changed = importance_weights(old[part], sampling[part], MASK[part], mode=mode)
            assert torch.equal(got, whole[part])
            assert torch.equal(changed, outside[part])
    for padding in (NAN, -INF, 3.0):
        other = sampling.masked_fill(~MASK, padding)
        assert torch.equal(importance_weights(old, other, MASK, mode=mode)[0], whole)


def test_an_unreported_token_weighs_one_and_is_not_counted():
    old, sampling = pair()
    sampling[0, 1] = NAN  # the ratio of 4; 1.5 x 0.75 = 1.125 remains
    sampling[1] = NAN
    for mode, expected in (
        ("token-truncate", [[1.5, 1.0, 0.75], [1.0, 1.0, 0.0]]),
        ("token-mask", [[1.5, 1.0, 0.75], [1.0, 1.0, 0.0]]),
        ("sequence-truncate", [[1.125] * 3, [1.0, 1.0, 0.0]]),
        ("sequence-mask", [[1.125] * 3, [1.0, 1.0, 0.0]]),
    ):
        weights, outside = importance_weights(old, sampling, MASK, mode=mode)
        torch.testing.assert_close(weights, tensor(expected), rtol=0, atol=1e-12)
        assert not outside.any()
    weights, outside = importance_weights(old, sampling, MASK, mode="sequence-truncate", cap=1.1)
    torch.testing.assert_close(weights[0], tensor([1.1] * 3), rtol=0, atol=1e-12)
    assert outside.int().tolist() == [[1, 0, 1], [0, 0, 0]]
    metrics = sampling_metrics(old, sampling, MASK, weights=weights, outside=outside)
    record = over_reported({key: float(value) for key, value in metrics.items()})
    assert record["reported_fraction"] == pytest.approx(2 / 5)
    assert record["correction_fraction"] == pytest.approx(1.0)
    assert record["correction_weight"] == pytest.approx(1.1)
    d = [math.log(1.5), math.log(0.75)]
    assert record["kl_sampling"] == pytest.approx(sum(math.exp(x) - x - 1 for x in d) / 2)


@pytest.mark.parametrize("impossible", [-INF, INF])
@pytest.mark.parametrize(
    ("mode", "expected", "counted"),
    [("token-truncate", [1.5, 0.0, 0.75], [0, 1, 0]), ("token-mask", [1.5, 0.0, 0.75], [0, 1, 0]),
     ("sequence-truncate", [0.0] * 3, [1, 1, 1]), ("sequence-mask", [0.0] * 3, [1, 1, 1])],
)  # fmt: skip
def test_an_infinite_log_probability_is_masked_and_counted(mode, expected, counted, impossible):
    old, sampling = pair()
    sampling[0, 1] = impossible
    weights, outside = importance_weights(old, sampling, MASK, mode=mode)
    torch.testing.assert_close(weights[0], tensor(expected), rtol=0, atol=1e-12)
    assert outside[0].int().tolist() == counted
    assert weights.isfinite().all()


@pytest.mark.parametrize("mode", [mode for mode, _, _ in BY_HAND])
def test_a_trainer_that_is_nan_is_not_hidden_and_a_far_one_does_not_overflow(mode):
    old, sampling = pair()
    old[0, 0] = NAN
    assert importance_weights(old, sampling, MASK, mode=mode)[0][0].isnan().any()
    far = torch.full((1, 2), -1.0), torch.full((1, 2), -2000.0), torch.ones(1, 2, dtype=torch.bool)
    expected = 2.0 if mode.endswith("truncate") else 0.0
    assert importance_weights(*far, mode=mode)[0].tolist() == [[expected] * 2]


def test_metrics_by_hand():
    old, sampling = pair()
    shares = {"token-truncate": (1 / 5, 1.23), "token-mask": (2 / 5, 0.75), "sequence-truncate": (3 / 5, 1.44),
              "sequence-mask": (3 / 5, 0.24)}  # fmt: skip
    for mode, (fraction, weight) in shares.items():
        weights, outside = importance_weights(old, sampling, MASK, mode=mode)
        metrics = sampling_metrics(old, sampling, MASK, weights=weights, outside=outside)
        assert metrics["correction_fraction"].item() == pytest.approx(fraction)
        assert metrics["correction_weight"].item() == pytest.approx(weight)
    assert set(sampling_metrics(old, sampling, MASK)) == {"kl_sampling", "reported_fraction"}


def test_a_cap_that_caps_nothing_is_refused():
    old, sampling = pair()
    for cap in (1.0, 0.5, NAN):
        with pytest.raises(ValueError, match="cap must be above 1"):
            importance_weights(old, sampling, MASK, mode="token-mask", cap=cap)
