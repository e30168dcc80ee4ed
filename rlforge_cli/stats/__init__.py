"""Statistics of `eval`, `compare` and `seeds`: proportions in 0..1 unless a docstring says otherwise."""

from __future__ import annotations

from rlforge_cli.stats.binomial import clustered_interval, clustered_se, mean_pass_at_k, pass_at_k, wilson
from rlforge_cli.stats.contrast import Contrast, TContrast
from rlforge_cli.stats.decision import Decision, Verdict, decide, equivalent, simple_rule, simple_rule_of_scores
from rlforge_cli.stats.distributions import Interval
from rlforge_cli.stats.grader import bias_difference_bound, rogan_gladen
from rlforge_cli.stats.multiple import holm
from rlforge_cli.stats.paired import (
    PairedTable,
    mcnemar_exact,
    newcombe,
    paired_means,
    paired_se,
    paired_table,
    tipping_point,
)
from rlforge_cli.stats.power import detectable_effect, exact_items_needed, items_needed, seeds_needed, seeds_power
from rlforge_cli.stats.recipe import (
    PRIOR_DF,
    PRIOR_SD,
    SeedNoise,
    VarianceParts,
    known_noise_contrast,
    pool_seed_noise,
    recipe_contrast,
    sd_factors,
    variance_parts,
    welch_contrast,
    with_known_noise,
)
from rlforge_cli.stats.trend import Trend, block_means, curve_trend, mann_kendall

__all__ = [
    "PRIOR_DF",
    "PRIOR_SD",
    "Contrast",
    "Decision",
    "Interval",
    "PairedTable",
    "SeedNoise",
    "TContrast",
    "Trend",
    "VarianceParts",
    "Verdict",
    "bias_difference_bound",
    "block_means",
    "clustered_interval",
    "clustered_se",
    "curve_trend",
    "decide",
    "detectable_effect",
    "equivalent",
    "exact_items_needed",
    "holm",
    "items_needed",
    "known_noise_contrast",
    "mann_kendall",
    "mcnemar_exact",
    "mean_pass_at_k",
    "newcombe",
    "paired_means",
    "paired_se",
    "paired_table",
    "pass_at_k",
    "pool_seed_noise",
    "recipe_contrast",
    "rogan_gladen",
    "sd_factors",
    "seeds_needed",
    "seeds_power",
    "simple_rule",
    "simple_rule_of_scores",
    "tipping_point",
    "variance_parts",
    "welch_contrast",
    "wilson",
    "with_known_noise",
]
