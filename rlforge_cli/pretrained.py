"""From a folder or a hub name to a model and its tokenizer; what is wrong with them as one line.

A library fills a weight that a file lacks with random numbers, and reads numbers that are none: both would only show as
a bad score. So what was loaded is looked at before it is used.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from rlforge_cli.errors import UserError, first_line, memory_lack
from rlforge_cli.hub import settle_offline

EMBEDDED = "tiny-arith"


def model_source(path: str) -> str:
    """The folder or hub name to load: the embedded model, an existing folder, a cached hub name.

    Raises:
        UserError: a folder that is no model, or a hub name that cannot be had; says how to give a folder.
    """
    if path == EMBEDDED:
        return str(Path(__file__).parent / "assets" / EMBEDDED)
    folder = Path(path).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file() and not (folder / "adapter_config.json").is_file():
            raise UserError(f"{path}: no model folder (no config.json in it); give a folder that save_pretrained wrote")
        return str(folder)
    if path.startswith((".", "/", "~")) or path.count("/") != 1:
        raise UserError(f"{path}: no such model folder; give a folder, a hub name (owner/model), or {EMBEDDED!r}")
    return path


def base_of(source: str) -> str:
    """The model that an adapter's folder names as its base; ``source`` itself where it is no adapter.

    Raises:
        UserError: it names none, or one that cannot be had.
    """
    described = Path(source) / "adapter_config.json"
    if not described.is_file():
        return source
    with readable(f"{described}: cannot be read"):
        name = json.loads(described.read_text(encoding="utf-8")).get("base_model_name_or_path")
    if not name or not isinstance(name, str):
        raise UserError(f"{described}: names no base model (base_model_name_or_path)")
    return model_source(name)


@contextlib.contextmanager
def readable(what: str, *, way_out: str = "") -> Iterator[None]:
    """What a library raises inside about a file that is not what it should be: in one line ``what``, why, ``way_out``.

    Raises:
        UserError: for every error but those of memory: the libraries that read files share no type of error.
    """
    try:
        yield
    except UserError as error:
        raise UserError(f"{error}{way_out}") from None
    except Exception as error:
        if memory_lack(error):
            raise
        kind = "" if isinstance(error, (OSError, ValueError)) else f"{type(error).__name__}: "
        raise UserError(f"{what}: {kind}{first_line(error)}{way_out}") from None


def load_pretrained(loader: Any, source: str, **kwargs: Any) -> Any:
    """``loader.from_pretrained``, with the errors a person can mend as one line."""
    if Path(source).is_dir():
        with readable(f"{source}: cannot be loaded as a model folder"):
            return loader.from_pretrained(source, **kwargs)
    settle_offline()
    with readable(f"{source}: cannot be loaded as a causal language model"):
        try:
            return loader.from_pretrained(source, **kwargs)
        except OSError:
            raise UserError(
                f"model {source!r}: not in the local cache and the hub could not be reached; download it where "
                "there is a network and give its folder: --set model.path=FOLDER"
            ) from None


def load_model(source: str, **kwargs: Any) -> Any:
    """A causal language model with exactly the weights that were saved.

    Raises:
        UserError: the files lack some, have others than ``config.json`` asks for, or hold numbers that are not finite.
    """
    from transformers import AutoModelForCausalLM

    model, found = load_pretrained(
        AutoModelForCausalLM, source, output_loading_info=True, ignore_mismatched_sizes=True, **kwargs
    )
    for name, saved, wanted in sorted(found["mismatched_keys"]):
        raise UserError(
            f"{source}: the weight {name} has shape {tuple(saved)}, and config.json asks for {tuple(wanted)}: they "
            "are not of one model"
        )
    if missing := sorted(found["missing_keys"]):
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise UserError(
            f"{source}: the weight {missing[0]}{more} is not in its files and would be random: copy the whole folder "
            "again"
        )
    require_finite(model.named_parameters(), source)
    return model


def require_finite(weights: Iterable[tuple[str, torch.Tensor]], source: str) -> None:
    """Refuse weights that spoil everything computed with them.

    Raises:
        UserError: one holds NaN or infinity.
    """
    named = [(name, weight.detach()) for name, weight in weights if weight.is_floating_point() and weight.numel()]
    # the extremes of a tensor with NaN are NaN; on a CPU they take a thirtieth of the time of isfinite over all
    ends = [torch.stack(torch.aminmax(weight)).isfinite().all() for _, weight in named]
    if ends and not bool(torch.stack(ends).all()):
        name = next(name for (name, _), finite in zip(named, ends, strict=True) if not finite)
        raise UserError(
            f"{source}: the weight {name} holds NaN or infinity: the training that wrote it had diverged, or the file "
            "is damaged; give another model"
        )


def load_tokenizer(source: str) -> Any:
    """The tokenizer of a model folder or hub name.

    Raises:
        UserError: the folder holds none (transformers makes one without any token then).
    """
    from transformers import AutoTokenizer

    tokenizer = load_pretrained(AutoTokenizer, source)
    if not tokenizer("1")["input_ids"]:
        raise UserError(f"{source}: its tokenizer has no tokens: copy tokenizer.json and tokenizer_config.json there")
    tokenizer.clean_up_tokenization_spaces = False  # decoding gives the sampled text, unedited
    return tokenizer


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Loading without transformers' own progress bars and notes."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
