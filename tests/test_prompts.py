from __future__ import annotations

import pytest
from toys import ToyTokenizer

from rlforge_cli.config import PromptConfig
from rlforge_cli.errors import UserError
from rlforge_cli.prompts import PromptEncoder, added_bos
from rlforge_cli.tasks.base import Problem

PROBLEM = Problem("p", "12", "3")


def ids(tokenizer, *, config=PromptConfig(), max_tokens=64) -> list[int]:  # noqa: B008 - frozen
    return PromptEncoder(tokenizer, config, max_tokens=max_tokens).encode(PROBLEM)


@pytest.mark.parametrize(
    ("adds_bos", "template", "count"),
    [
        (True, lambda text: f"<s>{text}", 1),
        (True, lambda text: text, 1),
        (False, lambda text: text, 0),
        (False, lambda text: f"<s>{text}", 1),
        (True, None, 1),
        (False, None, 0),
    ],
)
def test_exactly_one_bos_where_the_model_uses_one(adds_bos, template, count):
    encoded = ids(ToyTokenizer(adds_bos=adds_bos, template=template))
    assert encoded[:count] == [15] * count
    assert encoded[count:] == [1, 2]


def test_bos_is_known_by_what_the_tokenizer_does():
    assert added_bos(ToyTokenizer(adds_bos=True)) == 15
    assert added_bos(ToyTokenizer(adds_bos=False)) is None


def test_prompt_template_surrounds_the_problem():
    config = PromptConfig(prefix="9 ", suffix="\n0")
    assert ids(ToyTokenizer(), config=config) == [9, 10, 1, 2, 13, 0]


def test_thinking_is_switched_off_by_default():
    seen = {}

    class Tokenizer(ToyTokenizer):
        def apply_chat_template(self, conversations, **options):
            seen.update(options, messages=conversations[0])
            return ["1"]

    tokenizer = Tokenizer(template=str)
    ids(tokenizer, config=PromptConfig(system="be brief"))
    assert seen["enable_thinking"] is False
    assert seen["add_generation_prompt"] is True
    assert seen["tokenize"] is False
    assert [message["role"] for message in seen["messages"]] == ["system", "user"]
    ids(tokenizer, config=PromptConfig(thinking=True))
    assert seen["enable_thinking"] is True


def test_prompts_that_are_too_long_are_left_out_or_refused():
    encoder = PromptEncoder(ToyTokenizer(), PromptConfig(), max_tokens=2)
    problems = [PROBLEM, Problem("long", "123", "3")]
    assert encoder.fitting(problems) == [PROBLEM]
    with pytest.raises(UserError, match=r"long.*3 tokens.*max_prompt_tokens = 2"):
        encoder.encode(problems[1])
    with pytest.raises(UserError, match="every prompt is longer"):
        encoder.fitting(problems[1:])


def test_an_empty_prompt_is_refused():
    with pytest.raises(UserError, match="empty"):
        PromptEncoder(ToyTokenizer(), PromptConfig(), max_tokens=2).encode(Problem("e", "", "1"))
