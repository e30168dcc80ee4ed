"""Gates about tokens: how prompts begin, what ends a completion, and whether seeds reach the sampler."""

from __future__ import annotations

from rlforge_cli.checks.check import Finding, skip
from rlforge_cli.checks.evidence import Evidence

STRAY_SHARE = 0.02
"""Completions that may hold an undeclared special token: a confused model writes one now and then."""
TRUNCATED_WARN, TRUNCATED_FAIL = 0.2, 0.9
UNLIKELY = 0.001
"""A coincidence less probable than this is none."""
EARLY = 5
"""Steps of an old run that stand for its untrained policy."""


def prompt_bos(evidence: Evidence) -> Finding:
    probe = evidence.probes.bos
    if probe is None:
        return skip(evidence.missing)
    if probe.token is None:
        return Finding("pass", 0, "= 0", "the tokenizer has no BOS token")
    threshold = "= 1" if probe.wanted else "<= 1"
    total, most, least = sum(probe.counts.values()), max(probe.counts), min(probe.counts)
    if most > 1:
        many = sum(n for count, n in probe.counts.items() if count > 1)
        return Finding(
            "fail", most, threshold, f"{many} of {total} prompts begin with {most} BOS tokens ({probe.token})",
            "the chat template and the tokenizer (or prompt.prefix) each write one: take it out of one of them",
        )  # fmt: skip
    if probe.wanted and least < 1:
        return Finding(
            "fail", 0, threshold,
            f"{probe.counts[0]} of {total} prompts lack the BOS ({probe.token}) that the model uses",
            "let the chat template or the tokenizer write it",
        )  # fmt: skip
    return Finding("pass", most, threshold, f"{total} prompts looked at")


def end_tokens(evidence: Evidence) -> Finding:
    probe = evidence.probes.ends
    if probe is None:
        return skip(evidence.missing)
    fix = "add it to eos_token_id in the model's generation_config.json (a list is allowed)"
    declared = f"declared: {', '.join(probe.declared)}"
    if probe.template_end:
        return Finding(
            "fail", probe.template_end, "declared",
            f"the chat template ends an answer with {probe.template_end}, which is not declared ({declared}): "
            "every completion would run to the limit", fix,
        )  # fmt: skip
    stray = max(probe.undeclared.items(), key=lambda item: item[1], default=None)
    if stray and stray[1] > STRAY_SHARE:
        return Finding(
            "fail", stray[0], "declared",
            f"{100 * stray[1]:.0f} % of completions write {stray[0]} and run on: it ends nothing ({declared})", fix,
        )  # fmt: skip
    if probe.completions and not probe.ended:
        return Finding(
            "fail", 0, "> 0", f"none of {probe.completions} completions ended before the limit ({declared})",
            "raise rollout.max_tokens; or the model ends with another token: " + fix,
        )  # fmt: skip
    share = f"{probe.ended} of {probe.completions} completions ended; " if probe.completions else ""
    return Finding("pass", probe.ended, "> 0", share + declared)


def seeds(evidence: Evidence) -> Finding:
    probe = evidence.probes.seeds
    if probe is None:
        return skip(evidence.missing)
    if probe.order_differs and not probe.other_differs and probe.chance > UNLIKELY:
        return skip(
            f"two seeds give the same samples, which are too few or too certain to tell: so would chance, with "
            f"probability {probe.chance:.2g}"
        )
    if not probe.other_differs or not probe.order_differs:
        what = "samples" if not probe.other_differs else "problem order"
        return Finding(
            "fail", f"same {what}", "differ", f"two seeds give the same {what}: repeated runs would not be independent",
            "the seed does not reach the sampler: check the engine's seed argument",
        )  # fmt: skip
    if not probe.same_equal:
        exact = evidence.config.rollout.engine == "hf"
        return Finding(
            "fail" if exact else "warn", "not repeatable", "equal",
            "one seed gave two different rollouts of the same prompts and weights: a run cannot be repeated",
            "the engine must take its randomness from the seed alone",
        )  # fmt: skip
    return Finding("pass", "repeatable", "equal, differ", "one seed the same, two seeds different, order and samples")


def truncated_fraction(evidence: Evidence) -> Finding:
    """Under the untrained policy: what training does to length is not this gate's question."""
    probe, values = evidence.probes.ends, evidence.series("truncated_fraction")[:EARLY]
    if probe is not None and probe.completions:
        share = 1 - probe.ended / probe.completions
    elif values:
        share = sum(values) / len(values)
    else:
        return skip("no steps were logged")
    why = f"{100 * share:.0f} % of completions hit {evidence.config.rollout.max_tokens} tokens"
    if share > TRUNCATED_FAIL:
        return Finding(
            "fail", round(share, 4), f"<= {TRUNCATED_FAIL}", f"{why}: answers are cut off before they are given",
            "raise rollout.max_tokens, or ask for shorter answers in prompt.suffix",
        )  # fmt: skip
    if share > TRUNCATED_WARN:
        return Finding(
            "warn", round(share, 4), f"<= {TRUNCATED_WARN}", why, "raise rollout.max_tokens if answers need the room"
        )
    return Finding("pass", round(share, 4), f"<= {TRUNCATED_WARN}", why)
