"""Packed batches: values and gradients of the padded ones, for any mixture of shared prompts and lengths."""

from __future__ import annotations

import pytest
import torch
from toys import toy_policy

from rlforge_cli.adapters import recompute_activations
from rlforge_cli.grpo.batch import make_batch
from rlforge_cli.grpo.packing import pack_rows

GROUPS = {
    "shared": ([[1, 2, 3]] * 3 + [[4]] * 2, [[5, 6, 16], [7], [8, 9, 0, 16], [1, 2, 3, 4, 16], [16]]),
    "no neighbour shares": ([[1, 2], [3], [1, 2]], [[4, 16], [5, 6, 7], [8]]),
    "one row": ([[1, 2, 3]], [[4, 5]]),
    "an empty completion": ([[1, 2]] * 3, [[], [3, 16], []]),
    "equal lengths": ([[1, 2]] * 4, [[3, 4]] * 4),
}


def test_layout_of_two_rows_that_share_a_prompt():
    ids, packing = pack_rows([[1, 2], [1, 2], [3]], [[5], [6, 7], [8]])
    assert ids.tolist() == [[1, 2, 5, 6, 7, 3, 8]]
    assert packing.positions.tolist() == [[0, 1, 2, 2, 3, 0, 1]]
    assert packing.source.view(3, 4).tolist() == [[0, 1, 2, 0], [0, 1, 3, 4], [5, 6, 5, 5]]
    assert packing.place.tolist() == [0, 1, 2, 6, 7, 8, 9]
    assert packing.shared == ((0, 2, 0, 2),)


@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_values_and_gradients_are_those_of_padded_rows(name, checkpointing):
    prompts, completions = GROUPS[name]
    found = []
    for packed in (False, True):
        policy = toy_policy(seed=2)
        policy.model.double().train()
        if checkpointing:
            recompute_activations(policy.model)
        assert policy.packs
        logprobs, entropy = policy.logprobs(make_batch(prompts, completions, packed=packed), temperature=0.7)
        weights = torch.linspace(-1, 1, logprobs.numel(), dtype=torch.float64).view_as(logprobs)
        ((logprobs + 0.3 * entropy) * weights).sum().backward()
        found.append((logprobs.detach(), entropy.detach(), [p.grad for p in policy.model.parameters()]))
    (logprobs, entropy, grads), (packed_logprobs, packed_entropy, packed_grads) = found
    torch.testing.assert_close(packed_logprobs, logprobs, rtol=0, atol=1e-12)
    torch.testing.assert_close(packed_entropy, entropy, rtol=0, atol=1e-12)
    for grad, packed_grad in zip(grads, packed_grads, strict=True):
        torch.testing.assert_close(packed_grad, grad, rtol=0, atol=2e-6)  # norms are float32 inside


def test_a_prompt_is_computed_once():
    prompts, completions = [[1, 2, 3, 4]] * 5, [[5]] * 5
    assert make_batch(prompts, completions, packed=True).input_ids.numel() == 4 + 5
    assert make_batch(prompts, completions).input_ids.numel() == 5 * 5
