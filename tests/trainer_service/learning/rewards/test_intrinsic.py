"""Curiosity and random network distillation, for every kind of sensor and action."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from trainer_service.learning.rewards import Experience, RewardSource
from unity_bridge import specs
from unity_bridge.specs import ActionSpec, BehaviorSpec, DimensionProperty, ObservationSpec, ObservationType

CPU = torch.device("cpu")
VECTOR = ObservationSpec("vector", (3,))
PICTURE = ObservationSpec("picture", (3, 20, 20), specs.PICTURE)
ENTITIES = ObservationSpec("entities", (4, 5), (DimensionProperty.VARIABLE_SIZE, DimensionProperty.NONE))
GOAL = ObservationSpec("goal", (2,), observation_type=ObservationType.GOAL_SIGNAL)
NUMBERS, CHOICES, BOTH = ActionSpec(2, ()), ActionSpec(0, (3, 2)), ActionSpec(1, (2,))

signals = pytest.mark.parametrize("name", ["curiosity", "rnd"])
kinds = pytest.mark.parametrize(
    ("sensors", "actions"),
    [
        ((VECTOR,), NUMBERS),
        ((PICTURE, VECTOR, PICTURE), BOTH),
        ((ENTITIES, VECTOR), CHOICES),
        ((VECTOR, GOAL), BOTH),
    ],
    ids=["numbers", "pictures", "entities", "goal"],
)
SIMPLE = BehaviorSpec((VECTOR,), BOTH)


def learn(source: RewardSource, experience: Experience, times: int) -> dict[str, float]:
    statistics: dict[str, float] = {}
    for _ in range(times):
        statistics = {tag: float(value) for tag, value in source.learn(experience.take(slice(None))).items()}
    return statistics


@signals
@kinds
def test_what_is_met_again_and_again_pays_less(
    make_source, make_trajectories, name: str, sensors: tuple[ObservationSpec, ...], actions: ActionSpec
) -> None:
    spec = BehaviorSpec(sensors, actions)
    source = make_source(name, spec, learning_rate=3e-3)
    experience = Experience(make_trajectories(spec, [7, 5]), CPU)
    learn(source, experience, 1)
    before = source.record(experience)
    assert before.shape == (12,)
    assert before.dtype == np.float32
    assert (before > 0).all()
    learn(source, experience, 60)
    assert source.record(experience).mean() < 0.8 * before.mean()


@signals
@pytest.mark.parametrize("normalize_rewards", [True, False])
def test_nothing_is_paid_before_anything_was_learned(
    make_source, make_trajectories, name: str, normalize_rewards: bool
) -> None:
    source = make_source(name, SIMPLE, normalize_rewards=normalize_rewards)
    experience = Experience(make_trajectories(SIMPLE, [4]), CPU)
    assert source.record(experience).tolist() == [0.0] * 4
    assert source.rewards(experience.take(slice(None))).tolist() == [0.0] * 4
    learn(source, experience, 1)
    assert (source.record(experience) > 0).all()


@signals
def test_a_step_pays_the_same_alone_or_among_others(make_source, make_trajectories, name: str) -> None:
    # Also where the rollout is cut into segments for the cache: 5000 steps are more than fit at once.
    source = make_source(name, SIMPLE, strength=0.001)
    experience = Experience(make_trajectories(SIMPLE, [1, 64, 2, 933, 4000]), CPU)
    learn(source, experience, 1)
    together = source.record(experience)
    for row in (0, 1, 64, 65, 66, 67, 999, 4999):
        alone = source.rewards(experience.take(torch.tensor([row])))
        assert alone.item() == pytest.approx(together[row], rel=1e-4)


@signals
def test_no_episode_sees_another(make_source, make_trajectories, name: str) -> None:
    source = make_source(name, SIMPLE, strength=0.001)
    experience = Experience(make_trajectories(SIMPLE, [3, 4]), CPU)
    learn(source, experience, 1)
    before = source.record(experience)
    # Everything about the second trajectory is another thing.
    experience.trajectories.observations[0][3:] += 9.0
    experience.trajectories.final_observations[0][1] += 9.0
    after = source.record(experience)
    assert np.array_equal(after[:3], before[:3])
    assert (after[3:] != before[3:]).all()


@signals
def test_normalized_rewards_do_not_depend_on_the_size_of_errors(
    make_source, make_trajectories, name: str
) -> None:
    source = make_source(name, SIMPLE, gamma=0.9, strength=0.001, normalize_rewards=True)
    trajectories = make_trajectories(SIMPLE, [32] * 20)
    trajectories.observations[0][:] *= 1e3
    trajectories.final_observations[0][:] *= 1e3
    experience = Experience(trajectories, CPU)
    learn(source, experience, 1)
    rewards = source.record(experience)
    # By itself a first rollout has discounted sums whose root mean square is 1.
    sums = np.zeros(20)
    squares = []
    for step in range(32):
        sums = rewards.reshape(20, 32)[:, step] + 0.9 * sums
        squares.append(np.square(sums))
    assert np.sqrt(np.mean(squares)) == pytest.approx(1.0, rel=1e-3)


@signals
def test_observations_of_any_scale_are_brought_to_one_where_asked(
    make_source, make_trajectories, name: str
) -> None:
    # The signal's own statistics, moved by what it records: nobody else moves them.
    source = make_source(name, SIMPLE, network_settings={"normalize": True})
    trajectories = make_trajectories(SIMPLE, [500])
    trajectories.observations[0][:] = 1e4 * trajectories.observations[0] + 7e5
    trajectories.final_observations[0][:] = 1e4 * trajectories.final_observations[0] + 7e5
    experience = Experience(trajectories, CPU)
    for _ in range(20):
        source.record(experience)
        learn(source, experience, 1)
    assert source.record(experience).max() < 100.0


@signals
@pytest.mark.parametrize("normalize_rewards", [False, True])
def test_who_asks_for_rewards_later_counts_in_as_much(
    make_source, make_trajectories, name: str, normalize_rewards: bool
) -> None:
    settings = {"normalize_rewards": normalize_rewards, "network_settings": {"normalize": True}}
    paid, counted = (make_source(name, SIMPLE, **settings) for _ in range(2))
    for seed in (1, 2):
        experience = Experience(make_trajectories(SIMPLE, [9, 3], seed=seed), CPU)
        paid.record(experience)
        counted.update_statistics(experience)
        assert_same(paid.state_dict(), counted.state_dict())
        for source in (paid, counted):
            learn(source, experience, 1)
    assert (paid.state_dict()["scale"][0] > 0.0) == normalize_rewards


def assert_same(some: Any, other: Any) -> None:
    if isinstance(some, dict):
        assert some.keys() == other.keys()
        for key, value in some.items():
            assert_same(value, other[key])
    elif isinstance(some, torch.Tensor):
        assert torch.equal(some, other)
    else:
        assert some == other
