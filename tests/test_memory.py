from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from rlforge_cli import forecast, memory, settings
from rlforge_cli.__main__ import app, register
from rlforge_cli.architecture import KNOWN, architecture_of, from_config

PRESETS = ("qwen3-0.6b-full", "qwen3-1.7b-lora", "qwen3-8b-qlora")


@pytest.fixture(scope="module", autouse=True)
def commands():
    if not app.registered_commands:
        register()


def predict(preset, *sets, gpu_gib=32.0):
    config = settings.load(preset, sets=list(sets))
    return memory.predict(config, architecture_of(config.model.path), gpu_gib=gpu_gib)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("Qwen/Qwen3-0.6B", 596_049_920),
        ("Qwen/Qwen3-1.7B", 1_720_574_976),
        ("Qwen/Qwen3-8B", 8_190_735_360),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", 134_515_008),
    ],
)
def test_parameters_of_published_models(name, parameters):
    assert KNOWN[name].parameters == parameters


def test_the_embedded_model_is_counted_from_its_config():
    from rlforge_cli.config import ModelConfig
    from rlforge_cli.model import load_policy

    assert architecture_of("tiny-arith").parameters == load_policy(ModelConfig()).parameter_count


def test_an_adapter_is_counted_as_peft_does():
    from rlforge_cli.config import ModelConfig
    from rlforge_cli.model import load_policy

    policy = load_policy(ModelConfig(adaptation="lora", lora_rank=4))
    trained = sum(p.numel() for p in policy.trainable().values())
    assert architecture_of("tiny-arith").lora(4, ModelConfig().lora_targets) == trained


def test_unknown_shapes_are_none_and_no_guess(tmp_path):
    assert architecture_of("nobody/nothing") is None
    assert from_config({"hidden_size": 8, "num_experts": 4}) is None
    (tmp_path / "config.json").write_text("{", encoding="utf-8")
    assert architecture_of(str(tmp_path)) is None


def test_parts_of_full_training_in_bfloat16():
    parts = predict("qwen3-0.6b-full").parts
    billion = 596_049_920 / 2**30
    assert parts["weights"] == pytest.approx(2 * billion)
    assert parts["reference"] == pytest.approx(2 * billion)
    assert parts["masters"] == pytest.approx(4 * billion)
    assert parts["gradients"] == pytest.approx(4 * billion)
    assert parts["optimizer"] == pytest.approx(8 * billion)
    assert parts["engine and KV cache"] == pytest.approx(0.30 * 32 + memory.GRAPHS_GIB)


def test_paged_moments_are_a_quarter():
    full = predict("qwen3-0.6b-full").parts["optimizer"]
    assert predict("qwen3-0.6b-full", "optimizer.states=paged-8bit").parts["optimizer"] == pytest.approx(
        full * (2 + 8 / 256) / 8
    )


def test_four_bit_weights():
    linear = KNOWN["Qwen/Qwen3-8B"].linear
    rest = 8_190_735_360 - linear
    adapter = predict("qwen3-8b-qlora").trainable
    expected = linear * (0.5 + 1 / 64 + 1 / 4096) + rest * 2 + adapter * 4
    assert predict("qwen3-8b-qlora").parts["weights"] * 2**30 == pytest.approx(expected)


def test_the_control_comes_near_the_reference_experiment():
    assert predict("qwen3-0.6b-full").peak_gib == pytest.approx(21, rel=0.1)


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_fit_their_card_and_sleep_keeps_the_phases_apart(preset):
    found = predict(preset)
    assert found.fits
    assert found.peak_gib == max(found.training_gib, found.generating_gib)
    awake = predict(preset, "rollout.sleep=false")
    assert awake.training_gib > found.training_gib
    assert awake.generating_gib == found.generating_gib


@pytest.mark.parametrize(
    ("sets", "part"),
    [
        (["micro_batch=4"], "activations"),
        (["model.gradient_checkpointing=false"], "activations"),
        (["max_tokens=1024"], "activations"),
        (["rollout.memory_share=0.5"], "engine and KV cache"),
        (["rollout.engine=hf", "eval.batch_size=512", "eval.problems=0"], "engine and KV cache"),
    ],
)
def test_what_costs_more(sets, part):
    before = predict("qwen3-0.6b-full", *[s for s in sets if s == "rollout.engine=hf"])
    after = predict("qwen3-0.6b-full", *sets)
    assert after.parts[part] > before.parts[part]
    assert after.peak_gib >= before.peak_gib


def test_no_reference_no_memory_for_it():
    assert "reference" not in predict("qwen3-0.6b-full", "model.reference=false").parts
    assert "reference" not in predict("qwen3-1.7b-lora").parts


def test_an_engine_share_that_cannot_hold_the_weights_does_not_fit():
    found = predict("qwen3-8b-qlora", "rollout.memory_share=0.15")
    assert found.cache_tokens == 0
    assert not found.fits


def test_which_cards():
    config = settings.load("qwen3-0.6b-full", sets=["rollout.sleep=false"])
    cards = memory.which_fit(config, architecture_of(config.model.path))
    assert cards == {24.0: predict("qwen3-0.6b-full", "rollout.sleep=false", gpu_gib=24).fits, 32.0: True, 80.0: True}
    assert forecast.fits_text({24.0: False, 32.0: True, 80.0: True}) == "fits 32, 80 GiB, not 24"
    assert forecast.fits_text({24.0: False}) == "fits none of 24 GiB"


def test_time_is_scaled_from_the_reference_experiment():
    assert predict("qwen3-0.6b-full").seconds_per_step == pytest.approx(45)
    assert predict("qwen3-8b-qlora").seconds_per_step == pytest.approx(180, rel=0.05)
    half = predict("qwen3-0.6b-full", "G=4").seconds_per_step
    assert half == pytest.approx(22.5)


def test_plan_command(monkeypatch):
    done = CliRunner().invoke(app, ["plan", "--preset", "qwen3-8b-qlora", "--gpu", "32", "--json"])
    assert done.exit_code == 0
    result = json.loads(done.stdout)
    assert result["plan"]["completions"] == 200 * 4 * 4
    assert result["memory"]["peak_gib"] == pytest.approx(predict("qwen3-8b-qlora").peak_gib)
    assert set(result["cards"]) == {"24", "32", "80"}
    assert result["assumptions"]
    table = CliRunner().invoke(app, ["plan", "--preset", "qwen3-8b-qlora", "--gpu", "32"]).stdout
    assert "engine and KV cache" in table


def test_plan_says_why_a_peak_below_the_card_does_not_fit():
    words = ["plan", "--preset", "qwen3-8b-qlora", "--gpu", "16"]
    text = CliRunner().invoke(app, words).stdout
    assert "does not fit: the engine's share has no room for the keys and values of one sequence" in text


def test_plan_of_an_unknown_model_says_what_to_give():
    done = CliRunner().invoke(app, ["plan", "--set", "model.path=nobody/nothing"])
    assert done.exit_code != 0
    assert "config.json" in str(done.exception)


def test_a_tiny_model_still_waits_for_every_position():
    assert predict("tiny-arith").seconds_per_step == pytest.approx(64 * memory.POSITION_SECONDS)


def test_on_a_large_device_the_engine_stays_awake_and_what_an_update_freed_is_kept():
    large, small = (predict("qwen3-0.6b-full", "rollout.memory_share=0.2", gpu_gib=gib) for gib in (140.0, 24.0))
    awake = large.parts["engine and KV cache"] - memory.ASLEEP_GIB
    assert large.peak_gib == pytest.approx(small.training_gib + awake)
    assert large.peak_gib <= memory.PLENTY * 140
    for more in ("train.offload=true", "micro_batch=64"):  # memory is asked for, or there is too little of it
        found = predict("qwen3-0.6b-full", more, "gradient_checkpointing=false", gpu_gib=140.0)
        assert found.generating_gib < found.training_gib + awake


def test_vllm_takes_no_more_cache_than_its_sequences_can_fill():
    config = settings.load("qwen3-0.6b-full")
    fills = 256 * (1024 + memory.SPARE_SLOTS) * 2 * 28 * 8 * 128 * 2  # validation decodes 256 sequences together
    large = predict("qwen3-0.6b-full", gpu_gib=139.0)
    assert large.cache_tokens == 256 * (1024 + memory.SPARE_SLOTS)
    weights = memory.weight_bytes(config, architecture_of(config.model.path))
    expected = (weights + fills) / 2**30 + memory.PROFILE_GIB + memory.GRAPHS_GIB
    assert large.parts["engine and KV cache"] == pytest.approx(expected)
    assert predict("qwen3-0.6b-full", gpu_gib=200.0).parts["engine and KV cache"] == pytest.approx(expected)
