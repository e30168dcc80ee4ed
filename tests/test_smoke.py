from __future__ import annotations

import copy
from types import SimpleNamespace

import msgspec
import pytest

from rlforge_cli import settings, smoke
from rlforge_cli.checks import run_gates
from rlforge_cli.engines.hf import HFEngine
from rlforge_cli.engines.vllm import spread
from rlforge_cli.errors import UserError
from rlforge_cli.model import load_policy
from rlforge_cli.prompts import PromptEncoder
from rlforge_cli.smoke import Parts, check_rewards
from rlforge_cli.tasks.arithmetic import Arithmetic
from rlforge_cli.tasks.base import Grade, Problem
from rlforge_cli.trainer import Trainer
from rlforge_cli.updater import Updater

SMALL = ("prompts=4", "train.micro_batch_size=16", "rollout.max_prompt_tokens=24")
LORA = ("model.adaptation=lora", "lr=2e-3")


def load_small(config) -> Parts:
    """As :func:`rlforge_cli.smoke.load_parts`, with fewer problems to encode and to grade."""
    policy, task = load_policy(config.model), Arithmetic(train=300, validation=24)
    encoder = PromptEncoder(policy.tokenizer, config.prompt, max_tokens=config.rollout.max_prompt_tokens)
    return Parts(policy, task, encoder, HFEngine(policy))


def config_of(*sets):
    return settings.load("tiny-arith", sets=[*SMALL, *sets])


def run(*sets, steps=0, broken=lambda parts: parts):
    """Checks by name, in order, of a smoke whose parts are ``broken``."""
    smoked = smoke.smoke(config_of(*sets), steps=steps, load=lambda config: broken(load_small(config)))
    assert smoked.missing is None
    return {check.name: check for check in run_gates(smoked.evidence)}


def failures(checks):
    return [check.name for check in checks.values() if check.status == "fail"]


def warnings(checks):
    return [check.name for check in checks.values() if check.status == "warn"]


def replaced(**values):
    return lambda parts: parts._replace(**{name: make(parts) for name, make in values.items()})


class Wrapped:
    """An engine that passes everything on; plants change one method."""

    def __init__(self, parts: Parts) -> None:
        self.engine = parts.engine
        self.policy = parts.policy

    def generate(self, prompts, *, n, params, seed, places=None):
        return self.engine.generate(prompts, n=n, params=params, seed=seed, places=places)

    def sync_weights(self, *, step):
        self.engine.sync_weights(step=step)

    def offload(self):
        self.engine.offload()

    def close(self):
        self.engine.close()


class Stale(Wrapped):
    """Copies the weights once and never again."""

    def __init__(self, parts):
        super().__init__(parts)
        frozen = copy.copy(parts.policy)
        frozen.model = frozen.causal = copy.deepcopy(parts.policy.model)
        frozen.backbone = frozen.causal.get_decoder()
        self.engine = type(parts.engine)(frozen, batch_size=64)


class Counting(Stale):
    """Stale, and honest about it."""

    def weights_checksum(self):
        return sum(float(p.detach().double().sum()) for p in self.engine.policy.model.parameters())


class OtherTemperature(Wrapped):
    def generate(self, prompts, *, n, params, seed, places=None):
        params = msgspec.structs.replace(params, temperature=0.7)
        return super().generate(prompts, n=n, params=params, seed=seed, places=places)


class SameSeed(Wrapped):
    def generate(self, prompts, *, n, params, seed, places=None):
        return super().generate(prompts, n=n, params=params, seed=7, places=places)


class NoSeed(Wrapped):
    calls = 0

    def generate(self, prompts, *, n, params, seed, places=None):
        self.calls += 1
        return super().generate(prompts, n=n, params=params, seed=self.calls, places=places)


# --- nothing broken


@pytest.fixture(scope="module")
def healthy():
    return run(steps=6)


def test_the_embedded_preset_passes_everything(healthy):
    assert failures(healthy) == []
    assert warnings(healthy) == []
    skipped = {name for name, check in healthy.items() if check.status == "skip"}
    assert skipped == {"plan", "memory", "sleep_wake", "lora_updates"}


def test_values_of_a_healthy_smoke(healthy):
    assert healthy["gold_grades"].value == 1.0
    assert healthy["gold_reward"].value == pytest.approx(1.0)
    assert healthy["reward_shortcut"].value == pytest.approx(0.8)
    assert healthy["engine_weights"].value == pytest.approx(1.0, abs=1e-3)
    assert healthy["engine_agreement"].value == pytest.approx(0.0, abs=1e-8)
    assert healthy["longest_batch"].value == 16 * (24 + 64)
    assert "loss of 0 is normal" in healthy["gradient"].why


def test_lora_passes_everything():
    checks = run(*LORA, steps=2)
    assert failures(checks) == []
    assert checks["lora_updates"].value == 2 * 7


# --- each fault is found by its own gate, before any symptom


class Amnesiac(Wrapped):
    """Sleeps, and wakes up with something else."""

    sleep_level = 2
    slept = 0

    def offload(self):
        self.slept += 1

    def generate(self, prompts, *, n, params, seed, places=None):
        if self.slept and not params.temperature:
            prompts = [prompt[1:] for prompt in prompts]
        return super().generate(prompts, n=n, params=params, seed=seed, places=places)


class Frugal(Wrapped):
    """Reports the log-probabilities that were asked for, and no more."""

    def generate(self, prompts, *, n, params, seed, places=None):
        groups = super().generate(prompts, n=n, params=params, seed=seed, places=places)
        wanted = iter(spread(len(prompts) * n, share=params.logprob_share))
        return [
            [c if next(wanted) else msgspec.structs.replace(c, sampling_logprobs=[]) for c in group]
            for group in groups
        ]  # fmt: skip


def test_a_run_without_log_probabilities_is_still_compared_with_its_engine():
    checks = run("rollout.engine=vllm", "rollout.sleep=false", "rollout.logprob_share=0", steps=2,
                 broken=replaced(engine=Frugal))  # fmt: skip
    assert failures(checks) == []
    assert checks["engine_agreement"].status == "pass"


class Rested(Amnesiac):
    def offload(self):
        pass


def test_an_engine_that_wakes_with_other_weights():
    checks = run("rollout.engine=vllm", broken=replaced(engine=Amnesiac))
    assert failures(checks) == ["sleep_wake"]
    assert "sleep level 2" in checks["sleep_wake"].why


def test_an_engine_that_wakes_as_it_fell_asleep():
    assert run("rollout.engine=vllm", broken=replaced(engine=Rested))["sleep_wake"].status == "pass"
    assert "rollout.sleep is off" in run("rollout.engine=vllm", "rollout.sleep=false")["sleep_wake"].why


@pytest.mark.parametrize("engine", [Stale, Counting])
def test_stale_engine_weights(engine):
    checks = run("lr=2e-4", "optimizer.warmup_steps=0", steps=2, broken=replaced(engine=engine))
    assert failures(checks)[0] == "engine_weights"


def test_stale_weights_are_told_from_noise_by_the_regression():
    class Noisy(Stale):
        """No two answers equal to the last digit, as on a GPU."""

        def generate(self, prompts, *, n, params, seed, places=None):
            groups = super().generate(prompts, n=n, params=params, seed=seed, places=places)
            self.calls = getattr(self, "calls", 0) + 1
            shift = 1e-4 * (self.calls % 7)
            return [
                [msgspec.structs.replace(c, sampling_logprobs=[v - shift for v in c.sampling_logprobs]) for c in group]
                for group in groups
            ]

    checks = run("lr=2e-4", "optimizer.warmup_steps=0", steps=2, broken=replaced(engine=Noisy))
    assert failures(checks)[0] == "engine_weights"
    assert checks["engine_weights"].value == pytest.approx(0.0, abs=0.1)


def test_temperature_of_one_side_only():
    checks = run(broken=replaced(engine=OtherTemperature))
    assert failures(checks)[0] == "engine_agreement"
    assert "temperature" in checks["engine_agreement"].fix


def test_another_temperature_on_both_sides_passes():
    assert run("temperature=0.7")["engine_agreement"].status == "pass"


def test_a_truncated_distribution_is_a_warning_with_its_cause():
    check = run("top_p=0.8")["engine_agreement"]
    assert check.status == "warn"
    assert "top_p" in check.why


@pytest.mark.parametrize("value", ["-1", "0"])
def test_an_inverted_or_absent_reward(value):
    assert failures(run(f"reward.correctness={value}"))[0] == "gold_reward"


def test_inverted_advantages(monkeypatch):
    plain = Trainer.advantages
    monkeypatch.setattr(Trainer, "advantages", lambda self, group: [-a for a in plain(self, group)])
    checks = run("lr=2e-4", "optimizer.warmup_steps=0", steps=6)
    assert failures(checks)[0] == "reward_direction"
    assert checks["reward_direction"].value < -0.05


def test_a_group_too_small_for_the_success_rate():
    checks = run("G=2", "format=0", "reward.truncation=0")
    assert failures(checks) == ["zero_std_fraction"]
    assert "--set G=" in checks["zero_std_fraction"].fix
    assert {"live_by_correctness"} <= set(warnings(checks))


def test_a_learning_rate_a_thousand_times_too_high():
    checks = run("lr=5e-2", steps=4)
    assert failures(checks)[0] == "learning_rate"
    assert "lower optimizer.lr" in checks["learning_rate"].fix


def frozen(kind):
    def broken(parts):
        for name, parameter in parts.policy.model.named_parameters():
            if kind in name:
                parameter.requires_grad_(False)
        return parts

    return broken


def test_frozen_lora_b():
    checks = run(*LORA, steps=2, broken=frozen("lora_B"))
    assert failures(checks)[0] == "lora_updates"
    assert "q_proj" in checks["lora_updates"].why


def test_one_frozen_lora_b_is_named():
    checks = run(*LORA, steps=2, broken=frozen("layers.1.mlp.up_proj.lora_B"))
    assert failures(checks) == ["lora_updates"]
    assert "layers.1.mlp.up_proj" in checks["lora_updates"].why
    assert checks["lora_updates"].value == 13


def test_nothing_trainable_stops_before_training():
    checks = run(*LORA, steps=2, broken=frozen("lora_"))
    assert failures(checks) == ["trainable_parameters"]
    assert checks["gradient"].status == "skip"


def second_bos(parts):
    encoder = parts.encoder
    plain = encoder.encode
    encoder.encode = lambda problem: [encoder.tokenizer.bos_token_id] * 2 + plain(problem)
    return parts


def test_a_second_bos():
    checks = run("rollout.max_prompt_tokens=40", broken=second_bos)
    assert failures(checks)[0] == "prompt_bos"
    assert checks["prompt_bos"].value == 2


def test_a_bos_that_the_template_writes_is_counted_once():
    checks = run("prompt.prefix=<bos>")
    assert checks["prompt_bos"].status == "pass"
    assert checks["prompt_bos"].value == 1


def undeclared_end(parts):
    parts.policy.end_ids = [parts.policy.tokenizer.pad_token_id]
    parts.engine.ends = frozenset(parts.policy.end_ids)
    return parts


def test_an_end_token_that_is_not_declared():
    checks = run(broken=undeclared_end)
    assert failures(checks)[0] == "end_tokens"
    assert checks["end_tokens"].value == "<eos>"


def test_an_end_that_only_the_template_knows():
    def broken(parts):
        template = (
            "{% for m in messages %}{{ m['content'] }}{% if m['role'] == 'assistant' %}<pad>{% endif %}{% endfor %}"
        )
        parts.policy.tokenizer.chat_template = template
        return parts

    checks = run(broken=broken)
    assert failures(checks)[0] == "end_tokens"
    assert checks["end_tokens"].value == "<pad>"


def test_a_format_reward_that_is_worth_more_than_being_right():
    checks = run("format=2.0")
    assert failures(checks)[0] == "reward_shortcut"
    assert "'format'" in checks["reward_shortcut"].fix


class Unreadable:
    """Golds of two lines: the grader reads the first only."""

    name = "unreadable"
    grader_version = "x"

    def __init__(self, parts):
        self.task = parts.task

    def problems(self, split):
        return [msgspec.structs.replace(p, answer=f"yes\nor no ({p.id})") for p in self.task.problems(split)]

    def grade(self, completion, problem):
        return self.task.grade(completion, problem)


def test_golds_that_the_grader_cannot_read():
    checks = run(broken=replaced(task=Unreadable))
    assert failures(checks)[0] == "gold_grades"
    assert "arith-train-0001" in checks["gold_grades"].why


class Containing(Unreadable):
    """A grader that finds the gold anywhere in the text."""

    def problems(self, split):
        return self.task.problems(split)

    def grade(self, completion, problem):
        right = problem.answer in completion
        return Grade(right, right, False, problem.answer if right else None)


def test_a_grader_that_a_flood_of_digits_satisfies():
    checks = run(broken=replaced(task=Containing))
    assert failures(checks)[0] == "probe_grades"
    assert "digits" in checks["probe_grades"].value or "repeated" in checks["probe_grades"].value


@pytest.mark.parametrize(("engine", "value"), [(SameSeed, "same samples"), (NoSeed, "not repeatable")])
def test_seeds_that_do_not_reach_the_sampler(engine, value):
    checks = run(broken=replaced(engine=engine))
    assert failures(checks)[0] == "seeds"
    assert checks["seeds"].value == value


def test_samples_that_chance_may_repeat_say_nothing_about_seeds():
    assert failures(run("temperature=0.02", broken=replaced(engine=SameSeed)))[:1] != ["seeds"]
    one_token = run("rollout.prompts=1", "rollout.group_size=2", "max_tokens=1", broken=replaced(engine=SameSeed))
    assert one_token["seeds"].status == "skip"
    assert "too few or too certain to tell" in one_token["seeds"].why


def test_a_loss_without_a_path_to_the_weights(monkeypatch):
    plain = Updater.micro_loss

    def detached(self, rows, *, denominator):
        loss, metrics, gap = plain(self, rows, denominator=denominator)
        return loss.detach(), metrics, gap

    monkeypatch.setattr(Updater, "micro_loss", detached)
    checks = run(steps=1)
    assert failures(checks) == ["gradient"]
    assert "depend" in checks["gradient"].why


def test_a_batch_that_does_not_fit_names_the_one_that_does(monkeypatch):
    import torch

    plain = Updater.micro_loss

    def limited(self, rows, *, denominator):
        if len(rows) > 10:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return plain(self, rows, denominator=denominator)

    monkeypatch.setattr(Updater, "micro_loss", limited)
    checks = run(steps=1)
    assert failures(checks) == ["longest_batch"]
    assert checks["longest_batch"].fix.startswith("--set micro_batch=8")


# --- what surrounds it


def test_a_model_that_cannot_be_had_skips_with_the_reason():
    def load(config):
        raise UserError("model 'x/y': not in the local cache")

    smoked = smoke.smoke(config_of(), load=load)
    assert smoked.missing == "model 'x/y': not in the local cache"
    checks = run_gates(smoked.evidence)
    assert {check.status for check in checks} == {"skip"}
    assert "x/y" in next(check.why for check in checks if check.name == "engine_agreement")


def test_rewards_alone_need_no_training():
    smoked = check_rewards(config_of(), load=load_small)
    assert smoked.evidence.records == []
    names = [earning.name for earning in smoked.evidence.probes.earnings or []]
    assert "empty" in names
    assert "sampled wrong" in names


def test_problems_of_two_numbers_are_no_surprise_for_bos_of_a_tokenizer_without_one():
    from rlforge_cli.probing import bos_probe

    encoder = SimpleNamespace(tokenizer=SimpleNamespace(bos_token_id=None))
    assert bos_probe(encoder, [Problem("a", "1+1", "2")]).token is None


@pytest.mark.parametrize("steps", [1, 3])
def test_weights_that_an_update_spoiled_fail_a_gate(steps):
    """With one step it shows only in the probes after it."""
    config = settings.load("tiny-arith", sets=["lr=1e30", "G=4", "P=2"])
    checks = run_gates(smoke.smoke(config, steps=steps).evidence)
    failed = [check for check in checks if check.status == "fail"]
    assert failed[0].name == "finite"
    assert "optimizer.lr" in failed[0].fix
