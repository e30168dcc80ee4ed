"""Every gate in the order in which it is judged: causes before their symptoms, so the first failure is the fault."""
# ruff: noqa: E501 - a row a line

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rlforge_cli.checks import engine_gates, learning_gates, plan_gates, reward_gates, token_gates
from rlforge_cli.checks.check import Check, Finding, named
from rlforge_cli.checks.evidence import Evidence


class Gate(NamedTuple):
    """A gate: what it asks, and why its threshold is what it is."""

    judge: Callable[[Evidence], Finding]
    asks: str
    reason: str

    @property
    def name(self) -> str:
        return self.judge.__name__


GATES = (
    Gate(plan_gates.plan, "what the run will generate and update", "G 4 is the floor: below it the group's mean is no usable baseline"),
    Gate(plan_gates.memory, "predicted peak memory against the device", "more than the device has cannot run; within a tenth of it the prediction cannot tell"),
    Gate(plan_gates.time, "predicted or measured time of the whole run", "told, not judged"),
    Gate(plan_gates.trainable_parameters, "is anything trained?", "0 trains nothing, whatever else works"),
    Gate(token_gates.prompt_bos, "exactly one BOS before a prompt where the model uses one", "two, or none, is a prompt that the model never saw"),
    Gate(reward_gates.gold_grades, "does every gold answer, graded against itself, count as right?", "below 100 % some problems can never be won"),
    Gate(reward_gates.probe_grades, "are empty, repeated, copied and truncated answers graded as they should be?", "a tenth may be right by chance (a question can end with its answer)"),
    Gate(reward_gates.gold_reward, "does a gold answer earn more than a wrong one?", "else training moves away from right answers"),
    Gate(reward_gates.repeated_pattern, "does a repeated pattern collect a component again and again?", "any growth with repetitions will be found and used"),
    Gate(reward_gates.reward_shortcut, "can a wrong answer earn as much as the least right, untruncated one?", "then being right is not what is learned"),
    Gate(plan_gates.longest_batch, "does the longest possible micro-batch fit?", "a batch that does not fit comes sooner or later, often after hours"),
    Gate(engine_gates.sleep_wake, "does the engine wake up as it fell asleep?", "greedy tokens under the same weights do not change; discarded weights or buffers give other ones"),
    Gate(token_gates.end_tokens, "are the tokens that end an answer declared?", "an undeclared end makes every completion run to the limit; 2 % strays are a confused model"),
    Gate(token_gates.seeds, "one seed the same rollout, two seeds different ones?", "else nothing can be repeated, or repeats are no independent evidence"),
    Gate(engine_gates.engine_agreement, "do engine and trainer give the same log-probabilities before any update?", "float32 agrees to 1e-9, a temperature of 0.7 for 1.0 gives 1e-2; bfloat16 kernels differ by about 1e-3"),
    Gate(engine_gates.ratio, "is the probability ratio 1 on the first on-policy update?", "any other value there is a difference of code, not of weights"),
    Gate(learning_gates.zero_std_fraction, "how many groups have no reward spread under the untrained policy?", "fails when more than half, beyond chance (95 % interval), teach nothing; warns above a quarter"),
    Gate(learning_gates.live_by_correctness, "how many groups could correctness alone keep alive?", "advice: a common success rate is the best case"),
    Gate(token_gates.truncated_fraction, "how many completions of the untrained policy are cut off at max_tokens?", "above 0.9 hardly any answer is given; above 0.2 room may be missing"),
    Gate(learning_gates.lora_updates, "is every LoRA B matrix non-zero after two updates?", "B starts at 0: one that stays there gets no gradient"),
    Gate(learning_gates.gradient, "is the gradient finite and not zero?", "a loss of 0 is normal on policy, a gradient of 0 is not"),
    Gate(learning_gates.weights_changed, "what share of the weights does an update change?", "pure bfloat16 at lr 1e-6 changes 2 %, float32 masters nearly all"),
    Gate(engine_gates.engine_weights, "did the engine follow the trainer's updates?", "1 = it has the new weights, 0 = the first ones; a half is the middle"),
    Gate(learning_gates.learning_rate, "how far did the policy move?", "healthy runs move 0.01 to 0.1 nat a token in twenty steps; 0.5 is another model"),
    Gate(learning_gates.finite, "is every logged number finite?", "one that is not spreads"),
    Gate(engine_gates.engine_drift, "do engine and trainer still agree after the last step?", "as before the first"),
    Gate(learning_gates.adv_std, "is there still an advantage spread over all generated groups?", "it is about the root of the share of live groups: 0.3 means nine in ten are dead"),
    Gate(learning_gates.reward_direction, "does the reward on fixed problems hold?", "paired, same random numbers; one false alarm in 200 where nothing changes"),
)  # fmt: skip
"""The gates of `rlforge smoke`."""

REWARD_GATES = (
    *(gate for gate in GATES if gate.judge.__module__ == reward_gates.__name__),
    Gate(reward_gates.component_order, "is success rate x value ordered sensibly, cheap points small?", "what pays most for now is what is learned first"),
    Gate(reward_gates.score_levels, "is the score more than pure 0/1?", "with two values a group that is all right or all wrong teaches nothing"),
    Gate(reward_gates.reward_scored, "does every completion get a reward?", "an unscored one is left out; half of them is a broken reward"),
)  # fmt: skip
"""The gates of `rlforge smoke --rewards`."""


def run_gates(evidence: Evidence, *, gates: Sequence[Gate] = GATES) -> list[Check]:
    """One check a gate, in order."""
    return [named(gate.name, gate.judge(evidence)) for gate in gates]


def passed(checks: Sequence[Check]) -> bool:
    """Whether nothing failed; warnings and skips are allowed."""
    return all(check.status != "fail" for check in checks)
