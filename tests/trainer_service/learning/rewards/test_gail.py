from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from behavior_worlds import assert_equal_states, flat

from trainer_service.config.rewards import GAILSettings
from trainer_service.learning.networks.policies.action_heads import clip_actions
from trainer_service.learning.rewards import Experience, RewardSource, Transitions
from trainer_service.learning.rewards.discriminator import Discriminator
from trainer_service.learning.rewards.gail import GAILReward
from trainer_service.learning.rollout.trajectories import Trajectories
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

from .conftest import BOTH, CHOICES, ENTITIES, GOAL, NUMBERS, PICTURE, VECTOR

CPU = torch.device("cpu")
SIMPLE = BehaviorSpec((VECTOR,), BOTH)


@pytest.fixture
def make(make_source, make_trajectories, write_demo, shown) -> Callable[..., GAILReward]:
    """A source with experts that see larger numbers and darker pictures than chance; keywords are its settings."""

    def build(spec: BehaviorSpec, *, seed: int = 1, **settings: Any) -> GAILReward:
        drawn = make_trajectories(spec, [16, 16], seed=700)
        for sensor in drawn.observations:
            sensor[:] = sensor // 8 if sensor.dtype == np.uint8 else sensor + 1
        path = write_demo(spec, *_episodes(drawn, shown))
        source: GAILReward = make_source("gail", spec, seed=seed, demo_path=str(path), **settings)
        return source

    return build


def _episodes(trajectories: Trajectories, shown) -> list[Any]:
    ends = np.cumsum(trajectories.lengths)
    episodes = []
    for segment, (end, length) in enumerate(zip(ends, trajectories.lengths, strict=True)):
        rows = slice(end - length, end)
        seen = [
            np.concatenate([sensor[rows], final[segment : segment + 1]])
            for sensor, final in zip(trajectories.observations, trajectories.final_observations, strict=True)
        ]
        episodes.append(
            shown(
                seen,
                np.tanh(trajectories.continuous_actions[rows]),
                trajectories.discrete_actions[rows],
                bool(trajectories.terminated[segment]),
            )
        )
    return episodes


def everything(experience: Experience) -> Transitions:
    return experience.take(slice(None))


def learn(source: RewardSource, transitions: Transitions, times: int) -> dict[str, float]:
    statistics: dict[str, float] = {}
    for _ in range(times):
        statistics = {tag: float(value) for tag, value in source.learn(transitions).items()}
    return statistics


@pytest.mark.parametrize(
    ("sensors", "actions", "use_actions", "use_vail"),
    [
        ((VECTOR,), NUMBERS, False, False),
        ((VECTOR, VECTOR), BOTH, True, True),
        ((PICTURE, VECTOR, PICTURE), BOTH, True, False),
        ((ENTITIES, VECTOR), CHOICES, True, False),
        ((VECTOR, GOAL), BOTH, False, True),
    ],
    ids=["numbers", "hybrid", "pictures", "entities", "goal"],
)
def test_experts_are_told_from_the_policy_after_a_few_updates(
    make,
    make_trajectories,
    sensors: tuple[ObservationSpec, ...],
    actions: ActionSpec,
    use_actions: bool,
    use_vail: bool,
) -> None:
    # As ML-Agents holds its own to; behind noise as strong as a bottleneck's is at first, it takes longer.
    spec = BehaviorSpec(sensors, actions)
    source = make(spec, use_actions=use_actions, use_vail=use_vail, learning_rate=3e-3)
    transitions = everything(Experience(make_trajectories(spec, [12, 12]), CPU, clip_actions))
    statistics = learn(source, transitions, 60 if use_vail else 20)
    assert statistics["Policy/GAIL Expert Estimate"] > statistics["Policy/GAIL Policy Estimate"]
    expected = {"Losses/GAIL Loss", "Policy/GAIL Grad Mag Loss"}
    expected |= {"Policy/GAIL Expert Estimate", "Policy/GAIL Policy Estimate"}
    expected |= {"Losses/GAIL KL Loss", "Policy/GAIL Beta"} if use_vail else set()
    assert statistics.keys() == expected


def test_actions_and_ends_count_only_when_they_are_asked_for(make, make_trajectories) -> None:
    transitions = everything(Experience(make_trajectories(SIMPLE, [6]), CPU))
    changed = Transitions(
        transitions.observations,
        transitions.next_observations,
        transitions.continuous_actions,
        1 - transitions.discrete_actions,
        -transitions.executed_actions,
        transitions.task_rewards,
        ~transitions.terminated,
    )
    blind, seeing = make(SIMPLE), make(SIMPLE, use_actions=True)
    assert torch.equal(blind.rewards(transitions), blind.rewards(changed))
    assert (seeing.rewards(transitions) != seeing.rewards(changed)).all()


def test_the_inputs_are_executed_actions_the_end_and_choices() -> None:
    settings = GAILSettings(demo_path="x", use_actions=True)
    network = Discriminator(BehaviorSpec((VECTOR,), ActionSpec(1, (3, 2))), settings)
    seen = torch.zeros((2, 3))
    steps = Transitions(
        [seen],
        [seen],
        torch.tensor([[9.0], [-0.3]]),
        torch.tensor([[0, 1], [2, 0]]),
        torch.tensor([[1.0], [-0.1]]),
        torch.zeros(2),
        torch.tensor([False, True]),
    )
    expected = [[1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0], [-0.1, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0]]
    assert network.inputs([seen], steps).actions.tolist() == [pytest.approx(row) for row in expected]


def test_experience_knows_what_was_executed_and_which_ends_are_real(make_trajectories) -> None:
    trajectories = make_trajectories(
        BehaviorSpec((VECTOR,), NUMBERS), [2, 1, 2], terminated=[True, False, True]
    )
    trajectories.continuous_actions[:, 0] = [0.9, 3.0, -6.0, 0.0, -1.5]
    transitions = Experience(trajectories, CPU, clip_actions).take(torch.tensor([4, 1, 2, 0, 3]))
    assert transitions.executed_actions[:, 0].tolist() == pytest.approx([-0.5, 1.0, -1.0, 0.3, 0.0])
    assert transitions.continuous_actions[:, 0].tolist() == pytest.approx([-1.5, 3.0, -6.0, 0.9, 0.0])
    assert transitions.terminated.tolist() == [True, True, False, False, False]


def test_information_grows_dear_while_there_is_too_much_of_it(make, make_trajectories) -> None:
    source = make(SIMPLE, use_vail=True, learning_rate=1e-6)
    transitions = everything(Experience(make_trajectories(SIMPLE, [16]), CPU))
    with torch.no_grad():
        source._network.bottleneck.sigma.fill_(0.5)
    first, second = (learn(source, transitions, 1) for _ in range(2))
    # β ← max(0, β + 0.0005 (KL − ½)), from 0.
    expected = 5e-4 * (first["Losses/GAIL KL Loss"] - 0.5)
    assert first["Policy/GAIL Beta"] == pytest.approx(expected, rel=1e-4)
    assert expected > 0.0
    assert second["Policy/GAIL Beta"] == pytest.approx(
        expected + 5e-4 * (second["Losses/GAIL KL Loss"] - 0.5), rel=1e-4
    )
    with torch.no_grad():
        source._network.bottleneck.sigma.fill_(1.0)
        source._network.bottleneck.mean.weight.zero_()
    learn(source, transitions, 1)
    assert source._beta.item() < second["Policy/GAIL Beta"]


def test_it_goes_on_bit_for_bit(make, make_trajectories) -> None:
    settings = {"use_vail": True, "use_actions": True, "network_settings": {"normalize": True}}
    first = Experience(make_trajectories(SIMPLE, [9, 4]), CPU)
    second = Experience(make_trajectories(SIMPLE, [8], seed=2), CPU)
    straight = make(SIMPLE, **settings)
    straight.record(first)
    learn(straight, everything(first), 3)
    resumed = make(SIMPLE, seed=99, **settings)
    resumed.load_state_dict(copy.deepcopy(straight.state_dict()))
    for source in (straight, resumed):
        source.record(second)
        learn(source, everything(second), 3)
    assert_equal_states(flat(straight.state_dict()), flat(resumed.state_dict()))
    assert torch.equal(straight.rewards(everything(first)), resumed.rewards(everything(first)))
