"""Curiosity and random network distillation, for every kind of sensor and action."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from behavior_worlds import assert_equal_states, flat

from trainer_service.learning.rewards import Experience, RewardSource
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

from .conftest import BOTH, CHOICES, ENTITIES, GOAL, NUMBERS, PICTURE, VECTOR

CPU = torch.device("cpu")

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
        assert_equal_states(flat(paid.state_dict()), flat(counted.state_dict()))
        for source in (paid, counted):
            learn(source, experience, 1)
    assert (paid.state_dict()["scale"][0] > 0.0) == normalize_rewards


def test_a_world_that_repeats_itself_is_understood(make_source, make_trajectories) -> None:
    # ML-Agents holds its own to the same: below 0.001 after so many steps at the default rate.
    spec = BehaviorSpec((VECTOR,), ActionSpec(2, (3,)))
    source = make_source("curiosity", spec, seed=1, network_settings={"hidden_units": 128, "num_layers": 2})
    transitions = Experience(make_trajectories(spec, [2], seed=1), CPU).take(slice(None))
    for _ in range(200):
        statistics = source.learn(transitions)
    assert statistics.keys() == {"Losses/Curiosity Forward Loss", "Losses/Curiosity Inverse Loss"}
    assert statistics["Losses/Curiosity Inverse Loss"] < 0.01
    assert statistics["Losses/Curiosity Forward Loss"] < 0.001
    assert source.rewards(transitions).max() < 0.001


@pytest.mark.parametrize(("normalize_rewards", "strength"), [(False, 0.01), (True, 4.0)])
def test_no_step_pays_more_than_one_after_its_strength(
    make_source, make_trajectories, normalize_rewards: bool, strength: float
) -> None:
    spec = BehaviorSpec((VECTOR,), NUMBERS)
    trajectories = make_trajectories(spec, [8])
    trajectories.observations[0][3] = 1e4
    source = make_source("curiosity", spec, strength=strength, normalize_rewards=normalize_rewards)
    experience = Experience(trajectories, CPU)
    source.learn(experience.take(slice(None)))
    rewards = source.strength * source.record(experience)
    assert rewards.max() == pytest.approx(1.0)
    assert rewards.min() < 1.0


def test_what_an_action_leads_to_is_foreseen_from_the_action(make_source, make_trajectories) -> None:
    # From one and the same place each choice leads elsewhere: without the action no forecast could be right.
    spec = BehaviorSpec((VECTOR,), ActionSpec(0, (2,)))
    trajectories = make_trajectories(spec, [1] * 16)
    trajectories.observations[0][:] = 1.0
    trajectories.final_observations[0][:] = 2.0 * trajectories.discrete_actions - 1.0
    source = make_source("curiosity", spec, learning_rate=3e-3)
    transitions = Experience(trajectories, CPU).take(slice(None))
    for _ in range(100):
        source.learn(transitions)
    assert source.rewards(transitions).max() < 0.01


def test_the_target_never_changes_and_the_predictor_comes_closer(make_source, make_trajectories) -> None:
    spec = BehaviorSpec((ObservationSpec("vector", (4,)),), NUMBERS)
    source = make_source("rnd", spec, learning_rate=1e-2)
    transitions = Experience(make_trajectories(spec, [8]), CPU).take(slice(None))
    before = copy.deepcopy(source.state_dict()["network"])
    losses = [float(source.learn(transitions)["Losses/RND Loss"]) for _ in range(100)]
    after = source.state_dict()["network"]
    assert losses[-1] < 0.3 * losses[0]
    moved = {name for name, tensor in after.items() if not torch.equal(tensor, before[name])}
    assert moved == {name for name in after if name.startswith("predictor")}


def test_a_step_pays_for_what_it_led_to(make_source, make_trajectories) -> None:
    # Also the last of an episode: reaching what nobody has seen is worth something even if all ends there.
    source = make_source("rnd", SIMPLE)
    trajectories = make_trajectories(SIMPLE, [3])
    experience = Experience(trajectories, CPU)
    source.learn(experience.take(slice(None)))
    before = source.record(experience)
    trajectories.final_observations[0][:] += 50.0
    after = source.record(experience)
    assert (after[:2] == before[:2]).all()
    assert after[2] > 10.0 * before[2]
