"""Gates about the grader and the reward: the checklist to go through before every experiment, made executable."""

from __future__ import annotations

from collections.abc import Iterable

from rlforge_cli.checks.check import Finding, skip
from rlforge_cli.checks.evidence import Earning, Evidence

COINCIDENCE = 0.1
"""A wrong answer is right by chance for some problems (a question may end with its own answer)."""
EVEN = 1e-9


def gold_grades(evidence: Evidence) -> Finding:
    probe = evidence.probes.golds
    if probe is None:
        return skip(evidence.missing)
    right = probe.n - probe.n_wrong
    why = f"{right} of {probe.n} gold answers, graded against themselves in the asked format, are right"
    if probe.n_wrong:
        return Finding(
            "fail", round(right / probe.n, 4), "= 1", f"{why}; not read: {'; '.join(probe.wrong)}",
            "reduce the golds to a number or a short text on one line; `rlforge grade` shows what the grader reads",
        )  # fmt: skip
    return Finding("pass", 1.0, "= 1", why)


def probe_grades(evidence: Evidence) -> Finding:
    earnings = evidence.probes.earnings
    if earnings is None:
        return skip(evidence.missing)
    judged = [e for e in earnings if e.wanted is not None]
    astray = [e for e in judged if (e.n - e.right if e.wanted else e.right) > COINCIDENCE * e.n]
    if astray:
        first = astray[0]
        return Finding(
            "fail", first.name, "graded as they should be",
            f"{first.name}: {first.right} of {first.n} graded right, for example {shown(first.text)}",
            "a defect of the task's grader: no reward can repair it",
        )  # fmt: skip
    return Finding(
        "pass",
        len(judged),
        "graded as they should be",
        f"{', '.join(e.name for e in judged)}: graded as they should be",
    )


def gold_reward(evidence: Evidence) -> Finding:
    earnings = evidence.probes.earnings
    if earnings is None:
        return skip(evidence.missing)
    by_name = {e.name: e for e in earnings}
    gold, wrong = by_name["gold"].least_right, by_name["wrong"].most_wrong
    if gold is None or wrong is None:
        return skip("the grader told no gold answer from a wrong one, or neither was scored")
    why = f"a gold answer earns {gold:.3g}, a wrong one in the same format {wrong:.3g}"
    if gold <= wrong + EVEN:
        return Finding(
            "fail", round(gold - wrong, 6), "> 0", f"{why}: training would move away from right answers",
            "a sign or a weight is wrong: look at reward.correctness and your reward functions",
        )  # fmt: skip
    return Finding("pass", round(gold - wrong, 6), "> 0", why)


def reward_shortcut(evidence: Evidence) -> Finding:
    earnings = evidence.probes.earnings
    if earnings is None:
        return skip(evidence.missing)
    wrong, right = dearest_wrong(earnings), cheapest_right(earnings)
    if wrong is None or right is None:
        return skip("no wrong or no right completion was scored")
    assert wrong.most_wrong is not None
    assert right.least_right is not None
    best = max(e.least_right for e in earnings if e.least_right is not None)
    why = (
        f"a policy could earn {wrong.most_wrong:.3g} of {best:.3g} without being right ({wrong.name}); the least a "
        f"right one earns is {right.least_right:.3g} ({right.name})"
    )
    margin = round(right.least_right - wrong.most_wrong, 6)
    if margin <= EVEN:
        paying = max(wrong.components, key=lambda name: wrong.components[name] or 0.0)
        return Finding(
            "fail", margin, "> 0", f"{why}: no other knob repairs a shortcut in the reward",
            f"lower the component {paying!r} until being right is worth more than everything else",
        )  # fmt: skip
    return Finding("pass", margin, "> 0", why)


def repeated_pattern(evidence: Evidence) -> Finding:
    earnings = evidence.probes.earnings
    if earnings is None:
        return skip(evidence.missing)
    by_name = {e.name: e for e in earnings}
    once, often = by_name["wrong"].components, by_name["repeated marker"].components
    grown = [name for name, value in often.items() if (value or 0.0) > (once.get(name) or 0.0) + EVEN]
    if grown:
        return Finding(
            "fail", grown[0], "not more than once",
            f"repeating the marker earns {often[grown[0]]:.3g} of {grown[0]}, stating it once "
            f"{once.get(grown[0]) or 0:.3g}",
            f"let {grown[0]} pay once, whatever the number of repetitions",
        )  # fmt: skip
    return Finding("pass", "no component", "not more than once", "repeating a pattern collects nothing more")


def component_order(evidence: Evidence) -> Finding:
    uses = evidence.probes.components
    if uses is None:
        return skip(evidence.missing)
    paying = sorted((use for use in uses if use.product > 0), key=lambda use: -use.success)
    text = ", ".join(f"{use.name} {use.success:.2f} x {use.value:.2g} = {use.product:.3g}" for use in paying)
    right = next((use.product for use in uses if use.name == "correctness"), 0.0)
    larger = [use.name for use in paying if use.name != "correctness" and use.product > right]
    why = f"success rate x value, cheapest first: {text or 'nothing is earned'}"
    if larger:
        return Finding(
            "warn", larger[0], "below correctness", f"{why}; for now {larger[0]} pays more than being right",
            f"keep {larger[0]} small, or watch that it saturates while correctness rises",
        )  # fmt: skip
    return Finding("pass", "sensible", "below correctness", why)


def score_levels(evidence: Evidence) -> Finding:
    totals = evidence.probes.totals
    if totals is None:
        return skip(evidence.missing)
    if totals <= 2:
        return Finding(
            "warn", totals, "> 2", f"sampled completions earn only {totals} different totals: groups collapse easily",
            "a small format or truncation component keeps a spread in groups that are all right or all wrong",
        )  # fmt: skip
    return Finding("pass", totals, "> 2", f"{totals} different totals among the sampled completions")


def reward_scored(evidence: Evidence) -> Finding:
    share = evidence.probes.unscored
    if share is None:
        return skip(evidence.missing)
    why = f"{100 * share:.1f} % of sampled completions have no reward (grader errors, or a function that gave None)"
    if share >= 0.5:
        return Finding(
            "fail", round(share, 4), "< 0.5", why, "see grader_errors, and what your reward functions return"
        )
    return Finding("warn" if share > 0.01 else "pass", round(share, 4), "<= 0.01", why)


def dearest_wrong(earnings: Iterable[Earning]) -> Earning | None:
    """The wrong completion that is paid most."""
    return max((e for e in earnings if e.most_wrong is not None), key=lambda e: e.most_wrong or 0.0, default=None)


def cheapest_right(earnings: Iterable[Earning]) -> Earning | None:
    """The right, untruncated completion that is paid least."""
    right = (e for e in earnings if e.least_right is not None and not e.truncated)
    return min(right, key=lambda e: e.least_right or 0.0, default=None)


def shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")
