"""The character tokenizer: one token for each printable ASCII character and the newline, no beginning-of-text token.

Printable ASCII, though the task needs 16 characters, so that any other English task can be put through the embedded
model to try a pipeline; whatever is left (accents, emoji) becomes ``<unk>``, one token a character.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PAD, BOS, EOS, UNK = "<pad>", "<bos>", "<eos>", "<unk>"
SPECIAL = (PAD, BOS, EOS, UNK)
"""Token ids 0 to 3. ``<bos>`` is declared, as programs ask for its id, but nothing ever adds it."""

CHARACTERS = "\n" + "".join(map(chr, range(32, 127)))
MAX_LENGTH = 512
"""Characters of prompt and completion together that the model has positions for."""

CHAT_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def build_tokenizer() -> PreTrainedTokenizerFast:
    """A ``PreTrainedTokenizerFast`` over ``SPECIAL + CHARACTERS`` whose chat template is the bare message content."""
    from tokenizers import Tokenizer
    from tokenizers.decoders import Fuse
    from tokenizers.models import BPE
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: index for index, token in enumerate((*SPECIAL, *CHARACTERS))}
    # byte-pair encoding without merges is a character tokenizer that every inference program can read
    backend = Tokenizer(BPE(vocab=vocabulary, merges=[], unk_token=UNK, fuse_unk=False))
    backend.decoder = Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        unk_token=UNK,
        chat_template=CHAT_TEMPLATE,
        model_max_length=MAX_LENGTH,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
