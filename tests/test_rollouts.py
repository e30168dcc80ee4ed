from __future__ import annotations

import pytest
from toys import ToyTask

from rlforge_cli.rewards import Scored
from rlforge_cli.rollouts import Completion, RolloutGroup, collect
from rlforge_cli.seeding import ProblemOrder, derive

GRADE = ToyTask().grade("1", ToyTask().problems("train")[1])


def group(rewards: list[float | None], name: str = "g") -> RolloutGroup:
    problem = ToyTask().problems("train")[0]
    completions = [Completion([1], [-1.0], "stop", name) for _ in rewards]
    return RolloutGroup(
        problem, [1], completions, [GRADE] * len(rewards), [Scored({"correctness": r}, r) for r in rewards]
    )


LIVE, DEAD = [1.2, 0.2, 0.2, 0.2], [0.2] * 4


@pytest.mark.parametrize(
    ("rewards", "live"),
    [([1.2] * 8, False), ([0.2] * 8, False), ([0.7] * 8, False), ([-0.3] * 8, False), ([1.0] * 8, False),
     ([0.0] * 8, False), ([1.2] * 7 + [0.2], True), ([0.2] * 7 + [-0.3], True), ([None] * 8, False),
     ([1.0] + [None] * 7, False), ([1.0, 0.0] + [None] * 6, True)],
)  # fmt: skip
def test_a_group_lives_by_the_spread_of_its_rewards(rewards, live):
    assert group(rewards).live is live


def sampler(lives: list[bool]):
    """Gives groups in order, live or dead; remembers the rounds."""
    made = [group(LIVE if alive else DEAD, name=str(i)) for i, alive in enumerate(lives)]
    rounds: list[tuple[int, int]] = []

    def sample(count: int, round_index: int) -> list[RolloutGroup]:
        start = sum(taken for taken, _ in rounds)
        rounds.append((count, round_index))
        return made[start : start + count]

    return sample, rounds


def names(groups: list[RolloutGroup]) -> list[str]:
    return [g.completions[0].text for g in groups]


def test_the_first_live_groups_in_sampling_order_are_kept():
    sample, rounds = sampler([True, False, True, True, True, True])
    collected = collect(sample, prompts=4, groups=6, dynamic=True, max_rounds=1)
    assert names(collected.kept) == ["0", "2", "3", "4"]
    assert len(collected.generated) == 6
    assert rounds == [(6, 0)]


def test_too_few_live_groups_are_trained_as_they_are():
    sample, _ = sampler([False, True, False, True, False, True])
    collected = collect(sample, prompts=4, groups=6, dynamic=True, max_rounds=1)
    assert (names(collected.kept), collected.requested) == (["1", "3", "5"], 4)


def test_refilling_is_bounded_and_stops_when_enough_live():
    sample, rounds = sampler([False] * 18)
    assert len(collect(sample, prompts=4, groups=6, dynamic=True, max_rounds=3).generated) == 18
    assert rounds == [(6, 0), (6, 1), (6, 2)]
    sample, rounds = sampler([True, False] * 9)
    collected = collect(sample, prompts=4, groups=6, dynamic=True, max_rounds=3)
    assert (len(rounds), names(collected.kept)) == (2, ["0", "2", "4", "6"])


def test_without_dynamic_sampling_everything_is_trained():
    sample, _ = sampler([False, True, False, True])
    collected = collect(sample, prompts=4, groups=4, dynamic=False, max_rounds=1)
    assert collected.kept == collected.generated


def test_order_is_a_walk_over_shuffled_epochs():
    order = ProblemOrder(10, seed=3)
    first, second = order.draw(10), order.draw(10)
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second
    assert ProblemOrder(10, seed=3, cursor=7).draw(6) == (first + second)[7:13]
    assert ProblemOrder(10, seed=4).draw(10) != first


def test_seeds_differ_by_purpose_and_position():
    values = {
        derive(seed, purpose, step) for seed in range(3) for purpose in ("rollout", "order") for step in range(50)
    }
    assert len(values) == 300
    assert derive(0, "rollout", 1) == derive(0, "rollout", 1)
