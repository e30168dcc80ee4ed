"""Every metric that a step logs: meaning, formula, healthy range. `rlforge explain` prints this table."""

from __future__ import annotations

from typing import NamedTuple


class Metric(NamedTuple):
    name: str
    meaning: str
    formula: str
    healthy: str


METRICS = (
    Metric("step", "rollout-and-update step, from 1", "", ""),
    Metric("reward", "mean total reward of the generated completions", "mean of the sum of components", "rises; compare only between arms with the same reward"),
    Metric("reward_std", "spread of the total reward over the generated completions", "population std", "> 0"),
    Metric("reward/correctness", "mean of the correctness component", "", "rises"),
    Metric("reward/format", "mean of the format component", "", "rises early, then saturates at its weight"),
    Metric("reward/truncation", "mean of the truncation component", "", "goes to 0"),
    Metric("reward/length", "mean of the length penalty (logged when it is on)", "", "near 0"),
    Metric("accuracy", "share of generated completions that are right: training problems at the sampling temperature, not a result", "mean of correct", "rises"),
    Metric("completion_length", "tokens a generated completion, its end token included", "mean", "growing with accuracy is healthy, without it is not"),
    Metric("truncated_fraction", "share of completions that hit max_tokens without an end token", "", "falls; below 0.1"),
    Metric("adv_std", "spread of the advantages that are trained on", "unbiased std over the trained batch", "1.0 and above while every group lives"),
    Metric("adv_std_generated", "the same over all generated groups: the honest gauge under dynamic sampling", "unbiased std over generated completions", "falls as groups die"),
    Metric("zero_std_fraction", "share of generated groups without reward spread: they teach nothing", "max - min <= 1e-6", "below 0.5; 0.09 in the reference at G = 8"),
    Metric("groups_requested", "groups a step should train on", "P", ""),
    Metric("groups_generated", "groups sampled in this step, refills included", "", ""),
    Metric("groups_kept", "groups trained on", "", "= groups_requested"),
    Metric("frac_groups_dropped", "share of generated groups that dynamic sampling dropped as dead", "", ""),
    Metric("kept_without_correct", "kept groups in which no completion is right: spread from format or truncation alone", "count", "few"),
    Metric("unscored", "completions that a reward left unscored", "count", "0"),
    Metric("grader_errors", "internal errors of the grader; such a completion is left unscored in training and counts as wrong in an evaluation", "count", "0"),
    Metric("loss", "objective of the first update; about 0 on policy, which is no fault", "see grpo/loss.py", "not a measure of learning"),
    Metric("grad_norm", "global norm of the gradient before clipping", "L2", "> 0, finite, steady"),
    Metric("clip_fraction", "share of trained tokens whose clip is active: the gauge of the learning rate", "low + high", "0 on the first update of a rollout; below 0.2"),
    Metric("clip_fraction_low", "of which ratio < 1 - clip_low with a negative advantage", "", ""),
    Metric("clip_fraction_high", "of which ratio > 1 + clip_high with a positive advantage", "", ""),
    Metric("ratio_mean", "mean of the probability ratio to the policy that sampled", "exp(logprobs - old_logprobs)", "near 1"),
    Metric("kl_ref", "distance of the policy to the reference model, on the sampled tokens", "k3: exp(d) - d - 1, d = ref - policy", "grows slowly and together with reward"),
    Metric("kl_old", "distance to the policy before this step's updates", "k3", "0 on the first update"),
    Metric("kl_sampling", "disagreement of engine and trainer about the sampled tokens", "k3 on sampling_logprobs", "below 0.001 in float32, 0.01 in bfloat16"),
    Metric("sampling_diff_max", "largest |log-probability difference| of engine and trainer", "max", "below 1"),
    Metric("reported_fraction", "share of trained tokens whose log-probability the engine reported: kl_sampling, sampling_diff_max and the correction are over these", "", "1; unreported ones are not corrected"),
    Metric("correction_fraction", "share of the reported tokens that grpo.sampling_correction truncated or masked (logged when it is on)", "w > sampling_cap; under a mask also w < 1 / sampling_cap", "near 0; at the sequence level it grows with the length"),
    Metric("correction_weight", "mean importance weight of the reported tokens, as used (logged when it is on)", "w = exp(old_logprobs - sampling_logprobs), cut or masked", "near 1, what it is on average before the cut; below: that much was cut"),
    Metric("entropy", "of the next-token distribution on the trained tokens, at the sampling temperature", "nats, mean", "falls slowly; 0 means collapse"),
    Metric("lr", "learning rate of the last update", "", ""),
    Metric("weights_changed_fraction", "share of trainable weights that the step changed, as stored", "of at most 4,096 to 8,191 evenly spaced ones of each tensor", "near 1 in float32; in bfloat16 a few hundredths, for steps add up in the masters until they show"),
    Metric("masters_changed_fraction", "share of the float32 masters that the step changed (logged where weights are stored in fewer bits)", "likewise", "near 1; 0.02 is what bfloat16 without masters does at lr 1e-6"),
    Metric("tokens_in_loss", "completion tokens that the loss counted", "", ""),
    Metric("tokens_generated", "completion tokens generated in this step", "", ""),
    Metric("completions_generated", "completions generated since the run began, dropped ones included", "", "the budget"),
    Metric("tokens_per_s", "generated tokens a second of the whole step", "", ""),
    Metric("seconds_rollout", "seconds generating and grading", "", ""),
    Metric("seconds_train", "seconds in log-probabilities, loss, backward and optimizer", "", ""),
    Metric("seconds_sync", "seconds giving the engine the new weights, and its memory away and back", "", "0 for the hf engine: it shares both"),
    Metric("seconds_total", "seconds of the whole step", "", ""),
    Metric("skipped", "true when the step made no update: every group dead, or a gradient that is not finite", "", "false"),
    Metric("val_accuracy", "greedy accuracy on validation problems; checkpoints are chosen by it", "", "rises"),
    Metric("val_accuracy_strict", "the same, asked format only", "", "rises"),
    Metric("val_length", "tokens a validation completion", "mean", ""),
)  # fmt: skip

BY_NAME = {metric.name: metric for metric in METRICS}
