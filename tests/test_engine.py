"""The contract of a rollout engine, which both engines pass; vLLM's tests skip where it is not installed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from toys import ToyTokenizer, toy_policy

from rlforge_cli import settings
from rlforge_cli.config import Config
from rlforge_cli.engines import hf
from rlforge_cli.engines.hf import HFEngine, unsupported_reason
from rlforge_cli.engines.sampling import filtered_logits, sample
from rlforge_cli.engines.vllm_library import installed
from rlforge_cli.grpo.batch import make_batch
from rlforge_cli.model import Policy, load_policy
from rlforge_cli.rollouts import Completion, RolloutEngine, SamplingParams, finish

PROMPTS = [[15, 1, 2, 3], [4], [15, 5, 6, 7, 8, 9, 0, 1], [3, 3]]
GREEDY = SamplingParams(max_tokens=12, temperature=0.0)


SAMPLED = SamplingParams(max_tokens=12)
TOY = settings.load("tiny-arith", sets=["max_tokens=40", "max_prompt_tokens=20"])
LORA = settings.load("tiny-arith", sets=["adaptation=lora", "max_tokens=24", "max_prompt_tokens=320"])
TIGHT = 1e-4
"""nat; both compute in float32, in different order."""


class Engines:
    """Engines of one kind, one alive at a time: a vLLM in this process is the only one in it."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.policy: Policy | None = None
        self.engine: RolloutEngine | None = None

    def make(self, policy: Policy, config: Config) -> RolloutEngine:
        """A new engine, not synced yet."""
        self.close()
        if self.kind == "hf":
            self.engine = HFEngine(policy)
        else:
            from rlforge_cli.engines.vllm import VLLMEngine

            self.engine = VLLMEngine(policy, config)
        self.policy = policy
        return self.engine

    def of(self, policy: Policy, config: Config) -> RolloutEngine:
        """The engine of this policy, with its weights."""
        engine = self.engine if self.engine is not None and self.policy is policy else self.make(policy, config)
        engine.sync_weights(step=0)
        return engine

    def close(self) -> None:
        if self.engine is not None:
            self.engine.close()
        self.engine = None


@pytest.fixture(scope="module", params=["hf", "vllm"])
def engines(request) -> Iterator[Engines]:
    if request.param == "vllm" and installed() is None:
        pytest.skip("vLLM is not installed")
    made = Engines(request.param)
    yield made
    made.close()


@pytest.fixture(scope="module")
def policy() -> Policy:
    return toy_policy(head_dim=32)  # vLLM's CPU build takes no smaller heads


@pytest.fixture
def engine(engines, policy) -> RolloutEngine:
    return engines.of(policy, TOY)


@pytest.fixture(scope="module")
def lora() -> Policy:
    return load_policy(LORA.model)


@pytest.fixture
def lora_engine(engines, lora) -> RolloutEngine:
    return engines.of(lora, LORA)


@pytest.fixture
def restored(policy) -> Iterator[None]:
    """Afterwards the policy is as it was."""
    before = {name: value.clone() for name, value in policy.model.state_dict().items()}
    yield
    policy.model.load_state_dict(before)


def perturb(policy: Policy, *, names: str = "", scale: float = 0.3, seed: int = 0) -> None:
    """Add noise to the trainable weights whose name holds ``names``."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in policy.trainable().items():
            if names in name:
                parameter.add_(scale * torch.randn(parameter.shape, generator=generator))


def gap(policy: Policy, prompts: list[list[int]], completions: list[Completion], *, temperature: float = 1.0) -> float:
    """Largest |difference| of the engine's log-probabilities and the trainer's."""
    return float(gaps(policy, prompts, completions, temperature=temperature).max())


def gaps(
    policy: Policy, prompts: list[list[int]], completions: list[Completion], *, temperature: float = 1.0
) -> torch.Tensor:
    """|Difference| of the two at every token [all tokens]."""
    assert all(len(c.sampling_logprobs) == len(c.completion_ids) > 0 for c in completions)
    with torch.no_grad():
        logprobs, _ = policy.logprobs(
            make_batch(prompts, [c.completion_ids for c in completions]), temperature=temperature
        )
    theirs = torch.cat([row[: len(c.completion_ids)].cpu() for row, c in zip(logprobs, completions, strict=True)])
    return (theirs - torch.tensor([value for c in completions for value in c.sampling_logprobs])).abs()


def flat(groups: list[list[Completion]]) -> list[Completion]:
    return [completion for group in groups for completion in group]


def test_greedy_tokens_are_those_of_transformers(policy, engine):
    groups = engine.generate(PROMPTS, n=1, params=GREEDY, seed=0)
    for prompt, (completion,) in zip(PROMPTS, groups, strict=True):
        with torch.no_grad():
            expected = policy.model.generate(
                torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt)), max_new_tokens=12, do_sample=False
            )[0, len(prompt) :].tolist()
        assert completion.completion_ids == expected


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.7])
def test_sampling_logprobs_are_those_of_the_trainer(policy, engine, temperature):
    params = SamplingParams(max_tokens=12, temperature=temperature)
    completions = flat(engine.generate(PROMPTS, n=5, params=params, seed=4))
    prompts = [prompt for prompt in PROMPTS for _ in range(5)]
    assert gap(policy, prompts, completions, temperature=temperature) < TIGHT
    assert gap(policy, prompts, completions, temperature=temperature * 1.3) > 0.1


def test_one_seed_gives_the_same_and_two_differ(engine):
    torch.manual_seed(3)
    expected = torch.rand(1, generator=torch.Generator().manual_seed(3))
    first, again, other = (engine.generate(PROMPTS, n=4, params=SAMPLED, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.rand(1), expected)  # nobody else's random numbers were used
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


def test_both_end_tokens_of_the_model_are_used(policy, engine):
    assert policy.end_ids == [16, 17]
    completions = flat(engine.generate([[i] for i in range(15)], n=20, params=SamplingParams(max_tokens=40), seed=0))
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


def test_a_stop_text_ends_what_the_engine_sampled(policy, engine):
    params = SamplingParams(max_tokens=40, stop=("\n",))
    completions = flat(engine.generate(PROMPTS, n=20, params=params, seed=0))
    cut = [c for c in completions if 13 in c.completion_ids]
    assert cut
    for completion in cut:
        assert completion.completion_ids.index(13) == len(completion.completion_ids) - 1
        assert (completion.finish_reason, "\n" in completion.text) == ("stop", False)
        assert len(completion.sampling_logprobs) == len(completion.completion_ids)


@pytest.mark.parametrize(("top_p", "top_k"), [(0.6, 0), (1.0, 3), (1.0, 1)])
def test_top_p_and_top_k_reach_the_sampler(policy, engine, top_p, top_k):
    params = SamplingParams(max_tokens=8, top_p=top_p, top_k=top_k)
    for prompt, group in zip(PROMPTS, engine.generate(PROMPTS, n=6, params=params, seed=2), strict=True):
        for completion in group:
            ids = [*prompt, *completion.completion_ids]
            with torch.no_grad():
                logits = policy.model(torch.tensor([ids])).logits[0, len(prompt) - 1 : -1]
            expected = filtered_logits(logits, temperature=1.0, top_p=top_p, top_k=top_k).log_softmax(-1)
            ours = expected[range(len(completion.completion_ids)), completion.completion_ids]
            torch.testing.assert_close(ours, torch.tensor(completion.sampling_logprobs), rtol=0, atol=TIGHT)


def test_updated_weights_reach_the_engine_the_tied_head_too(policy, engine, restored):
    assert_follows(policy, engine)


def test_after_offload_and_sync_of_the_same_weights_greedy_tokens_are_the_same(engine):
    before = engine.generate(PROMPTS, n=1, params=GREEDY, seed=0)
    engine.offload()
    engine.offload()
    engine.sync_weights(step=0)
    after = engine.generate(PROMPTS, n=1, params=GREEDY, seed=0)
    assert [c.completion_ids for c in flat(before)] == [c.completion_ids for c in flat(after)]


@pytest.mark.parametrize(("share", "at_least"), [(1.0, 20), (0.25, 5), (0.01, 1), (0.0, 0)])
def test_at_least_the_share_that_was_asked_for_reports_logprobs(policy, engine, share, at_least):
    params = SamplingParams(max_tokens=12, logprob_share=share)
    groups = engine.generate(PROMPTS, n=5, params=params, seed=4)
    reporting = [c for c in flat(groups) if c.sampling_logprobs]
    assert len(reporting) >= at_least
    if share == 0.25:
        assert all(any(c.sampling_logprobs for c in group) for group in groups)
    full = engine.generate(PROMPTS, n=5, params=SamplingParams(max_tokens=12), seed=4)
    assert [c.completion_ids for c in flat(groups)] == [c.completion_ids for c in flat(full)]


def assert_follows(policy: Policy, engine: RolloutEngine) -> None:
    prompts = [prompt for prompt in PROMPTS for _ in range(2)]
    sampled: list[list[Completion]] = []
    for step in (1, 2):
        perturb(policy, seed=step)
        assert all(gap(policy, prompts, former) > 0.1 for former in sampled)
        engine.offload()
        engine.sync_weights(step=step)
        sampled.append(flat(engine.generate(PROMPTS, n=2, params=SAMPLED, seed=0)))
        assert gap(policy, prompts, sampled[-1]) < TIGHT


def test_an_engine_made_before_a_checkpoint_is_read_samples_from_the_checkpoint(engines):
    policy = toy_policy(head_dim=32, tied=False)
    engine = engines.make(policy, TOY)
    perturb(policy, seed=5)
    engine.sync_weights(step=40)
    first = flat(engine.generate(PROMPTS, n=1, params=SAMPLED, seed=0))
    assert gap(policy, PROMPTS, first) < TIGHT
    assert_follows(policy, engine)  # a head of its own


LONG = [[5 + (i * j) % 40 for i in range(300)] for j in (3, 7)]
"""Longer than a block of any key-value cache."""


def test_an_adapter_reaches_the_engine_and_no_old_keys_and_values_stay(lora, lora_engine):
    base = {name: p.clone() for name, p in lora.model.named_parameters() if not p.requires_grad}
    prompts = [prompt for prompt in LONG for _ in range(2)]
    start = flat(lora_engine.generate(LONG, n=2, params=SAMPLED, seed=0))  # B = 0: the base
    assert gap(lora, prompts, start) < TIGHT
    for step in (1, 2):
        perturb(lora, names="lora_B", scale=0.05, seed=step)
        lora_engine.offload()
        lora_engine.sync_weights(step=step)
        completions = flat(lora_engine.generate(LONG, n=2, params=SAMPLED, seed=0))
        assert gap(lora, prompts, completions) < 2 * TIGHT
        assert gap(lora, prompts, start) > 0.1
    assert all(torch.equal(value, dict(lora.model.named_parameters())[name]) for name, value in base.items())


@pytest.mark.parametrize("module", LORA.model.lora_targets)
def test_each_projection_of_an_adapter_moves_the_engine(lora, lora_engine, module):
    with torch.no_grad():
        for name, parameter in lora.trainable().items():
            if "lora_B" in name:
                parameter.zero_()
    lora_engine.sync_weights(step=0)
    prompts = [prompt[:20] for prompt in LONG for _ in range(2)]
    start = flat(lora_engine.generate([prompt[:20] for prompt in LONG], n=2, params=SAMPLED, seed=0))
    perturb(lora, names=f"{module}.lora_B", scale=0.2)
    lora_engine.sync_weights(step=0)
    moved = flat(lora_engine.generate([prompt[:20] for prompt in LONG], n=2, params=SAMPLED, seed=0))
    assert gap(lora, prompts, moved) < 2 * TIGHT
    assert gap(lora, prompts, start) > 0.005


@pytest.mark.parametrize(
    ("top_p", "top_k", "expected"),
    [(1.0, 0, [0.5, 0.3, 0.15, 0.05]), (0.8, 0, [0.625, 0.375, 0, 0]), (1.0, 1, [1, 0, 0, 0]), (0.5, 0, [1, 0, 0, 0]),
     (0.81, 0, [0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0]), (1.0, 9, [0.5, 0.3, 0.15, 0.05])],
)  # fmt: skip
def test_top_p_and_top_k_renormalise(top_p, top_k, expected):
    logits = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    probabilities = filtered_logits(logits, temperature=1.0, top_p=top_p, top_k=top_k).softmax(-1)
    torch.testing.assert_close(probabilities, torch.tensor([expected], dtype=torch.float32), rtol=0, atol=1e-6)


def test_what_top_p_hides_from_the_trainer_is_a_constant_in_the_log_ratio():
    logits = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    engine = filtered_logits(logits, temperature=1.0, top_p=0.8).log_softmax(-1)[0, 0]
    trainer = logits.log_softmax(-1)[0, 0]
    assert engine.item() == pytest.approx(-0.4700, abs=1e-4)
    assert trainer.item() == pytest.approx(-0.6931, abs=1e-4)
    assert (trainer - engine).item() == pytest.approx(-0.2231, abs=1e-4)


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


def test_completions_too_long_for_the_packed_step_are_the_same(monkeypatch):
    policy = load_policy(settings.load("tiny-arith").model)
    prompts = [policy.tokenizer(text)["input_ids"] for text in ("12+3=?", "7*8=?")]
    params = SamplingParams(max_tokens=24)
    engine = HFEngine(policy)
    packed = engine.generate(prompts, n=4, params=params, seed=5)
    assert engine.packs
    monkeypatch.setattr(hf, "PACKED_SLOTS", 20)
    plain = engine.generate(prompts, n=4, params=params, seed=5)
    assert not engine.packs
    assert [[c.completion_ids for c in group] for group in plain] == [[c.completion_ids for c in g] for g in packed]
