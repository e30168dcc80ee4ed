from __future__ import annotations

import pytest
import torch

from rlforge_cli.grpo import logprobs_and_entropy, token_logprobs
from rlforge_cli.grpo.batch import make_batch, micro_batches


def inputs(dtype=torch.float64, rows=7, vocabulary=13, width=5):
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(rows, width, generator=generator, dtype=dtype, requires_grad=True)
    weight = torch.randn(vocabulary, width, generator=generator, dtype=dtype, requires_grad=True)
    return hidden, weight, torch.randint(0, vocabulary, (rows,), generator=generator)


def test_temperature_divides_the_logits():
    # a head of one-hot rows makes the hidden state the logits
    logits = torch.tensor([[2.0, 1.0, 0.0]], dtype=torch.float64)
    values = [
        token_logprobs(logits, torch.eye(3, dtype=torch.float64), torch.tensor([t]), temperature=0.6) for t in range(3)
    ]
    torch.testing.assert_close(
        torch.cat(values), torch.tensor([-0.2026, -1.8692, -3.5359], dtype=torch.float64), rtol=0, atol=1e-4
    )


@pytest.mark.parametrize("chunk", [1, 3, 7, 100])
@pytest.mark.parametrize("temperature", [0.6, 1.0])
def test_values_and_gradients_equal_the_plain_computation(chunk, temperature):
    hidden, weight, targets = inputs()
    logprobs, entropy = logprobs_and_entropy(hidden, weight, targets, temperature=temperature, chunk=chunk)
    plain = torch.log_softmax(hidden @ weight.T / temperature, -1)
    torch.testing.assert_close(logprobs, plain.gather(-1, targets[:, None])[:, 0], rtol=0, atol=1e-12)
    torch.testing.assert_close(entropy, -(plain.exp() * plain).sum(-1), rtol=0, atol=1e-12)
    upstream = torch.arange(7, dtype=torch.float64)
    ours = torch.autograd.grad((logprobs * upstream).sum() + (entropy * upstream).sum(), (hidden, weight))
    chosen, negentropy = plain.gather(-1, targets[:, None])[:, 0], (plain.exp() * plain).sum(-1)
    wanted = (chosen * upstream).sum() - (negentropy * upstream).sum()
    for got, expected in zip(ours, torch.autograd.grad(wanted, (hidden, weight)), strict=True):
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


def test_gradcheck():
    hidden, weight, targets = inputs(rows=4)
    assert torch.autograd.gradcheck(
        lambda h, w: logprobs_and_entropy(h, w, targets, temperature=0.7, chunk=3), (hidden, weight)
    )


def test_a_frozen_head_gets_no_gradient():
    hidden, weight, targets = inputs()
    token_logprobs(hidden, weight.detach(), targets).sum().backward()
    assert hidden.grad is not None
    assert weight.grad is None


def test_memory_does_not_grow_with_positions_times_vocabulary():
    class Counting(torch.overrides.TorchFunctionMode):
        largest = 0

        def __torch_function__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            for tensor in result if isinstance(result, tuple) else (result,):
                if isinstance(tensor, torch.Tensor):
                    Counting.largest = max(Counting.largest, tensor.numel())
            return result

    hidden, weight, targets = inputs(dtype=torch.float32, rows=600, vocabulary=1000)
    with Counting():
        logprobs_and_entropy(hidden, weight, targets, chunk=16)
    assert Counting.largest <= 16 * 1000


def test_half_precision_logits_are_normalised_in_float32():
    hidden, weight, targets = inputs(dtype=torch.float32)
    logprobs = token_logprobs(hidden.bfloat16(), weight.bfloat16(), targets)
    assert logprobs.dtype == torch.float32
    torch.testing.assert_close(logprobs, token_logprobs(hidden, weight, targets), rtol=0.05, atol=0.05)


def test_mask_comes_from_lengths_not_from_ids():
    # 2 is both padding and end token in many models
    batch = make_batch([[1, 2], [3]], [[7, 8, 2], [7, 8, 9, 9, 2]])
    assert batch.completion_mask.int().tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]
    assert batch.targets.tolist() == [7, 8, 2, 7, 8, 9, 9, 2]
    assert batch.slots.tolist() == [0, 1, 2, 5, 6, 7, 8, 9]
    assert batch.input_ids.tolist() == [[1, 2, 7, 8, 2, 0], [3, 7, 8, 9, 9, 2]]
    # each source position holds the token before the predicted one
    before = batch.input_ids.flatten()[batch.source]
    assert before.tolist() == [2, 7, 8, 3, 7, 8, 9, 9]


@pytest.mark.parametrize("overhead", [0, 3, 100])
@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_micro_batches_cover_every_row_once_longest_first(size, overhead):
    parts = micro_batches([5, 9, 2, 9, 7], size=size, overhead=overhead)
    assert [row for part in parts for row in part] == [1, 3, 4, 0, 2]
    assert all(0 < len(part) <= size for part in parts)


@pytest.mark.parametrize(
    ("overhead", "parts"), [(0, [[0, 1], [2], [3]]), (2, [[0, 1], [2, 3]]), (100, [[0, 1, 2, 3]]), (21, [[0, 1, 2, 3]])]
)
def test_cuts_weigh_padding_against_launches(overhead, parts):
    # 10 10 4 3: one batch pads to 40 positions, two to 28, three to 27
    assert micro_batches([10, 10, 4, 3], size=4, overhead=overhead) == parts
