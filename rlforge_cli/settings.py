"""Where a configuration comes from: a preset (TOML), the project file, and ``--set key=value``.

The schema's type decides what a text means, never its look: ``run.name=1e3`` is a name, ``G=1e1`` is refused.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from rlforge_cli.config import Config, resolve
from rlforge_cli.errors import UserError, nearest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SECTIONS: dict[str, type] = get_type_hints(Config)
KEYS: dict[str, Any] = {
    f"{section}.{field}": hint
    for section, kind in SECTIONS.items()
    for field, hint in get_type_hints(kind, include_extras=True).items()
}
SHORT = {
    "G": "rollout.group_size",
    "P": "rollout.prompts",
    "T": "rollout.temperature",
    "beta": "grpo.kl_coef",
    "clip_eps_low": "grpo.clip_low",
    "clip_eps_high": "grpo.clip_high",
    "micro_batch": "train.micro_batch_size",
    "length_penalty": "reward.length_coef",
    "rank": "model.lora_rank",
    "model": "model.path",
    "warmup": "optimizer.warmup_steps",
    "max_tokens": "rollout.max_tokens",
}
NOT_THE_RECIPE = frozenset(
    {
        "run", "log", "checkpoint", "train.seed", "train.max_completions", "data.path", "model.device",
        "train.micro_batch_size",
        "model.reference_share", "model.gradient_checkpointing", "eval.batch_size", "rollout.memory_share",
        "rollout.sleep", "rollout.eager", "rollout.compile", "rollout.logprob_share", "train.offload",
        "train.stop_on_collapse", "data.difficulty_from",
    }
)  # fmt: skip
"""Sections and keys that say where, how fast or under which label a run happens, not what it does."""
PROJECT_FILE = "rlforge.toml"
DEFAULT_PRESET = "tiny-arith"
LARGEST = 999_999_999
"""Of whole numbers."""


def short_names() -> dict[str, str]:
    """Every short name with its full key: the field's own symbols, and field names that only one section has."""
    fields: dict[str, list[str]] = {}
    for key in KEYS:
        fields.setdefault(key.split(".")[1], []).append(key)
    return {name: keys[0] for name, keys in fields.items() if len(keys) == 1} | SHORT


def full_key(name: str) -> str:
    """The full key that ``name`` stands for.

    Raises:
        UserError: unknown or ambiguous, with the nearest valid names.
    """
    if name in KEYS:
        return name
    short = short_names()
    if name in short:
        return short[name]
    same = [key for key in KEYS if key.split(".")[1] == name]
    if same:
        raise UserError(f"--set {name}: ambiguous, use one of {', '.join(same)}")
    raise UserError(f"--set {name}: no such key{nearest(name, [*KEYS, *short])}; `rlforge explain knobs` lists them")


def parse_set(text: str) -> tuple[str, Any]:
    """``"G=16"`` -> ``("rollout.group_size", 16)``; split at the first ``=`` only."""
    name, equals, value = text.partition("=")
    if not equals:
        raise UserError(f"--set {text}: write key=value, for example --set G=16")
    if not name.strip():
        raise UserError(f"--set {text}: no key before the =; write key=value, for example --set G=16")
    key = full_key(name.strip())
    return key, typed(value, KEYS[key], where=f"--set {name.strip()}")


def typed(text: str, hint: Any, *, where: str) -> Any:
    """``text`` as the type ``hint`` of the schema says (bounds and choices are checked when the section is built)."""
    hint = get_args(hint)[0] if hasattr(hint, "__metadata__") else hint
    if hint is str:
        return text
    if get_origin(hint) is Literal:
        if text in get_args(hint):
            return text
        raise UserError(f"{where}={text}: not a choice{nearest(text, get_args(hint))}")
    if hint is bool:
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
        raise UserError(f"{where}={text}: expected true or false")
    if hint is int:
        if not re.fullmatch(r"[+-]?[0-9]+", text.strip()):
            raise UserError(f"{where}={text}: expected a whole number, such as 8")
        if len(text.strip()) > 20 or abs(int(text)) > LARGEST:  # longer ones Python may refuse to read
            raise UserError(f"{where}={text[:40]}: too large; at most {LARGEST}")
        return int(text)
    if hint is float:
        if re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text.strip()):
            if math.isfinite(value := float(text)):
                return value
            raise UserError(f"{where}={text[:40]}: too large")
        raise UserError(f"{where}={text}: expected a number, such as 1e-6")
    if get_origin(hint) is tuple:
        return typed_list(text, get_args(hint)[0], where=where)
    raise AssertionError(f"{where}: no reader for {hint}")


def typed_list(text: str, item: Any, *, where: str) -> tuple[Any, ...]:
    """``[1,4]``, ``["a","b"]`` or ``1,4``; an empty text or ``[]`` is the empty list."""
    body = text.strip()
    if item is str and body.startswith("["):
        try:
            values = json.loads(body)
        except json.JSONDecodeError:
            values = None
        if isinstance(values, list) and all(isinstance(value, str) for value in values):
            return tuple(values)
        raise UserError(f'{where}={text}: expected a list of texts, such as ["a","b"]')
    if body.startswith("[") and body.endswith("]"):
        body = body[1:-1].strip()
    return tuple(typed(part.strip(), item, where=where) for part in body.split(",")) if body else ()


def presets_dir() -> Path:
    """The folder of shipped presets: inside an installed package, beside it in a checkout."""
    inside = Path(__file__).parent / "presets"
    return inside if inside.is_dir() else Path(__file__).parent.parent / "presets"


def preset_names() -> list[str]:
    return sorted(path.stem for path in presets_dir().glob("*.toml") if path.stem != "three-rounds")


def about(name: str) -> str:
    """The first comment line of a preset."""
    first = preset_path(name).read_text(encoding="utf-8").partition("\n")[0]
    return first.removeprefix("#").strip() if first.startswith("#") else ""


def default_preset() -> str:
    """RLFORGE_PRESET, else ``preset`` of the project file, else the embedded one."""
    return os.environ.get("RLFORGE_PRESET") or project().get("preset") or DEFAULT_PRESET


def project() -> dict[str, str]:
    """The project file ``rlforge.toml`` of the current folder: ``preset`` and ``runs_dir``, both optional."""
    path = Path(PROJECT_FILE)
    values = read_toml(path) if path.is_file() else {}
    for key, value in values.items():
        if key not in ("preset", "runs_dir"):
            raise UserError(f"{path}: no such key {key!r}{nearest(key, ['preset', 'runs_dir'])}")
        if not isinstance(value, str):
            raise UserError(f"{path}: {key} must be a text")
    return values


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not valid TOML: {error}") from None
    except RecursionError:
        raise UserError(f"{path}: not valid TOML here: its lists or tables are nested too deeply") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None


def preset_path(name: str) -> Path:
    """A shipped preset by name, or any TOML file by path."""
    if name.endswith(".toml"):
        return Path(name)
    path = presets_dir() / f"{name}.toml"
    if "/" in name or not path.is_file():
        raise UserError(f"preset {name!r}: unknown{nearest(name, preset_names())}; or give the path of a .toml file")
    return path


def load_preset(name: str, *, within: tuple[str, ...] = ()) -> dict[str, dict[str, Any]]:
    """The tables of a preset, merged over the preset that its ``extends`` names."""
    if name in within:
        raise UserError(f"preset {name}: extends itself ({' -> '.join((*within, name))})")
    path = preset_path(name)
    tables = read_toml(path)
    parent = tables.pop("extends", None)
    if parent is not None and not isinstance(parent, str):
        raise UserError(f"{path}: extends = {parent!r}: expected the name of one preset, such as {DEFAULT_PRESET!r}")
    base = load_preset(parent, within=(*within, name)) if parent is not None else {}
    for section, values in tables.items():
        if section not in SECTIONS:
            raise UserError(f"{path}: no such section [{section}]{nearest(section, SECTIONS)}")
        if not isinstance(values, dict):
            raise UserError(f"{path}: {section} is a section: write [{section}] and its keys below")
        for key in values:
            if f"{section}.{key}" not in KEYS:
                valid = [name.split(".")[1] for name in KEYS if name.startswith(section + ".")]
                raise UserError(f"{path}: no such key {section}.{key}{nearest(key, valid)}")
            if isinstance(values[key], int) and abs(values[key]) > LARGEST:
                raise UserError(f"{path}: {section}.{key} = {str(values[key])[:40]}: too large; at most {LARGEST}")
        base[section] = base.get(section, {}) | values
    return base


def build(tables: dict[str, dict[str, Any]], *, where: str) -> Config:
    """Tables of plain values as a checked :class:`Config`."""
    try:
        return resolve(msgspec.convert(tables, type=Config))
    except msgspec.ValidationError as error:
        text = str(error).replace(" - at `$.", ": ").rstrip("`")
        problem, _, key = text.rpartition(": ")
        raise UserError(
            f"{where}: {key}: {problem[:1].lower()}{problem[1:]}; `rlforge explain {key}` says more"
        ) from None


def load(preset: str | None = None, *, base: Config | None = None, sets: Iterable[str] = ()) -> Config:
    """A preset (or ``base``, the configuration of an earlier run) with ``--set`` values on top.

    Raises:
        UserError: unknown preset, section, key or value.
    """
    name = preset or default_preset()
    tables = msgspec.to_builtins(base) if base is not None else load_preset(name)
    where = "the run's configuration" if base is not None else f"preset {name}"
    chosen: dict[str, Any] = {}
    for text in sets:
        key, value = parse_set(text)
        chosen[key] = value
    if (
        base is not None
        and "rollout.completions" not in chosen
        and {"rollout.group_size", "rollout.prompts"} & set(chosen)
    ):
        tables["rollout"]["completions"] = 0
    for key, value in chosen.items():
        section, field = key.split(".")
        tables.setdefault(section, {})[field] = value
    return build(tables, where="--set" if chosen else where)


def flatten(config: Config) -> dict[str, Any]:
    """``{"rollout.group_size": 8, ...}`` in the order of the schema."""
    return {
        f"{section}.{field}": value
        for section, values in msgspec.to_builtins(config).items()
        for field, value in values.items()
    }


def description(key: str) -> str:
    """The line of documentation of a full key."""
    return next(meta.description for meta in KEYS[key].__metadata__ if meta.description)


def changes(control: Config, config: Config, *, derived: Iterable[str] = ()) -> list[dict[str, Any]]:
    """``[{"key", "from", "to"}]``: what ``config`` does differently, leaving out what is no change of the recipe.

    :data:`NOT_THE_RECIPE` does not count; nor do ``derived`` keys (``train.steps`` under equal samples).
    """
    before, after = flatten(control), flatten(config)
    return [
        {"key": key, "from": before[key], "to": value}
        for key, value in after.items()
        if before[key] != value and key not in derived and not_ignored(key)
    ]


def not_ignored(key: str) -> bool:
    return key not in NOT_THE_RECIPE and key.split(".")[0] not in NOT_THE_RECIPE
