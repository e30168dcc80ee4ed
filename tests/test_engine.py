"""The contract of a rollout engine; the in-process engine passes it."""

from __future__ import annotations

import pytest
import torch
from toys import ToyTokenizer, toy_policy

from rlforge_cli.engines.hf import HFEngine, unsupported_reason
from rlforge_cli.engines.sampling import filtered_logits, sample
from rlforge_cli.grpo.batch import make_batch
from rlforge_cli.rollouts import Completion, SamplingParams, finish

PROMPTS = [[15, 1, 2, 3], [4], [15, 5, 6, 7, 8, 9, 0, 1], [3, 3]]
GREEDY = SamplingParams(max_tokens=12, temperature=0.0)


@pytest.fixture(scope="module")
def policy():
    return toy_policy()


def flat(groups: list[list[Completion]]) -> list[Completion]:
    return [completion for group in groups for completion in group]


def test_greedy_tokens_are_those_of_transformers(policy):
    groups = HFEngine(policy).generate(PROMPTS, n=1, params=GREEDY, seed=0)
    for prompt, (completion,) in zip(PROMPTS, groups, strict=True):
        with torch.no_grad():
            expected = policy.model.generate(
                torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt)), max_new_tokens=12, do_sample=False
            )[0, len(prompt) :].tolist()
        assert completion.completion_ids == expected


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.7])
def test_sampling_logprobs_are_those_of_the_trainer(policy, temperature):
    params = SamplingParams(max_tokens=12, temperature=temperature)
    groups = HFEngine(policy).generate(PROMPTS, n=5, params=params, seed=4)
    completions = flat(groups)
    prompts = [prompt for prompt in PROMPTS for _ in range(5)]
    with torch.no_grad():
        logprobs, _ = policy.logprobs(
            make_batch(prompts, [c.completion_ids for c in completions]), temperature=temperature
        )
    for row, completion in enumerate(completions):
        ours = logprobs[row, : len(completion.completion_ids)]
        torch.testing.assert_close(ours, torch.tensor(completion.sampling_logprobs), rtol=0, atol=1e-5)


def test_one_seed_gives_the_same_and_two_differ(policy):
    engine = HFEngine(policy)
    params = SamplingParams(max_tokens=12)
    first, again, other = (engine.generate(PROMPTS, n=4, params=params, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert len({tuple(c.completion_ids) for c in flat(first)}) > 8  # the members of a group differ


def test_a_completion_does_not_depend_on_its_batch(policy):
    params = SamplingParams(max_tokens=12)
    whole = HFEngine(policy, batch_size=256).generate(PROMPTS, n=3, params=params, seed=9)
    split = HFEngine(policy, batch_size=3).generate(PROMPTS, n=3, params=params, seed=9)
    assert [c.completion_ids for c in flat(whole)] == [c.completion_ids for c in flat(split)]


def test_every_declared_end_token_ends_and_the_last_place_may_be_one():
    tokenizer = ToyTokenizer()
    ends = frozenset({16, 17})
    rows = [[5, 6, 17, 16, 16], [5, 16, 16, 16, 16], [5, 6, 7, 8, 9], [5, 6, 7, 8, 17]]
    done = [finish(row, [-1.0] * 5, ends=ends, tokenizer=tokenizer) for row in rows]
    assert [c.completion_ids for c in done] == [[5, 6, 17], [5, 16], [5, 6, 7, 8, 9], [5, 6, 7, 8, 17]]
    assert [c.truncated for c in done] == [False, False, True, False]
    assert [len(c.sampling_logprobs) for c in done] == [3, 2, 5, 5]


def test_both_end_tokens_of_the_model_are_used(policy):
    assert policy.end_ids == [16, 17]
    completions = flat(
        HFEngine(policy).generate([[i] for i in range(15)], n=20, params=SamplingParams(max_tokens=40), seed=0)
    )
    endings = {c.completion_ids[-1] for c in completions if not c.truncated}
    assert endings == {16, 17}
    assert all(not {16, 17} & set(c.completion_ids[:-1]) for c in completions)


def test_a_stop_text_cuts_tokens_and_text_together():
    done = finish(
        [1, 2, 13, 14, 3, 4], [-1.0, -2, -3, -4, -5, -6], ends=frozenset({16}), tokenizer=ToyTokenizer(), stop=("\nQ:",)
    )
    assert done.text == "12"
    assert done.completion_ids == [1, 2, 13, 14]
    assert done.sampling_logprobs == [-1.0, -2, -3, -4]
    assert done.finish_reason == "stop"


def test_sampled_ids_are_never_tokenized_again():
    # "he" + "llo" would be one token to many tokenizers; what was sampled is what is trained
    done = finish([11, 12], [-1.0, -1.0], ends=frozenset({16}), tokenizer=ToyTokenizer())
    assert (done.completion_ids, done.text) == ([11, 12], "hello")


def test_engine_leaves_the_model_as_it_was(policy):
    policy.model.train()
    before = (policy.backbone.config._attn_implementation, torch.get_num_threads())
    HFEngine(policy).generate(PROMPTS, n=1, params=GREEDY, seed=0)
    assert policy.model.training
    assert (policy.backbone.config._attn_implementation, torch.get_num_threads()) == before


def test_changed_weights_change_the_completions():
    policy = toy_policy(seed=5)
    engine = HFEngine(policy)
    params = SamplingParams(max_tokens=12)
    before = engine.generate(PROMPTS, n=2, params=params, seed=0)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.mul_(1.5)
    assert engine.generate(PROMPTS, n=2, params=params, seed=0) != before


@pytest.mark.parametrize(
    ("top_p", "top_k", "expected"),
    [(1.0, 0, [0.5, 0.3, 0.15, 0.05]), (0.8, 0, [0.625, 0.375, 0, 0]), (1.0, 1, [1, 0, 0, 0]), (0.5, 0, [1, 0, 0, 0]),
     (0.81, 0, [0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0]), (1.0, 9, [0.5, 0.3, 0.15, 0.05])],
)  # fmt: skip
def test_top_p_and_top_k_renormalise(top_p, top_k, expected):
    logits = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    probabilities = filtered_logits(logits, temperature=1.0, top_p=top_p, top_k=top_k).softmax(-1)
    torch.testing.assert_close(probabilities, torch.tensor([expected], dtype=torch.float32), rtol=0, atol=1e-6)


def test_sampled_frequencies_are_the_probabilities():
    logits = torch.tensor([[2.0, 1.0, 0.0, -torch.inf]]).expand(200_000, 4)
    uniform = torch.rand(200_000, generator=torch.Generator().manual_seed(0))
    tokens, logprobs = sample(logits, uniform, temperature=0.6)
    expected = torch.tensor([2.0, 1.0, 0.0]).div(0.6).softmax(0)
    frequencies = torch.bincount(tokens, minlength=4)[:3] / 200_000
    torch.testing.assert_close(frequencies, expected, rtol=0, atol=4 * 0.5 / 200_000**0.5)
    torch.testing.assert_close(logprobs.exp(), expected[tokens], rtol=1e-5, atol=0)


@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-24])
def test_a_token_of_probability_zero_is_never_sampled(uniform):
    logits = torch.tensor([[-torch.inf, 0.0, 0.0, -torch.inf]])
    token, logprob = sample(logits, torch.tensor([uniform]), temperature=1.0)
    assert token.item() in (1, 2)
    assert logprob.isfinite()


def test_models_that_the_engine_would_decode_wrongly_are_named():
    from transformers import Gemma2Config, MistralConfig, Qwen3Config

    assert unsupported_reason(Qwen3Config()) is None
    assert "window" in (unsupported_reason(MistralConfig(sliding_window=64)) or "")
    gemma = unsupported_reason(Gemma2Config()) or ""
    assert "window" in gemma or "softcapping" in gemma
