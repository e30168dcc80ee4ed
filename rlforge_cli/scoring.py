"""`rlforge eval`: what to score (a run's artifact, a model folder, a hub name), on what, and where results go."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rlforge_cli import settings
from rlforge_cli.config import Config
from rlforge_cli.distributed import ALONE, Ranks
from rlforge_cli.errors import UserError, nearest
from rlforge_cli.libraries import load_libraries
from rlforge_cli.lineage import run_config
from rlforge_cli.output import note
from rlforge_cli.run_dir import RunDir, json_line, write_json


class Subject(msgspec.Struct, frozen=True):
    """What is scored. Example: run-01's best checkpoint."""

    label: str
    config: Config
    run: RunDir | None
    artifact: str
    """best, final, base, step-000100, or model (a folder or hub name)."""
    path: str | None
    """The artifact's folder; None = the configuration's own model."""
    chosen_on: str | None


def find_subject(
    name: str, runs_dir: Path, *, checkpoint: str | None, preset: str | None, sets: Sequence[str]
) -> Subject:
    """A run by id or path, else a model folder or hub name with the task of ``preset``.

    Raises:
        UserError: neither, or a run without the asked artifact.
    """
    is_run = any((path / "run.json").is_file() for path in (runs_dir / name, Path(name)))
    looks_like_model = (
        name == "tiny-arith" or Path(name).is_dir() or (name.count("/") == 1 and not name.startswith((".", "/")))
    )
    if is_run or not looks_like_model:
        run = RunDir.find(name, runs_dir)
        config = run_config(run)
        if sets:
            config = settings.load(base=config, sets=sets)
        artifact, path, chosen_on = run_artifact(run, config, checkpoint)
        return Subject(f"{run.id} ({artifact})", config, run, artifact, path, chosen_on)
    if checkpoint:
        raise UserError(f"--checkpoint goes with a run; {name} is a model")
    config = settings.load(preset, sets=[*sets, f"model.path={name}"])
    return Subject(name, config, None, "model", None, None)


def run_artifact(run: RunDir, config: Config, wanted: str | None) -> tuple[str, str | None, str | None]:
    """``(name, folder, chosen on)`` of a run's artifact; by default what ``eval.checkpoint`` says."""
    name = wanted or config.eval.checkpoint
    best = run.info().get("best") or {}
    if name == "base" or (name == "best" and best.get("step") == 0):
        return name, None, "validation" if name == "best" else None
    folders = {"best": run.best, "final": run.final}
    folders |= {path.name: path for path in sorted(run.checkpoints.glob("step-*"))} if run.checkpoints.is_dir() else {}
    if name not in folders:
        raise UserError(f"{run.id}: no checkpoint {name!r}{nearest(name, ['base', *folders])}")
    if not folders[name].is_dir():
        status = run.info().get("status")
        raise UserError(
            f"{run.id} has no {name} model (it is {status}); continue it with `rlforge train --resume {run.id}`, or "
            f"score another with --checkpoint {'|'.join(n for n, path in folders.items() if path.is_dir()) or 'base'}"
        )
    return name, str(folders[name]), "validation" if name == "best" else None


def eval_name(subject: Subject, *, split: str, samples: int, task: str | None) -> str:
    """``test`` for the run's own result; other artifacts, samples and tasks are named apart."""
    parts = [] if task is None else [task.replace(":", "-").replace("/", "-")]
    parts.append(split)
    if subject.artifact not in (subject.config.eval.checkpoint, "model"):
        parts.append(subject.artifact)
    if samples > 1:
        parts.append(f"x{samples}")
    return "-".join(parts)


def score(
    subject: Subject,
    *,
    split: str,
    samples: int = 1,
    temperature: float = 0.0,
    max_tokens: int | None = None,
    limit: int | None = None,
    k: Sequence[int] | None = None,
    repeat: int = 1,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
    ranks: Ranks = ALONE,
) -> tuple[dict[str, Any], list[Any]]:
    """The summary and the per-problem results; the problems are shared out among ``ranks``.

    With ``repeat`` 2 the same is scored again, in other batches: the A/A check.

    Raises:
        UserError: unknown split, or a k of pass@k above ``samples``; a limit over the split is no error.
    """
    from rlforge_cli.engines.choose import make_engine
    from rlforge_cli.evaluation import evaluate, summarize
    from rlforge_cli.prompts import PromptEncoder, over_positions
    from rlforge_cli.rollouts import SamplingParams
    from rlforge_cli.tasks.base import SPLITS, problems_hash
    from rlforge_cli.tasks.registry import load_task

    config = subject.config
    wanted = next((name for name in SPLITS if name == split), None)
    if wanted is None:
        raise UserError(f"--split {split}: no such split{nearest(split, SPLITS)}")
    sizes = k or config.eval.k
    if too_large := [size for size in sizes if size > samples and k]:
        raise UserError(
            f"pass@{too_large[0]} needs at least {too_large[0]} samples a problem: add --samples {too_large[0]}"
        )
    task = load_task(config.data)
    load_libraries()

    from rlforge_cli.model import load_policy

    model = msgspec.structs.replace(config.model, reference=False, gradient_checkpointing=False)
    policy = ranks.together(lambda: load_policy(model, path=subject.path))
    encoder = PromptEncoder(policy.tokenizer, config.prompt, max_tokens=config.rollout.max_prompt_tokens)
    problems = task.problems(wanted)
    problems = problems[:limit] if limit else problems
    params = SamplingParams(
        max_tokens=max_tokens or config.eval.max_tokens or config.rollout.max_tokens, temperature=temperature,
        top_p=config.rollout.top_p if temperature else 1.0, top_k=config.rollout.top_k if temperature else 0,
        stop=config.rollout.stop, logprob_share=0.0,
    )  # fmt: skip
    if over := over_positions(encoder, problems, most=params.max_tokens, model=policy.causal):
        if config.rollout.engine == "vllm":
            raise UserError(f"max_tokens = {over}: lower it (--max-tokens)")
        if ranks.first:
            note(f"note: max_tokens = {over}: it has learned none beyond them")
    longest = msgspec.structs.replace(config.eval, max_tokens=params.max_tokens)  # an engine makes room for that
    config_of_engine = msgspec.structs.replace(config, eval=longest)
    engine = ranks.together(lambda: make_engine(config_of_engine, policy), interruptible=False)
    total = repeat * len(problems)

    def run(index: int) -> list[Any]:
        # other batch shapes: what changes then is how much greedy decoding depends on them
        chunk = 512 if index == 0 else 512 // (index + 1) + 1
        return evaluate(
            engine,
            task=task,
            encoder=encoder,
            problems=problems,
            params=params,
            samples=samples,
            seed=seed,
            chunk=chunk,
            progress=lambda done: progress(index * len(problems) + done, total),
            ranks=ranks,
        )

    try:
        engine.sync_weights(step=0)
        runs = [run(index) for index in range(repeat)]
    finally:
        engine.close()
    summary = summarize(runs[0], k=sizes)
    summary |= {
        "split": split,
        "decoding": {
            "temperature": temperature, "top_p": params.top_p, "top_k": params.top_k, "max_tokens": params.max_tokens,
            "samples": samples, "seed": seed if temperature else None, "stop": list(params.stop),
        },
        "grader": task.grader_version,
        "task": task.name,
        "task_hash": problems_hash(problems),
        "prompt_hash": prompt_hash(encoder, problems),
        "checkpoint": subject.artifact,
        "chosen_on": subject.chosen_on,
        "model": subject.path or config.model.path,
        "limit": limit,
    }  # fmt: skip
    if repeat > 1:
        summary["repeat"] = [agreement(runs[0], other) for other in runs[1:]]
    return summary, runs[0]


def prompt_hash(encoder: Any, problems: Sequence[Any]) -> str:
    """SHA-256 (16 hex digits) of the rendered prompts: two evaluations asked the same exactly when it is equal."""
    import hashlib

    digest = hashlib.sha256()
    for text in encoder.texts(problems):
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()[:16]


def agreement(first: Sequence[Any], second: Sequence[Any]) -> dict[str, Any]:
    """How much the same checkpoint differs from itself."""
    pairs = list(zip(first, second, strict=True))
    return {
        "accuracy": sum(b.correct for _, b in pairs) / len(pairs),
        "different_completions": sum(a.completion != b.completion for a, b in pairs),
        "flipped_to_wrong": sum(a.correct and not b.correct for a, b in pairs),
        "flipped_to_right": sum(b.correct and not a.correct for a, b in pairs),
        "n": len(pairs),
    }


def store(results: Sequence[Any], summary: dict[str, Any], lines: Path) -> None:
    """``<name>.jsonl`` and ``<name>.json`` beside it, each replaced whole."""
    temporary = lines.with_name(f".{lines.name}.{os.getpid()}.tmp")
    try:
        lines.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "w", encoding="utf-8", newline="\n") as file:
            file.writelines(json_line(msgspec.to_builtins(item)) for item in results)
        write_json(lines.with_suffix(".json"), summary)
        os.replace(temporary, lines)
    except OSError as error:
        raise UserError(f"{lines}: cannot be written: {error.strerror}; give another place with --out") from None
    finally:
        temporary.unlink(missing_ok=True)
