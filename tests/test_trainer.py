from __future__ import annotations

import math

import msgspec
import pytest
import torch
from toys import ScriptedEngine, ToyTask, toy_policy

from rlforge_cli.config import Config, PromptConfig
from rlforge_cli.engines.hf import HFEngine
from rlforge_cli.parking import NoParking
from rlforge_cli.prompts import PromptEncoder
from rlforge_cli.rows import Row
from rlforge_cli.settings import build
from rlforge_cli.trainer import Trainer


def configuration(**sections) -> Config:
    base = {
        "rollout": {"group_size": 4, "prompts": 4, "max_tokens": 8, "stop": []},
        "optimizer": {"lr": 0.01, "schedule": "constant"},
        "train": {"steps": 10, "micro_batch_size": 8},
    }
    for name, values in sections.items():
        base[name] = base.get(name, {}) | values
    return build(base, where="test")


def make_trainer(config: Config, *, policy=None, engine=None, task=None) -> Trainer:
    policy = policy or toy_policy()
    task = task or ToyTask()
    encoder = PromptEncoder(policy.tokenizer, PromptConfig(), max_tokens=64)
    return Trainer(
        config,
        policy=policy,
        engine=engine or HFEngine(policy),
        task=task,
        encoder=encoder,
        problems=task.problems("train"),
    )


def rows(seed: int = 0) -> list[Row]:
    generator = torch.Generator().manual_seed(seed)
    made = []
    for index in range(8):
        prompt = torch.randint(0, 15, (1 + index % 3,), generator=generator).tolist()
        completion = torch.randint(0, 15, (1 + (5 * index) % 7,), generator=generator).tolist()
        made.append(Row(prompt, completion, (-1.0) ** index * (1 + index / 8), [-1.0] * len(completion)))
    return made


def gradients(
    size: int, order: list[int], *, aggregation: str = "sequence", kl_coef: float = 0.05, correction: str = "off",
    made: list[Row] | None = None,
) -> dict[str, torch.Tensor]:  # fmt: skip
    """Of one update on the same eight rows, in float64, by micro-batches of ``size`` in the given order."""
    policy = toy_policy(dtype=torch.float64)
    with torch.no_grad():  # so that the KL term pulls
        for parameter in policy.model.parameters():
            parameter.add_(0.01)
    config = configuration(
        grpo={
            "aggregation": aggregation,
            "kl_coef": kl_coef,
            "entropy_coef": 0.01,
            "sampling_correction": correction,
        },
        train={"micro_batch_size": size},
        optimizer={"max_grad_norm": 0.0},
    )
    trainer = make_trainer(config, policy=policy)
    kept: dict[str, torch.Tensor] = {}

    def keep(*, grad_norm: float) -> dict[str, float]:
        kept.update({name: p.grad.clone() for name, p in policy.trainable().items()})
        return {}

    trainer.optimizer.step = keep  # type: ignore[method-assign]
    made = made or rows()
    trainer.updater.one_update([made[i] for i in order])
    return kept


@pytest.mark.parametrize("aggregation", ["sequence", "token", "constant"])
def test_gradients_do_not_depend_on_micro_batch_padding_or_order(aggregation):
    straight = list(range(8))
    reference = gradients(8, straight, aggregation=aggregation)
    assert max(g.abs().max() for g in reference.values()) > 0.01
    shuffled = [5, 2, 7, 0, 3, 1, 6, 4]
    for size, order in ((1, straight), (2, straight), (3, straight), (8, shuffled), (2, straight[::-1])):
        other = gradients(size, order, aggregation=aggregation)
        for name, gradient in reference.items():
            torch.testing.assert_close(
                other[name], gradient, rtol=0, atol=1e-6, msg=lambda m, n=name, s=size: f"{n}, {s}: {m}"
            )


CORRECTIONS = ("token-truncate", "token-mask", "sequence-truncate", "sequence-mask")


def mismatched_rows() -> list[Row]:
    """As :func:`rows`, sampled by an engine that is off by up to a nat a token and reports nothing for one row."""
    generator = torch.Generator().manual_seed(1)
    made = rows()
    for row in made:
        row.sampling = (-2.9 + 2 * torch.rand(len(row.completion), generator=generator) - 1).tolist()
    made[2].sampling = None
    return made


@pytest.mark.parametrize("correction", CORRECTIONS)
def test_corrected_gradients_do_not_depend_on_micro_batch_padding_or_order(correction):
    straight = list(range(8))
    reference = gradients(8, straight, correction=correction, made=mismatched_rows())
    plain = gradients(8, straight, made=mismatched_rows())
    assert max(float((reference[name] - plain[name]).abs().max()) for name in plain) > 1e-3
    for size, order in ((1, straight), (3, straight), (8, [5, 2, 7, 0, 3, 1, 6, 4]), (2, straight[::-1])):
        other = gradients(size, order, correction=correction, made=mismatched_rows())
        for name, gradient in reference.items():
            torch.testing.assert_close(other[name], gradient, rtol=0, atol=1e-9)


def test_without_correction_what_the_engine_reports_changes_no_gradient():
    reference = gradients(3, list(range(8)))
    other = gradients(3, list(range(8)), made=mismatched_rows())
    assert all(torch.equal(other[name], gradient) for name, gradient in reference.items())


class Shifted(HFEngine):
    """Reports log-probabilities that are off by half a nat, and for every other group none at all."""

    def generate(self, prompts, *, n, params, seed, places=None):
        groups = super().generate(prompts, n=n, params=params, seed=seed, places=places)
        return [
            [
                msgspec.structs.replace(
                    c, sampling_logprobs=[v - 0.5 for v in c.sampling_logprobs] if i % 2 == 0 else []
                )
                for c in group
            ]
            for i, group in enumerate(groups)
        ]


@pytest.mark.parametrize(("cap", "fraction", "weight"), [(1.5, 1.0, 1.5), (2.0, 0.0, math.exp(0.5))])
@pytest.mark.parametrize("size", [1, 8])
def test_correction_metrics_are_over_the_tokens_that_the_engine_reported(cap, fraction, weight, size):
    policy = toy_policy()
    config = configuration(
        grpo={"sampling_correction": "token-truncate", "sampling_cap": cap}, train={"micro_batch_size": size}
    )
    record = make_trainer(config, policy=policy, engine=Shifted(policy)).train_step()
    assert 0.2 < record["reported_fraction"] < 0.8
    assert record["correction_fraction"] == pytest.approx(fraction)
    assert record["correction_weight"] == pytest.approx(weight, abs=1e-5)
    assert record["kl_sampling"] == pytest.approx(math.exp(0.5) - 0.5 - 1, abs=1e-5)
    assert record["sampling_diff_max"] == pytest.approx(0.5, abs=1e-5)


def test_what_no_engine_reported_is_left_out_and_an_impossible_one_is_seen():
    def reporting(value: list[float]) -> dict:
        policy = toy_policy()
        engine = ScriptedEngine(lambda call, group, sample: [sample, 16])
        generate = engine.generate
        engine.generate = lambda *args, **kwargs: [  # type: ignore[method-assign]
            [msgspec.structs.replace(c, sampling_logprobs=value) for c in group] for group in generate(*args, **kwargs)
        ]
        config = configuration(grpo={"sampling_correction": "token-mask"})
        return make_trainer(config, policy=policy, engine=engine, task=PaysOddSamples()).train_step()

    silent = reporting([])
    assert silent["reported_fraction"] == 0.0
    assert not {"kl_sampling", "sampling_diff_max", "correction_weight", "correction_fraction"} & set(silent)
    assert silent["grad_norm"] > 0
    broken = reporting([float("nan"), -math.inf])
    assert broken["correction_fraction"] == 1.0
    assert broken["correction_weight"] == 0.0
    assert broken["sampling_diff_max"] == math.inf
    assert broken["kl_sampling"] > 1e8
    assert broken["grad_norm"] == 0.0


def test_the_first_on_policy_update_has_ratio_one_and_no_loss_but_a_gradient():
    record = make_trainer(configuration(grpo={"aggregation": "sequence"})).train_step()
    assert record["ratio_mean"] == 1.0
    assert record["clip_fraction"] == 0.0
    assert record["kl_old"] == 0.0
    assert abs(record["loss"]) < 1e-6
    assert record["grad_norm"] > 0
    assert record["weights_changed_fraction"] > 0.9
    assert record["skipped"] is False


def test_training_raises_the_reward():
    class Nines(ToyTask):
        def grade(self, completion, problem):
            return super().grade(problem.answer if completion.startswith("9") else "wrong", problem)

    trainer = make_trainer(configuration(train={"steps": 40}, rollout={"prompts": 8}), task=Nines())
    records = [trainer.train_step() for _ in range(40)]
    early, late = (sum(r["accuracy"] for r in part) / 5 for part in (records[:5], records[-5:]))
    assert late > early + 0.5
    assert records[0]["kl_ref"] == pytest.approx(0.0, abs=1e-9)
    assert records[-1]["kl_ref"] > 0.01


def test_measuring_the_kl_on_a_share_changes_only_that_metric():
    made = {}
    for share in (1.0, 0.25):
        trainer = make_trainer(configuration(model={"reference_share": share}))
        made[share] = trainer, [trainer.train_step() for _ in range(4)]
    whole, quarter = made[1.0][1], made[0.25][1]
    for a, b in zip(whole, quarter, strict=True):
        assert {k: v for k, v in a.items() if "seconds" not in k and k not in ("kl_ref", "tokens_per_s")} == {
            k: v for k, v in b.items() if "seconds" not in k and k not in ("kl_ref", "tokens_per_s")
        }
    assert quarter[0]["kl_ref"] == pytest.approx(0.0, abs=1e-9)
    assert quarter[3]["kl_ref"] == pytest.approx(whole[3]["kl_ref"], rel=1.0)
    assert quarter[3]["kl_ref"] > 0
    pulled = make_trainer(configuration(model={"reference_share": 0.25}, grpo={"kl_coef": 0.1}))
    assert pulled.updater.reference_stride == 1


def test_several_updates_a_rollout_move_the_ratio_away_from_one():
    trainer = make_trainer(configuration(grpo={"updates": 4}, optimizer={"lr": 0.05}))
    record = trainer.train_step()
    assert trainer.optimizer.updates == 4
    assert record["ratio_mean"] != 1.0
    assert record["kl_old"] > 0


def test_reward_components_are_logged_apart_and_add_up():
    record = make_trainer(configuration()).train_step()
    parts = [value for key, value in record.items() if key.startswith("reward/")]
    names = {key for key in record if key.startswith("reward/")}
    assert names == {"reward/correctness", "reward/format", "reward/truncation"}
    assert sum(parts) == pytest.approx(record["reward"], abs=1e-6)


def test_a_batch_of_equal_rewards_is_skipped_and_stays_so(monkeypatch):
    engine = ScriptedEngine(lambda call, group, sample: [1, 16])
    trainer = make_trainer(
        configuration(rollout={"oversample": 1.5, "max_rounds": 3, "group_size": 8}), engine=engine, task=AlwaysFormat()
    )
    before = {name: p.clone() for name, p in trainer.policy.trainable().items()}
    record = trainer.train_step()
    assert record["groups_generated"] == 18
    assert record["groups_kept"] == 0
    assert record["frac_groups_dropped"] == 1.0
    assert record["zero_std_fraction"] == 1.0
    assert record["skipped"] is True
    assert record["adv_std"] == 0.0
    assert trainer.optimizer.updates == 0
    assert trainer.skipped_in_a_row == 1
    assert trainer.budget["completions_generated"] == 18 * 8
    assert all(torch.equal(p, before[name]) for name, p in trainer.policy.trainable().items())


class AlwaysFormat(ToyTask):
    """Every completion is wrong and well formatted: reward 0.2 for all."""

    def grade(self, completion, problem):
        grade = super().grade(completion, problem)
        return msgspec.structs.replace(grade, correct=False, correct_strict=False, format_ok=True)


def test_without_dynamic_sampling_dead_groups_still_feel_the_kl():
    for kl_coef, moved in ((0.0, False), (0.5, True)):
        policy = toy_policy()
        with torch.no_grad():
            next(iter(policy.model.parameters())).add_(0.1)
        engine = ScriptedEngine(lambda call, group, sample: [1, 2, 16])
        trainer = make_trainer(
            configuration(grpo={"kl_coef": kl_coef}), policy=policy, engine=engine, task=AlwaysFormat()
        )
        record = trainer.train_step()
        assert record["zero_std_fraction"] == 1.0
        assert (record["grad_norm"] > 1e-6) == moved


def test_a_gradient_that_is_not_finite_refuses_the_step():
    trainer = make_trainer(configuration())
    with torch.no_grad():
        trainer.policy.causal.model.norm.weight[0] = float("nan")
    before = {name: p.clone() for name, p in trainer.policy.trainable().items()}
    record = trainer.updater.update(trainer_rollout(trainer), [[1.0, -1.0, 1.0, -1.0]] * 4)
    assert record["skipped"] is True
    assert not math.isfinite(record["grad_norm"]) or not math.isfinite(record["loss"])
    assert all(torch.equal(p, before[n]) or p.isnan().any() for n, p in trainer.policy.trainable().items())
    assert trainer.optimizer.updates == 0


def trainer_rollout(trainer: Trainer):
    healthy = make_trainer(trainer.config)
    return healthy.rollout(1)


def test_truncated_completions_can_be_left_out_of_the_loss():
    def script(call: int, group: int, sample: int) -> list[int]:
        return [group % 10, 16] if sample == 0 else [1, 2, 3, 4, 5, 6, 7, 8]

    plain, masked = (
        make_trainer(configuration(grpo={"mask_truncated": mask}), engine=ScriptedEngine(script)).train_step()
        for mask in (False, True)
    )
    assert plain["tokens_generated"] == masked["tokens_generated"] == 4 * (2 + 3 * 8)
    assert plain["tokens_in_loss"] == 4 * (2 + 3 * 8)
    assert masked["tokens_in_loss"] == 4 * 2


def test_an_unscored_completion_is_counted_and_gets_no_advantage():
    class Broken(ToyTask):
        def grade(self, completion, problem):
            grade = super().grade(completion, problem)
            return msgspec.structs.replace(grade, error="boom") if completion.startswith("1") else grade

    engine = ScriptedEngine(lambda call, group, sample: [[1, 16], [group % 10, 16], [10, 16], [10, 16]][sample])
    trainer = make_trainer(configuration(), engine=engine, task=Broken())
    collected = trainer.rollout(1)
    advantages = [trainer.advantages(group) for group in collected.generated]
    assert all(values[0] == 0.0 for values in advantages)
    record = trainer.train_step()
    assert record["unscored"] >= 4
    assert record["grader_errors"] == record["unscored"]


def test_the_schedule_counts_updates_not_steps():
    config = configuration(optimizer={"schedule": "linear", "lr": 1.0}, train={"steps": 10})
    engine = ScriptedEngine(lambda call, group, sample: [1, 16] if call in (4, 10) else [sample, 16])
    config = msgspec.structs.replace(config, rollout=msgspec.structs.replace(config.rollout, oversample=1.0))
    trainer = make_trainer(config, engine=engine, task=PaysOddSamples())
    trainer.optimizer.adamw.step = lambda: None  # type: ignore[method-assign]
    call_records = [trainer.train_step() for _ in range(10)]
    assert sum(r["skipped"] for r in call_records) == 2
    assert trainer.optimizer.updates == 8
    assert trainer.optimizer.lr_at(trainer.optimizer.updates) == pytest.approx(0.2)


class PaysOddSamples(ToyTask):
    def grade(self, completion, problem):
        right = completion in ("1", "3")
        return msgspec.structs.replace(
            super().grade(completion, problem), correct=right, correct_strict=right, format_ok=False
        )


def test_weights_are_synced_before_the_first_generate_and_after_every_update():
    engine = ScriptedEngine(lambda call, group, sample: [sample, 16])
    trainer = make_trainer(configuration(), engine=engine, task=PaysOddSamples())
    for _ in range(3):
        trainer.train_step()
    assert engine.calls == ["generate", "offload", "sync_weights"] * 3


@pytest.mark.parametrize(("steps", "limit", "expected"), [(3, 0, 3), (10, 40, 2), (10, 32, 2), (10, 31, 1)])
def test_a_budget_of_completions_ends_the_run(steps, limit, expected):
    engine = ScriptedEngine(lambda call, group, sample: [sample, 16])
    trainer = make_trainer(
        configuration(train={"steps": steps, "max_completions": limit}), engine=engine, task=PaysOddSamples()
    )
    while not trainer.finished:
        trainer.train_step()
    assert trainer.step == expected
    assert trainer.budget["completions_generated"] == expected * 16


def test_a_rollout_under_way_is_no_part_of_the_state():
    trainer = make_trainer(configuration())
    trainer.train_step()
    state = trainer.state()
    trainer.rollout(2)
    assert trainer.state() == state
    assert state["cursor"] == 4


@pytest.mark.parametrize("updates", [1, 2])
def test_an_update_whose_rows_are_all_masked_is_left_out(updates):
    engine = ScriptedEngine(lambda call, group, sample: [sample, 16] if group < 2 else [sample] * 8)
    config = configuration(grpo={"mask_truncated": True, "updates": updates})
    trainer = make_trainer(config, engine=engine, task=PaysOddSamples())
    record = trainer.train_step()
    assert (record["tokens_in_loss"], trainer.optimizer.updates) == (16, 1)


def test_state_is_enough_to_continue_exactly():
    straight = make_trainer(configuration())
    for _ in range(6):
        straight.train_step()
    first = make_trainer(configuration())
    for _ in range(3):
        first.train_step()
    second = make_trainer(configuration(), policy=first.policy)
    second.load_state(first.state())
    second.optimizer.load_state_dict(first.optimizer.state_dict())
    for _ in range(3):
        second.train_step()
    for name, parameter in straight.policy.trainable().items():
        assert torch.equal(parameter, second.policy.trainable()[name])


class Spoiling(NoParking):
    """What has left holds NaN until it is fetched: a reader in between shows."""

    def __init__(self) -> None:
        self.away: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def leave(self, changed, constant=()):
        for tensor in [*changed, *constant]:
            assert id(tensor) not in self.away
            self.away[id(tensor)] = (tensor, tensor.detach().clone())
            tensor.data.fill_(float("nan"))

    def fetch(self, tensors):
        for tensor in tensors:
            if id(tensor) in self.away:
                tensor.data.copy_(self.away.pop(id(tensor))[1])


@pytest.mark.parametrize("kl_coef", [0.0, 0.05])
def test_what_is_parked_is_fetched_before_anything_reads_it(kl_coef):
    weights = []
    for parking in (NoParking(), Spoiling()):
        policy = toy_policy(reference=True, dtype=torch.bfloat16)
        config = configuration(grpo={"kl_coef": kl_coef, "updates": 2}, model={"reference_share": 0.5})
        trainer = make_trainer(config, policy=policy)
        trainer.updater.parking = parking
        trainer.updater.park()
        for _ in range(3):
            assert not trainer.train_step()["skipped"]
        weights.append(torch.cat([p.flatten() for p in policy.trainable().values()]))
    assert weights[0].isfinite().all()
    assert torch.equal(*weights)
