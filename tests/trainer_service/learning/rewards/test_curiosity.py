from __future__ import annotations

import pytest
import torch

from trainer_service.learning.rewards import Experience
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

CPU = torch.device("cpu")
VECTOR = ObservationSpec("vector", (4,))


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
    spec = BehaviorSpec((VECTOR,), ActionSpec(2, ()))
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
