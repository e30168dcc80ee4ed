"""From a problem to prompt ids: the prompt template, then the model's chat template, once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlforge_cli.errors import UserError, first_line

if TYPE_CHECKING:
    from rlforge_cli.config import PromptConfig
    from rlforge_cli.tasks.base import Problem


class PromptEncoder:
    """Encodes problems with a tokenizer; its ids are what the engine samples from and the policy trains on."""

    def __init__(self, tokenizer: Any, config: PromptConfig, *, max_tokens: int) -> None:
        self.tokenizer = tokenizer
        self.config = config
        self.max_tokens = max_tokens
        self.bos = added_bos(tokenizer)
        self._known: dict[str, list[int]] = {}

    def texts(self, problems: Sequence[Problem]) -> list[str]:
        """The rendered prompts; through the chat template where the model has one.

        All in one call, which takes half the time of a call each.
        """
        system = self.config.system
        bodies = [self.config.prefix + problem.prompt + self.config.suffix for problem in problems]
        if not getattr(self.tokenizer, "chat_template", None):
            return [f"{system}\n\n{body}" if system else body for body in bodies]
        before = [{"role": "system", "content": system}] if system else []
        from jinja2 import TemplateError

        try:
            return self.tokenizer.apply_chat_template(
                [[*before, {"role": "user", "content": body}] for body in bodies],
                tokenize=False, add_generation_prompt=True, enable_thinking=self.config.thinking,
            )  # fmt: skip
        except TemplateError as error:  # its syntax, or its own raise_exception
            way_out = "; leave prompt.system empty" if system else ""
            raise UserError(
                f"the model's chat template refuses the prompts: {first_line(error)}{way_out}, or mend the template in "
                "its folder"
            ) from None

    def encode(self, problem: Problem) -> list[int]:
        """Prompt ids with exactly one BOS where the model uses one.

        Raises:
            UserError: the prompt is empty or longer than ``max_tokens``.
        """
        if problem.id not in self._known:
            self.encode_all([problem])
        ids = self._known[problem.id]
        if len(ids) > self.max_tokens:
            raise UserError(
                f"problem {problem.id}: its prompt has {len(ids)} tokens, over rollout.max_prompt_tokens = "
                f"{self.max_tokens}; raise that key"
            )
        return ids

    def encode_all(self, problems: Sequence[Problem]) -> None:
        """Encode many at once (a batch is several times faster than one by one)."""
        new = [problem for problem in problems if problem.id not in self._known]
        if not new:
            return
        encoded = self.tokenizer(self.texts(new), add_special_tokens=False)["input_ids"]
        for problem, ids in zip(new, encoded, strict=True):
            # the template may have written the BOS already
            if self.bos is not None and (not ids or ids[0] != self.bos):
                ids = [self.bos, *ids]
            if not ids:
                raise UserError(
                    f"problem {problem.id}: its prompt is empty; give the task prompts, or set prompt.prefix"
                )
            self._known[problem.id] = list(ids)

    def fitting(self, problems: Sequence[Problem]) -> list[Problem]:
        """Those whose prompt is short enough.

        Raises:
            UserError: none is.
        """
        self.encode_all(problems)
        fitting = [problem for problem in problems if len(self._known[problem.id]) <= self.max_tokens]
        if problems and not fitting:
            shortest = min(len(self._known[problem.id]) for problem in problems)
            raise UserError(
                f"every prompt is longer than rollout.max_prompt_tokens = {self.max_tokens} (the shortest has "
                f"{shortest}); raise that key"
            )
        return fitting


def over_positions(encoder: PromptEncoder, problems: Sequence[Problem], *, most: int, model: Any) -> str | None:
    """What to say where ``most`` new tokens after the longest prompt are more than ``model`` has positions for."""
    positions = getattr(model.config, "max_position_embeddings", None)
    if positions is None:
        return None
    encoder.encode_all(problems)
    longest = max((len(encoder.encode(problem)) for problem in problems), default=0)
    if longest + most <= positions:
        return None
    return f"{most} and a prompt of {longest} tokens are over the {positions} positions of the model"


def added_bos(tokenizer: Any) -> int | None:
    """The BOS id if this tokenizer puts one before a text of its own accord, else None."""
    bos = getattr(tokenizer, "bos_token_id", None)
    if bos is None:
        return None
    ids = tokenizer("1")["input_ids"]
    return bos if ids and ids[0] == bos else None
