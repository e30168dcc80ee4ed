from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from rlforge_cli import settings
from rlforge_cli.config import Config, completions_per_step, groups_per_round
from rlforge_cli.errors import UserError


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("lr=1e-6", "optimizer.lr", 1e-06),
        ("lr=1E-6", "optimizer.lr", 1e-06),
        ("lr=5", "optimizer.lr", 5.0),
        ("run.name=1e3", "run.name", "1e3"),
        ("run.name=007", "run.name", "007"),
        ("run.name=2024-05-01", "run.name", "2024-05-01"),
        ("G=16", "rollout.group_size", 16),
        ("prompt.suffix=a=b", "prompt.suffix", "a=b"),
        ("reward.truncation=-0.5", "reward.truncation", -0.5),
        ("eval.k=[1,4]", "eval.k", (1, 4)),
        ("eval.k=1,4", "eval.k", (1, 4)),
        ("model.path=models/a.b/c", "model.path", "models/a.b/c"),
        ("run.note=", "run.note", ""),
        ("beta=0.01", "grpo.kl_coef", 0.01),
        ("steps=7", "train.steps", 7),
        ("temperature=.5", "rollout.temperature", 0.5),
        ("prompts=4", "rollout.prompts", 4),
        ("max_tokens=64", "rollout.max_tokens", 64),
        ("seed=3", "train.seed", 3),
        ("format=0.05", "reward.format", 0.05),
        ("oversample=1.5", "rollout.oversample", 1.5),
        ("checkpoint.every=10", "checkpoint.every", 10),
        ("thinking=true", "prompt.thinking", True),
        ('reward.functions=["m:f","a.py:g"]', "reward.functions", ("m:f", "a.py:g")),
        ("log.sinks=", "log.sinks", ()),
    ],
)
def test_the_schema_decides_what_a_text_means(text, key, value):
    assert settings.parse_set(text) == (key, value)
    config = settings.load("tiny-arith", sets=[text])
    assert settings.flatten(config)[key] == value
    assert type(settings.flatten(config)[key]) is type(value)


@pytest.mark.parametrize(
    "text",
    ["G=16.0", "G=1e1", "G=true", "G=", "G=８", "lr=nan", "lr=inf", "lr=fast", "lr", "thinking=yes", "eval.k=[1,x]",
     "steps=99999999999999999999", "=5",
     "top_p=0", "top_p=1.5", "dtype=float16", "G=-4", "lr=0", "reward.truncation=0.5"],
)  # fmt: skip
def test_a_value_of_the_wrong_type_or_range_is_refused_in_one_line(text):
    with pytest.raises(UserError) as caught:
        settings.load("tiny-arith", sets=[text])
    assert "\n" not in str(caught.value)
    assert text.partition("=")[0].split(".")[-1] in str(caught.value) or "rollout.group_size" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "nearest"), [("tempature=1", "temperature"), ("rollout.goup_size=4", "rollout.group_size"), ("LR=1", "lr")]
)
def test_an_unknown_key_names_the_nearest(text, nearest):
    with pytest.raises(UserError, match=nearest):
        settings.load(sets=[text])


def test_an_ambiguous_short_name_lists_the_full_ones():
    with pytest.raises(UserError, match=r"checkpoint\.every, eval\.every"):
        settings.full_key("every")


def test_group_of_one_is_refused_by_name():
    with pytest.raises(UserError, match=r"rollout\.group_size \(G\) is 1.*at least 2"):
        settings.load(sets=["G=1"])


@pytest.mark.parametrize(("total", "size", "valid"), [(24, 5, "2, 3, 4, 6, 8, 12, 24"), (7, 8, "7")])
def test_completions_that_no_group_divides_name_the_valid_sizes(total, size, valid):
    with pytest.raises(UserError, match=f"{total}.*{size}.*valid G for {total}: {valid}$"):
        settings.load(sets=[f"completions={total}", f"G={size}"])


def test_completions_set_the_prompts():
    assert settings.load(sets=["completions=24", "G=6"]).rollout.prompts == 4
    again = settings.load(base=settings.load(sets=["completions=24", "G=6"]), sets=["G=8"])
    assert (again.rollout.group_size, again.rollout.prompts, again.rollout.completions) == (8, 4, 0)


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (["updates=3"], "valid: 1, 2, 4, 8"),
        (["oversample=0.5"], "at least 1"),
        (["max_rounds=3"], "oversample"),
        (["checkpoint.keep=0"], "-1 to keep all"),
        (["eval.k=[0]"], "at least 1"),
        (["log.sinks=tensorbord"], "tensorboard"),
        (["sampling_correction=token-mask", "top_p=0.8"], r"sampling_correction.*rollout\.top_p = 0\.8.*top_p=1"),
        (["sampling_correction=sequence-truncate", "top_k=20"], r"rollout\.top_k = 20.*sampling_correction=off"),
        (["sampling_correction=token-mask", "engine=vllm"], r"rollout\.logprob_share = 0\.125.*logprob_share=1"),
        (["sampling_cap=1"], "sampling_cap"),
        (["sampling_cap=1e400"], "too large"),
        (["lr=-1e999"], "too large"),
        (["steps=1000000000"], "steps=1000000000: too large; at most 999999999"),
        (["steps=" + "9" * 5000], "too large"),
        (["oversample=1e9"], "rollout.oversample: expected `float` <= 100"),
        (["sampling_correction=token"], "token-mask"),
    ],
)
def test_what_must_hold_between_keys(sets, message):
    with pytest.raises(UserError, match=message) as caught:
        settings.load(sets=sets)
    assert "\n" not in str(caught.value)


def test_a_corrected_engine_and_a_truncating_one_are_both_allowed_alone():
    assert settings.load(sets=["sampling_correction=token-mask"]).grpo.sampling_cap == 2.0
    assert settings.load(sets=["top_p=0.8", "top_k=20"]).grpo.sampling_correction == "off"


@pytest.mark.parametrize("name", settings.preset_names())
def test_every_preset_loads_and_survives_the_round_trip(name):
    config = settings.load(name)
    assert settings.build(msgspec.to_builtins(config), where="test") == config
    assert settings.about(name)


def test_the_reference_control_is_as_published():
    flat = settings.flatten(settings.load("qwen3-0.6b-full"))
    expected = {
        "model.path": "Qwen/Qwen3-0.6B", "model.adaptation": "full", "model.dtype": "bfloat16", "model.reference": True,
        "model.gradient_checkpointing": True, "data.task": "gsm8k", "rollout.engine": "vllm", "rollout.group_size": 8,
        "rollout.prompts": 8, "rollout.max_tokens": 512, "rollout.temperature": 1.0, "rollout.top_p": 1.0,
        "rollout.memory_share": 0.30, "rollout.sleep": True, "rollout.oversample": 0.0, "reward.correctness": 1.0,
        "reward.format": 0.2, "reward.truncation": -0.5, "reward.length_coef": 0.0, "grpo.clip_low": 0.2,
        "grpo.clip_high": 0.28, "grpo.kl_coef": 0.0, "grpo.updates": 1, "grpo.aggregation": "sequence",
        "optimizer.lr": 1e-6, "optimizer.beta1": 0.9, "optimizer.beta2": 0.98, "optimizer.warmup_steps": 0,
        "train.steps": 200, "train.micro_batch_size": 2, "prompt.thinking": False,
    }  # fmt: skip
    assert {key: flat[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("qwen3-1.7b-lora", {"model.path": "Qwen/Qwen3-1.7B", "model.adaptation": "lora", "model.lora_rank": 16,
                             "rollout.group_size": 8, "rollout.prompts": 8, "train.micro_batch_size": 1,
                             "optimizer.lr": 2e-5, "optimizer.beta2": 0.98, "rollout.memory_share": 0.35,
                             "grpo.kl_coef": 0.0}),
        ("qwen3-8b-qlora", {"model.path": "Qwen/Qwen3-8B", "model.adaptation": "qlora", "model.lora_rank": 16,
                            "rollout.group_size": 4, "rollout.prompts": 4, "train.micro_batch_size": 1,
                            "optimizer.lr": 2e-5, "rollout.max_tokens": 512, "rollout.memory_share": 0.30,
                            "rollout.sleep": True}),
    ],
)  # fmt: skip
def test_the_adapter_presets(name, expected):
    flat = settings.flatten(settings.load(name))
    assert {key: flat[key] for key in expected} == expected


def test_default_preset_comes_from_environment_then_project_file(monkeypatch, tmp_path):
    assert settings.default_preset() == "tiny-arith"
    Path("rlforge.toml").write_text('preset = "qwen3-0.6b-full"\n')
    assert settings.load().model.path == "Qwen/Qwen3-0.6B"
    monkeypatch.setenv("RLFORGE_PRESET", "qwen3-8b-qlora")
    assert settings.load().model.path == "Qwen/Qwen3-8B"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[rollout]\ngroup_sise = 4\n", "group_size"),
        ("[rolout]\n", "rollout"),
        ("rollout = 3\n", "section"),
        ("[rollout]\ngroup_size = 4.0\n", "rollout.group_size"),
        ("[rollout]\ngroup_size = true\n", "rollout.group_size"),
        ("[optimizer]\nlr = nan\n", "optimizer.lr"),
        ("[rollout\n", "not valid TOML"),
    ],
)
def test_a_preset_file_with_a_fault_names_file_and_key(content, message):
    Path("mine.toml").write_text(content)
    with pytest.raises(UserError, match=message) as caught:
        settings.load("mine.toml")
    assert "mine.toml" in str(caught.value)


@pytest.mark.parametrize("names", [["a.toml"], ["a.toml", "b.toml"]])
def test_presets_that_extend_each_other_in_a_circle(names):
    for name, parent in zip(names, [*names[1:], names[0]], strict=True):
        Path(name).write_text(f'extends = "{parent}"\n')
    with pytest.raises(UserError, match="extends itself"):
        settings.load("a.toml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('extends = ["qwen3-8b-qlora"]', r"mine.toml: extends = \['qwen3-8b-qlora'\]: expected the name of one preset"),
        ("extends = 3", "mine.toml: extends = 3: expected"),
        ("[train]\nsteps = 99999999999999999999999", "mine.toml: train.steps = 9+: too large; at most 999999999"),
        ("[train]\nseed = 1000000000", "mine.toml: train.seed = 1000000000: too large"),
        ("a = " + "[" * 20_000, "mine.toml: not valid TOML here: .* nested too deeply"),
    ],
)
def test_a_preset_file_is_held_to_what_set_is(text, message):
    Path("mine.toml").write_text(text)
    with pytest.raises(UserError, match=message):
        settings.load("mine.toml")


def test_a_preset_file_extends_another():
    Path("mine.toml").write_text('extends = "tiny-arith"\n[rollout]\ngroup_size = 4\n')
    config = settings.load("mine.toml")
    assert (config.rollout.group_size, config.rollout.max_tokens, config.optimizer.lr) == (4, 64, 5e-5)


@pytest.mark.parametrize("name", ["qwen3", "tiny-arit", "../presets/tiny-arith", "missing.toml"])
def test_an_unknown_preset_is_one_line(name):
    with pytest.raises(UserError) as caught:
        settings.load(name)
    assert "\n" not in str(caught.value)


def test_changes_leave_out_what_is_not_the_recipe():
    control = settings.load()
    other = settings.load(sets=["seed=5", "run.name=x", "micro_batch=4", "checkpoint.every=1", "G=4"])
    assert settings.changes(control, other) == [{"key": "rollout.group_size", "from": 8, "to": 4}]
    assert settings.changes(control, settings.load(sets=["steps=10"]), derived=["train.steps"]) == []


def test_dynamic_sampling_rounds_up_without_float_noise():
    assert groups_per_round(settings.load(sets=["oversample=1.5"])) == 12
    assert groups_per_round(settings.load(sets=["oversample=1.1", "prompts=10"])) == 11
    assert completions_per_step(settings.load(sets=["oversample=1.5"])) == 96
    assert completions_per_step(Config()) == 64


def test_every_key_is_documented():
    assert all(settings.description(key) for key in settings.KEYS)
