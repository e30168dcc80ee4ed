from __future__ import annotations

import json
import random
from collections import Counter
from hashlib import sha256
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import rlforge_cli
from rlforge_cli.tasks.arithmetic import Arithmetic, split_of
from rlforge_cli.tasks.base import problems_hash
from rlforge_cli.tasks.tiny_model import warm_start as module
from rlforge_cli.tasks.tiny_model.demonstrations import (
    MIXES,
    RAMBLE_LENGTH,
    Demonstration,
    gold,
    operands,
    slipped,
    spoiled,
)
from rlforge_cli.tasks.tiny_model.greedy import MAX_NEW_TOKENS, greedy, greedy_scores
from rlforge_cli.tasks.tiny_model.tokenizer import CHARACTERS, SPECIAL, build_tokenizer
from rlforge_cli.tasks.tiny_model.warm_start import IGNORED, STAGES, build_config, collate, warm_start

ASSETS = Path(rlforge_cli.__file__).parent / "assets" / "tiny-arith"


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(ASSETS)


@pytest.fixture(scope="module")
def model():
    return AutoModelForCausalLM.from_pretrained(ASSETS)


# --- tokenizer


def test_shipped_tokenizer_files_are_what_the_code_builds(tmp_path):
    written = {Path(path).name for path in build_tokenizer().save_pretrained(tmp_path)}
    assert {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"} <= written
    for path in tmp_path.iterdir():
        assert (ASSETS / path.name).read_text(encoding="utf-8") == path.read_text(encoding="utf-8"), path.name


def test_every_character_is_one_token_and_comes_back(tokenizer):
    ids = tokenizer(CHARACTERS)["input_ids"]
    assert ids == list(range(len(SPECIAL), len(SPECIAL) + len(CHARACTERS)))
    assert tokenizer.decode(ids) == CHARACTERS
    assert len(tokenizer) == 100


@pytest.mark.parametrize("text", ["23-6=20-3=17;17+9=26\n#### 26", "  two  spaces , and . marks !", "", "\n\n"])
def test_text_comes_back_unchanged(tokenizer, text):
    ids = tokenizer(text)["input_ids"]
    assert len(ids) == len(text)
    assert tokenizer.decode(ids) == text


def test_other_characters_are_unknown_one_by_one(tokenizer):
    assert tokenizer("é1🙂")["input_ids"] == [tokenizer.unk_token_id, tokenizer("1")["input_ids"][0], 3]


def test_nothing_is_added_to_a_prompt(tokenizer):
    plain = tokenizer("1+2=?", add_special_tokens=False)["input_ids"]
    assert tokenizer("1+2=?")["input_ids"] == plain
    chat = [{"role": "user", "content": "1+2=?"}]
    assert tokenizer.apply_chat_template(chat, add_generation_prompt=True)["input_ids"] == plain


def test_special_tokens_are_declared_alike_everywhere(tokenizer, model):
    declared = (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id)
    assert declared == (0, 1, 2)
    for config in (model.config, model.generation_config):
        assert (config.pad_token_id, config.bos_token_id, config.eos_token_id) == declared


# --- demonstrations


@pytest.mark.parametrize(
    ("value", "operand", "result"), [(27, 5, 22), (27, 35, 52), (99, 1, 90), (23, -6, 23), (62, -35, 33), (30, -7, 37)]
)
def test_slips(value, operand, result):
    assert slipped(value, operand) == result


def test_gold_demonstrations_are_right_in_the_asked_format_and_fit():
    task, rng, texts = Arithmetic(), random.Random(0), []
    for problem in task.problems("train")[:500]:
        demonstration = gold(problem.prompt, rng)
        grade = task.grade(demonstration.text, problem)
        assert grade.correct_strict, demonstration
        assert demonstration.ends
        assert len(demonstration.text) + 1 <= MAX_NEW_TOKENS
        for step in demonstration.text.partition("\n")[0].split(";"):
            assert len({eval(side) for side in step.split("=")}) == 1, step
        texts.append(demonstration.text)
    sides = Counter(step.count("=") for text in texts for step in text.partition("\n")[0].split(";"))
    assert set(sides) == {1, 2}
    assert min(sides.values()) > 0.2 * sides.total()


def shape_of(demonstration: Demonstration) -> str:
    if not demonstration.ends:
        return "ramble"
    if demonstration.text.startswith("####"):
        return "guess"
    return "asked" if "\n#### " in demonstration.text else "marker"


def test_spoiled_demonstrations_have_the_stated_shapes():
    rng = random.Random(0)
    for prompt, operations in (("34+9=?", 1), ("43-6+8-5+30=?", 4)):
        made = [spoiled(prompt, rng) for _ in range(4000)]
        shapes = Counter(map(shape_of, made))
        for shape, share in MIXES[operations]._asdict().items():
            assert shapes[shape] / 4000 == pytest.approx(share, abs=0.03), (prompt, shape)
        assert all(len(d.text) == RAMBLE_LENGTH > MAX_NEW_TOKENS for d in made if not d.ends)


def test_a_spoiled_carry_is_careful_or_slips_as_often_as_stated():
    rng = random.Random(0)
    made = [spoiled("34+9=?", rng) for _ in range(4000)]
    steps = Counter(d.text.partition("\n")[0].split(";")[0] for d in made if shape_of(d) != "guess")
    assert set(steps) == {"34+9=30+13=43", "34+9=43", "34+9=33"}
    assert steps["34+9=30+13=43"] / steps.total() == pytest.approx(0.3, abs=0.03)
    assert steps["34+9=33"] / (steps["34+9=33"] + steps["34+9=43"]) == pytest.approx(0.85, abs=0.03)


def test_mixes_sum_to_one_and_cover_the_task():
    assert set(MIXES) == {1, 2, 3, 4}
    assert [sum(mix) for mix in MIXES.values()] == pytest.approx([1.0] * 4)


def test_operands():
    assert operands("23-6+9=?") == [23, -6, 9]


# --- warm start


def test_labels_cover_the_demonstration_and_its_end_token(tokenizer):
    rows = [("1+2=?", Demonstration("3", ends=True)), ("1=?", Demonstration("12345", ends=False))]
    ids, labels = collate(rows, tokenizer)
    assert ids.shape == labels.shape == (2, 8)
    assert tokenizer.decode(ids[0]) == "1+2=?3<eos><pad>"
    assert tokenizer.decode(labels[0][labels[0] != IGNORED]) == "3<eos>"
    assert tokenizer.decode(labels[1][labels[1] != IGNORED]) == "12345"


def test_learning_rate_rises_then_falls_to_nearly_nothing():
    stage = STAGES[0]
    assert stage.lr_at(0) == pytest.approx(stage.lr / 30)
    assert stage.lr_at(599) == stage.lr
    assert stage.lr_at(900) == pytest.approx(stage.lr / 2)
    assert stage.lr_at(1199) == pytest.approx(stage.lr / 600)


def test_two_warm_starts_are_bit_identical_and_another_seed_differs():
    few = [stage._replace(steps=2) for stage in STAGES]
    first, second, other = (warm_start(stages=few, seed=seed).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["lm_head.weight"], other["lm_head.weight"])


def test_a_warm_start_leaves_the_callers_randomness_and_threads_alone():
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    threads = torch.get_num_threads()
    warm_start(stages=[STAGES[0]._replace(steps=1)])
    assert torch.equal(torch.rand(1), expected)
    assert torch.get_num_threads() == threads


def test_a_warm_start_learns_and_sees_train_prompts_only(monkeypatch):
    monkeypatch.setattr(module, "BATCH", 16)
    seen, losses = [], []

    def spy(prompt, rng):
        seen.append(prompt)
        return gold(prompt, rng)

    warm_start(stages=[STAGES[0]._replace(write=spy, steps=20)], report=lambda stage, step, loss: losses.append(loss))
    assert len(seen) == 20 * 16
    assert {split_of(prompt) for prompt in seen} == {"train"}
    assert losses[-1] < 0.7 * losses[0]


# --- the shipped checkpoint


def test_shipped_model_is_small_fp32_and_of_the_stated_shape(tokenizer, model):
    assert sum(path.stat().st_size for path in ASSETS.iterdir()) < 4_000_000
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert model.num_parameters() == 308_480
    built, shipped = build_config(tokenizer).to_dict(), model.config.to_dict()
    for key in ("architectures", "_name_or_path", "transformers_version"):
        built.pop(key, None), shipped.pop(key, None)
    assert built == shipped


def test_the_record_beside_the_weights_is_about_these_weights():
    made = json.loads((ASSETS / "made.json").read_text(encoding="utf-8"))
    assert made["weights_sha256"] == sha256((ASSETS / "model.safetensors").read_bytes()).hexdigest()
    assert made["validation_hash"] == problems_hash(Arithmetic().problems("validation"))


def test_shipped_model_knows_the_task_a_little(tokenizer, model):
    scores = greedy_scores(model, tokenizer, Arithmetic().problems("validation")[:200])
    assert 0.15 <= scores["accuracy"] <= 0.30
    assert 0.50 <= scores["format_ok"] <= 0.75
    assert 0.02 <= scores["truncated"] <= 0.30


def test_shipped_models_mistakes_are_the_taught_ones(tokenizer, model):
    problems = Arithmetic().problems("validation")[:60]
    texts, _ = greedy(model, tokenizer, [problem.prompt for problem in problems])
    slips = right = other = 0
    for text, problem in zip(texts, problems, strict=True):
        value, operand = operands(problem.prompt)[:2]
        units = value % 10 + (operand % 10 if operand > 0 else -(-operand % 10))
        if 0 <= units <= 9 or text.startswith("####"):
            continue
        stated = text.partition("\n")[0].split(";")[0].rpartition("=")[2]
        slips += stated == str(slipped(value, operand))
        right += stated == str(value + operand)
        other += stated not in (str(slipped(value, operand)), str(value + operand))
    assert slips > 2 * (right + other)
