from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import torch
from toys import ToyTokenizer, toy_policy

from rlforge_cli.adapters import recompute_activations, with_adapter
from rlforge_cli.config import ModelConfig, OptimizerConfig
from rlforge_cli.errors import UserError
from rlforge_cli.grpo.batch import make_batch
from rlforge_cli.model import Policy, load_policy
from rlforge_cli.optimizer import MasterAdamW, changed_share, sampled

BATCH = make_batch([[1, 2], [3]], [[4, 5, 16], [6, 7]])


def loss_of(policy: Policy) -> torch.Tensor:
    logprobs, _ = policy.logprobs(BATCH, temperature=1.0)
    return -(logprobs * BATCH.completion_mask).sum()


def stepped(policy: Policy, *, lr: float, steps: int = 1) -> MasterAdamW:
    optimizer = MasterAdamW(policy.trainable(), OptimizerConfig(lr=lr), planned_updates=steps)
    for _ in range(steps):
        loss_of(policy).backward()
        optimizer.changed = optimizer.step(grad_norm=optimizer.grad_norm())
    return optimizer


@pytest.mark.parametrize("tied", [True, False])
def test_a_saved_policy_gives_the_same_logits(tied, tmp_path):
    from transformers import AutoModelForCausalLM

    policy = toy_policy(tied=tied)
    stepped(policy, lr=0.01)
    policy.save(tmp_path / "model")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert again.config.tie_word_embeddings is tied
    ids = torch.tensor([[1, 2, 3, 4]])
    with torch.no_grad():
        assert (again(ids).logits - policy.model(ids).logits).abs().max().item() == 0.0
    other = toy_policy(tied=tied, seed=9)
    other.load_weights(tmp_path / "model")
    assert all(torch.equal(a, b) for a, b in zip(other.model.parameters(), policy.model.parameters(), strict=True))


def test_reference_stays_where_the_run_began():
    policy = toy_policy()
    before = policy.reference_logprobs(BATCH, temperature=1.0)
    with torch.no_grad():
        assert torch.equal(before, policy.logprobs(BATCH, temperature=1.0)[0])
    stepped(policy, lr=0.1)
    assert torch.equal(policy.reference_logprobs(BATCH, temperature=1.0), before)
    assert not torch.equal(policy.logprobs(BATCH, temperature=1.0)[0], before)


@pytest.mark.parametrize("lr", [1e-6, 1e-4])
def test_float32_masters_keep_what_bfloat16_would_lose(lr):
    policy = toy_policy(dtype=torch.bfloat16)
    start = {name: p.detach().float().clone() for name, p in policy.trainable().items()}
    optimizer = stepped(policy, lr=lr, steps=50)
    moved = {name: (m.detach() - start[name]).abs().max().item() for name, m in optimizer.masters.items()}
    # every Adam step is about lr for each weight with a steady gradient, however small beside the weight
    assert max(moved.values()) > 20 * lr
    for name, parameter in policy.trainable().items():
        assert torch.equal(parameter, optimizer.masters[name].bfloat16())
        assert parameter.grad is None


def test_the_share_of_changed_weights_is_of_the_masters_too_where_there_are_any():
    policy = toy_policy(dtype=torch.bfloat16)
    changed = stepped(policy, lr=1e-6).changed
    assert changed["masters_changed_fraction"] > 0.9  # the embeddings of other tokens have no gradient
    assert changed["weights_changed_fraction"] < 0.1
    assert list(stepped(toy_policy(), lr=1e-6).changed) == ["weights_changed_fraction"]

    large = torch.nn.Parameter(torch.ones(100_000, dtype=torch.bfloat16))  # more than are looked at
    optimizer = MasterAdamW({"large": large}, OptimizerConfig(lr=1e-6), planned_updates=1)
    (large * torch.arange(100_000).ge(50_000)).sum().backward()
    shares = optimizer.step(grad_norm=1.0)
    assert shares["masters_changed_fraction"] == pytest.approx(0.5, abs=0.01)
    assert shares["weights_changed_fraction"] == 0.0


def test_the_share_of_changed_weights_counts_each_tensor_by_its_size():
    tensors = [torch.zeros(3, 2), torch.zeros(100_000), torch.zeros(10), torch.zeros(6, dtype=torch.bfloat16)]
    before = sampled(tensors)
    assert changed_share(tensors, before=before).item() == 0.0
    tensors[0][1] = 1
    tensors[2][4:] = 1
    assert changed_share(tensors, before=before).item() == pytest.approx((2 + 6) / 100_022)
    tensors[1][:25_000] = 1
    assert changed_share(tensors, before=before).item() == pytest.approx((2 + 6 + 25_000) / 100_022, rel=1e-3)
    for tensor in tensors:
        tensor.fill_(2)
    assert changed_share(tensors, before=before).item() == 1.0


def test_without_masters_the_share_is_what_bfloat16_keeps(monkeypatch):
    policy = toy_policy(dtype=torch.bfloat16)
    optimizer = MasterAdamW(policy.trainable(), OptimizerConfig(lr=1e-6), planned_updates=1)
    optimizer.masters = dict(policy.trainable())
    optimizer.adamw = torch.optim.AdamW(optimizer.masters.values(), lr=1e-6)
    parameters = list(optimizer.masters.values())
    grads = torch.autograd.grad(loss_of(policy), parameters)
    for parameter, grad in zip(parameters, grads, strict=True):
        parameter.grad = grad
    shares = optimizer.step(grad_norm=1.0)
    assert list(shares) == ["weights_changed_fraction"]
    assert shares["weights_changed_fraction"] < 0.05


def test_pure_bfloat16_would_have_lost_it():
    weight = torch.ones(1000, dtype=torch.bfloat16)
    for _ in range(50):
        weight -= 1e-6
    assert torch.equal(weight, torch.ones_like(weight))


def test_gradients_of_micro_batches_are_summed_in_float32():
    policy = toy_policy(dtype=torch.bfloat16)
    optimizer = MasterAdamW(policy.trainable(), OptimizerConfig(), planned_updates=1)
    for _ in range(3):
        loss_of(policy).backward()
    grads = [master.grad for master in optimizer.masters.values() if master.grad is not None]
    assert grads
    assert all(grad.dtype == torch.float32 for grad in grads)
    single = toy_policy(dtype=torch.bfloat16)
    once = MasterAdamW(single.trainable(), OptimizerConfig(), planned_updates=1)
    loss_of(single).backward()
    for name, master in optimizer.masters.items():
        if master.grad is not None:
            torch.testing.assert_close(master.grad, 3 * once.masters[name].grad, rtol=1e-6, atol=1e-7)


def test_a_changed_weight_is_counted_and_the_norm_is_clipped():
    policy = toy_policy()
    optimizer = stepped(policy, lr=0.01)
    assert optimizer.changed["weights_changed_fraction"] > 0.9
    free, clipped = toy_policy(), toy_policy()
    norms = []
    for policy, limit in ((free, 0.0), (clipped, 1e-3)):
        optimizer = MasterAdamW(policy.trainable(), OptimizerConfig(max_grad_norm=limit), planned_updates=1)
        loss_of(policy).backward()
        norms.append(optimizer.grad_norm())
        optimizer.adamw.step = lambda: None
        optimizer.zero_grad = lambda: None
        optimizer.step(grad_norm=norms[-1])
        norms.append(optimizer.grad_norm())
    assert norms[0] == norms[1] == norms[2]
    assert norms[3] == pytest.approx(1e-3, rel=1e-5)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [0.5, 1, 1, 1, 1, 1]),
        ("linear", [0.5, 1, 1, 0.75, 0.5, 0.25]),
        ("cosine", [0.5, 1, 1, 0.853553, 0.5, 0.146447]),
    ],
)
def test_learning_rate_schedules(schedule, expected):
    config = OptimizerConfig(lr=1.0, warmup_steps=2, schedule=schedule)
    optimizer = MasterAdamW(toy_policy().trainable(), config, planned_updates=6)
    assert [optimizer.lr_at(update) for update in range(6)] == pytest.approx(expected, abs=1e-6)


def adapted(**options) -> Policy:
    policy = toy_policy(tied=True)
    config = ModelConfig(adaptation="lora", lora_rank=4, lora_alpha=8, **options)
    return Policy(with_adapter(policy.causal, config, None), policy.tokenizer)


def test_an_adapter_starts_as_the_base_and_alone_is_trained():
    plain, policy = toy_policy(), adapted()
    with torch.no_grad():
        assert torch.equal(policy.logprobs(BATCH, temperature=1.0)[0], plain.logprobs(BATCH, temperature=1.0)[0])
    trainable = policy.trainable()
    assert trainable
    assert all("lora_" in name for name in trainable)
    assert len(trainable) == 2 * 7 * 2  # two layers, seven projections, A and B


@pytest.mark.parametrize("checkpointing", [False, True])
def test_every_lora_b_moves_also_with_gradient_checkpointing(checkpointing):
    policy = adapted()
    if checkpointing:
        recompute_activations(policy.model)
    base = copy.deepcopy({n: p for n, p in policy.model.named_parameters() if "lora_" not in n})
    stepped(policy, lr=0.01, steps=2)
    moved = {name: p.abs().max().item() > 0 for name, p in policy.trainable().items() if "lora_B" in name}
    assert len(moved) == 14
    assert all(moved.values())
    assert all(torch.equal(p, base[n]) for n, p in policy.model.named_parameters() if n in base)


def test_the_reference_of_an_adapter_is_its_base():
    policy = adapted()
    stepped(policy, lr=0.1, steps=3)
    plain = toy_policy().logprobs(BATCH, temperature=1.0)[0].detach()
    assert torch.equal(policy.reference_logprobs(BATCH, temperature=1.0), plain)
    assert not torch.allclose(policy.logprobs(BATCH, temperature=1.0)[0], plain, atol=1e-3)


def test_a_saved_adapter_is_an_adapter_folder(tmp_path):
    policy = adapted()
    stepped(policy, lr=0.1, steps=2)
    policy.save(tmp_path / "adapter")
    assert (tmp_path / "adapter" / "adapter_config.json").is_file()
    other = adapted()
    other.load_weights(tmp_path / "adapter")
    mine, theirs = policy.trainable(), other.trainable()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_adapters_on_tied_ends_and_unknown_modules_are_refused():
    with pytest.raises(UserError, match=r"lm_head.*ties"):
        adapted(lora_targets=("q_proj", "lm_head"))
    with pytest.raises(UserError, match=r"'q_porj': the model has no such module \(did you mean 'q_proj'"):
        adapted(lora_targets=("q_porj",))
    with pytest.raises(UserError, match=r"lora_targets is empty.*'q_proj'"):
        adapted(lora_targets=())


def test_a_saved_adapter_names_its_targets_in_one_order(tmp_path):
    config = ModelConfig(adaptation="lora", lora_rank=2)
    policy = load_policy(config)
    for folder in (tmp_path / "new", tmp_path / "again"):
        policy.save(folder)
        saved = json.loads((folder / "adapter_config.json").read_text())["target_modules"]
        assert saved == sorted(config.lora_targets)
        policy = load_policy(config, path=str(folder))


def test_a_folder_that_is_no_model(tmp_path):
    with pytest.raises(UserError, match=r"no config\.json"):
        load_policy(ModelConfig(path=str(tmp_path)))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="cannot be loaded"):
        load_policy(ModelConfig(path=str(tmp_path)))


def test_a_model_without_an_end_token_is_refused():
    policy = toy_policy()
    policy.model.config.eos_token_id = policy.model.generation_config.eos_token_id = None
    tokenizer = ToyTokenizer()
    tokenizer.eos_token_id = None
    with pytest.raises(UserError, match="end token"):
        Policy(policy.model, tokenizer)


def test_the_embedded_model_loads():
    policy = load_policy(ModelConfig())
    assert policy.parameter_count < 1_000_000
    assert policy.tokenizer.decode(policy.tokenizer("12+3=?")["input_ids"]) == "12+3=?"
    assert Path(policy.tokenizer.name_or_path).name == "tiny-arith"


def test_paged_moments_need_a_cuda_device():
    with pytest.raises(UserError, match=r"paged-8bit.*CUDA.*optimizer.states=float32"):
        MasterAdamW(toy_policy().trainable(), OptimizerConfig(states="paged-8bit"), planned_updates=1)


def test_a_new_adapter_is_drawn_from_the_seed_and_leaves_the_generator_alone():
    def first(seed: int) -> torch.Tensor:
        policy = load_policy(ModelConfig(adaptation="lora", lora_rank=2), seed=seed)
        return next(p for name, p in policy.trainable().items() if "lora_A" in name).detach()

    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    one, again, other = first(5), first(5), first(6)
    assert torch.equal(torch.rand(1), expected)
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
