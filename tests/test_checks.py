from __future__ import annotations

import math
import subprocess
import sys

import msgspec
import pytest

from rlforge_cli import explanations, settings
from rlforge_cli.checks import GATES, REWARD_GATES, Evidence, Probes, passed, run_gates
from rlforge_cli.checks.doctor_table import RULES
from rlforge_cli.checks.evidence import Agreement, Earning, EndProbe, Groups, Movement, PlanFacts, SeedProbe
from rlforge_cli.checks.learning_gates import live_share, proposed_group_size
from rlforge_cli.checks.plan_gates import hours


def step(number, **changes):
    """A healthy logged step."""
    return {
        "step": number, "reward": 0.3, "accuracy": 0.25, "adv_std": 1.0, "adv_std_generated": 1.0,
        "zero_std_fraction": 0.125, "groups_generated": 8, "groups_kept": 8, "truncated_fraction": 0.05,
        "grad_norm": 0.8, "ratio_mean": 1.0, "kl_sampling": 1e-10, "sampling_diff_max": 1e-5, "kl_ref": 0.001 * number,
        "entropy": 0.2,
        "weights_changed_fraction": 0.99, "skipped": False,
        "loss": 0.0, "clip_fraction": 0.0, "seconds_total": 0.5,
    } | changes  # fmt: skip


def evidence(*sets, records=None, **probes):
    config = settings.load("tiny-arith", sets=list(sets))
    records = [step(n) for n in range(1, 21)] if records is None else records
    return Evidence(config=config, records=records, probes=Probes(**probes))


def judged(found, name):
    return next(check for check in run_gates(found) if check.name == name)


def test_a_healthy_log_passes_by_itself_and_says_what_else_needs_the_model():
    checks = run_gates(evidence())
    assert passed(checks)
    statuses = {check.name: check.status for check in checks}
    logged = {name for name, status in statuses.items() if status == "pass"}
    assert logged == {
        "time", "engine_agreement", "ratio", "zero_std_fraction", "truncated_fraction", "gradient", "weights_changed",
        "learning_rate", "finite", "engine_drift", "adv_std",
    }  # fmt: skip
    assert all(check.why for check in checks if check.status == "skip")


def test_an_empty_log_is_skipped_not_passed():
    assert {check.status for check in run_gates(evidence(records=[]))} == {"skip"}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("engine_agreement", {"kl_sampling": 0.02}),
        ("ratio", {"ratio_mean": 1.01}),
        ("zero_std_fraction", {"zero_std_fraction": 0.875}),
        ("truncated_fraction", {"truncated_fraction": 1.0}),
        ("gradient", {"grad_norm": 0.0}),
        ("gradient", {"grad_norm": math.nan}),
        ("weights_changed", {"weights_changed_fraction": 0.02}),
        ("learning_rate", {"kl_ref": 0.9}),
        ("adv_std", {"adv_std_generated": 0.2}),
    ],
)
def test_each_logged_fault_fails_its_gate_first(name, changes):
    checks = run_gates(evidence(records=[step(n, **changes) for n in range(1, 21)]))
    assert next(check.name for check in checks if check.status == "fail") == name
    assert next(check.fix for check in checks if check.name == name)


def test_a_number_that_was_written_as_null_is_not_finite():
    records = [step(1), step(2, kl_ref=None, _nonfinite=["kl_ref"])]
    check = judged(evidence(records=records), "finite")
    assert (check.status, check.value) == ("fail", 1)
    assert "kl_ref" in check.why


def test_an_engine_that_falls_behind_drifts():
    records = [step(n, kl_sampling=1e-10 if n < 10 else 0.01) for n in range(1, 21)]
    assert [check.name for check in run_gates(evidence(records=records)) if check.status == "fail"] == ["engine_drift"]


def test_a_log_without_a_group_says_nothing_about_their_spread():
    records = [step(n, groups_generated=0) for n in range(1, 4)]
    assert judged(evidence(records=records), "zero_std_fraction").status == "skip"


@pytest.mark.parametrize(("chance", "status"), [(0.3, "skip"), (1e-9, "fail"), (0.0, "fail")])
def test_equal_samples_of_two_seeds_are_a_fault_unless_chance_would_do(chance, status):
    probe = SeedProbe(same_equal=True, other_differs=False, order_differs=True, chance=chance)
    assert judged(evidence(seeds=probe), "seeds").status == status
    order = SeedProbe(same_equal=True, other_differs=False, order_differs=False, chance=0.3)
    assert judged(evidence(seeds=order), "seeds").status == "fail"


def test_bfloat16_is_held_to_a_wider_bound():
    records = [step(n, kl_sampling=0.005) for n in range(1, 21)]
    assert judged(evidence(records=records), "engine_agreement").status == "fail"
    assert judged(evidence("model.dtype=bfloat16", records=records), "engine_agreement").status == "pass"


def test_pure_bfloat16_at_a_small_rate_changes_two_percent():
    check = judged(evidence(records=[step(1, weights_changed_fraction=0.02)]), "weights_changed")
    assert check.value == pytest.approx(0.02)
    assert "masters" in check.fix


def test_what_float32_masters_take_in_is_not_lost_though_few_stored_weights_show_it_at_once():
    records = [step(n, weights_changed_fraction=0.015, masters_changed_fraction=0.998) for n in range(1, 4)]
    check = judged(evidence("model.dtype=bfloat16", records=records), "weights_changed")
    assert (check.status, check.value) == ("pass", 0.998)
    assert "1.5 % of the stored weights at once" in check.why
    lost = [step(n, weights_changed_fraction=0.001, masters_changed_fraction=0.04) for n in range(1, 4)]
    assert judged(evidence("model.dtype=bfloat16", records=lost), "weights_changed").status == "fail"


def test_a_dead_first_step_is_no_missing_gradient():
    records = [step(1, groups_kept=8, adv_std=0.0, grad_norm=0.0), step(2)]
    assert judged(evidence(records=records), "gradient").status == "pass"


@pytest.mark.parametrize(
    ("success", "size", "share"), [(0.5, 8, 1 - 2 * 0.5**8), (0.25, 4, 0.6796875), (0.02, 8, 0.1492), (0.0, 8, 0.0)]
)
def test_live_groups_by_correctness(success, size, share):
    assert live_share(success, size) == pytest.approx(share, abs=1e-4)


@pytest.mark.parametrize(("success", "size"), [(0.5, 4), (0.1, 8), (0.05, 16), (0.02, 64), (0.005, None), (0.0, None)])
def test_the_proposed_group_size(success, size):
    assert proposed_group_size(success) == size


def test_a_few_dead_groups_are_no_proof():
    few = judged(evidence(groups=Groups(groups=4, dead=3, success=0.2, group_size=8)), "zero_std_fraction")
    many = judged(evidence(groups=Groups(groups=40, dead=30, success=0.02, group_size=8)), "zero_std_fraction")
    assert (few.status, many.status) == ("warn", "fail")
    assert many.fix.startswith("--set G=64")


def test_correctness_alone_is_advice():
    check = judged(evidence(groups=Groups(groups=48, dead=0, success=0.01, group_size=8)), "live_by_correctness")
    assert check.status == "warn"


@pytest.mark.parametrize(
    ("change", "status"), [(0.1, "pass"), (0.0, "pass"), (-0.001, "pass"), (-0.2, "fail")]
)  # fmt: skip
def test_reward_direction_is_paired(change, status):
    before = [0.1 * (i % 7) for i in range(40)]
    after = [value + change + (0.05 if i % 2 else -0.05) for i, value in enumerate(before)]
    check = judged(evidence(rewards_before=before, rewards_after=after), "reward_direction")
    assert check.status == status
    assert ("rising" in check.why) == (change == 0.1)


def test_a_reward_that_scores_nothing_has_no_direction():
    check = judged(evidence(rewards_before=[], rewards_after=[]), "reward_direction")
    assert check.status == "skip"


def test_paired_t_against_a_known_value():
    # differences -1, -2, -3: mean -2, sd 1, t = -3.4641, df 2, two-sided p = 0.0742
    check = judged(evidence(rewards_before=[1.0, 2.0, 3.0], rewards_after=[0.0, 0.0, 0.0]), "reward_direction")
    assert (check.status, check.value) == ("pass", -2.0)
    assert "p = 0.074" in check.why


@pytest.mark.parametrize(
    ("movement", "status"),
    [
        (Movement(1.0, 0.01, 0.05, False), "pass"),
        (Movement(0.02, 0.01, 0.05, False), "fail"),
        (Movement(0.02, 0.01, 0.001, False), "skip"),
        (Movement(None, None, None, True), "fail"),
        (Movement(None, None, None, False), "pass"),
        (Movement(None, None, 0.0, False), "skip"),
        (Movement(1.0, 0.01, 0.05, False, checksum_moved=False), "fail"),
    ],
)
def test_engine_weights_need_more_movement_than_noise(movement, status):
    noisy = Agreement(mean=0.001, largest=0.1, kl=1e-4, tokens=1000, rms=0.01)
    assert judged(evidence(movement=movement, agreement=noisy), "engine_weights").status == status


def test_a_stray_special_token_now_and_then_is_no_missing_end():
    calm = EndProbe(["<eos>"], None, completions=200, ended=190, undeclared={"<bos>": 0.01})
    assert judged(evidence(ends=calm), "end_tokens").status == "pass"
    never = msgspec.structs.replace(calm, ended=0, undeclared={})
    assert judged(evidence(ends=never), "end_tokens").status == "fail"


def earning(name, **values):
    return Earning(name=name, n=10, right=values.pop("right", 0), **values)


def test_a_shortcut_needs_the_least_right_answer_not_the_best():
    earnings = [
        earning("gold", right=10, least_right=1.2), earning("gold without format", right=10, least_right=1.0),
        earning("gold, truncated", right=10, least_right=0.1, truncated=True), earning("wrong", most_wrong=0.2),
        earning("repeated marker", most_wrong=1.0, components={"correctness": 0.0, "format": 1.0}),
    ]  # fmt: skip
    check = judged(evidence(earnings=earnings), "reward_shortcut")
    assert (check.status, check.value) == ("fail", 0.0)
    assert "earn 1 of 1.2 without being right (repeated marker)" in check.why
    assert judged(evidence(earnings=earnings), "repeated_pattern").status == "fail"


@pytest.mark.parametrize(("device", "status"), [(None, "skip"), (32.0, "pass"), (21.0, "warn"), (16.0, "fail")])
def test_memory_against_the_device(device, status):
    facts = PlanFacts(completions=1, updates=1, tokens=1, predicted_gib=20.0, device_gib=device, device="a card")
    found = msgspec.structs.replace(evidence(), plan=facts)
    assert judged(found, "memory").status == status


def test_a_small_group_is_a_warning_of_the_plan():
    facts = PlanFacts(completions=1, updates=1, tokens=1)
    assert judged(msgspec.structs.replace(evidence("G=2"), plan=facts), "plan").status == "warn"


@pytest.mark.parametrize(("seconds", "text"), [(40, "40 s"), (600, "10 min"), (36000, "10.0 h")])
def test_hours(seconds, text):
    assert hours(seconds) == text


def test_every_gate_and_rule_has_its_reason_and_its_entry():
    rows = [*GATES, *REWARD_GATES, *RULES]
    assert all(row.asks.endswith("?") or row.name in ("plan", "memory", "time", "prompt_bos") for row in rows)
    assert all(row.reason for row in rows)
    names = {entry.name for entry in explanations.entries()}
    assert all(row.name in names or f"check {row.name}" in names for row in rows)
    assert len({gate.name for gate in GATES}) == len(GATES)


def test_checks_never_load_a_model_library():
    code = (
        "import sys, rlforge_cli.checks, rlforge_cli.doctor, rlforge_cli.forecast, rlforge_cli.smoke\n"
        "assert not {'torch', 'transformers', 'vllm'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
