from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from trainer_service.config.rewards import GAILSettings
from trainer_service.learning.networks.policies.action_heads import clip_actions
from trainer_service.learning.networks.shard import SINGLE_RANK
from trainer_service.learning.rewards import Experience, RewardSource, Transitions
from trainer_service.learning.rewards.discriminator import Discriminator, Inputs
from trainer_service.learning.rewards.gail import GAILReward
from trainer_service.learning.rollout.trajectories import Trajectories
from unity_bridge import specs
from unity_bridge.specs import ActionSpec, BehaviorSpec, DimensionProperty, ObservationSpec, ObservationType

CPU = torch.device("cpu")
VECTOR = ObservationSpec("vector", (3,))
PICTURE = ObservationSpec("picture", (3, 20, 20), specs.PICTURE)
ENTITIES = ObservationSpec("entities", (4, 5), (DimensionProperty.VARIABLE_SIZE, DimensionProperty.NONE))
GOAL = ObservationSpec("goal", (2,), observation_type=ObservationType.GOAL_SIGNAL)
NUMBERS, CHOICES, BOTH = ActionSpec(2, ()), ActionSpec(0, (3, 2)), ActionSpec(1, (2,))
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


def test_who_asks_for_rewards_later_counts_in_as_much(make, make_trajectories) -> None:
    paid, counted = (make(SIMPLE, network_settings={"normalize": True}) for _ in range(2))
    before = copy.deepcopy(paid.state_dict())
    experience = Experience(make_trajectories(SIMPLE, [9, 3]), CPU)
    paid.record(experience)
    counted.update_statistics(experience)
    assert _same(paid.state_dict(), counted.state_dict())
    assert not _same(before, counted.state_dict())


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


@pytest.mark.parametrize("use_actions", [True, False])
def test_the_penalty_looks_at_every_sensor(
    make, monkeypatch: pytest.MonkeyPatch, make_trajectories, use_actions: bool
) -> None:
    # D with logit w·(everything): its gradient has length σ'(0) ‖w‖ where the logit is 0, whatever the sensors.
    spec = BehaviorSpec((VECTOR, PICTURE, ENTITIES), ActionSpec(2, ()))
    source = make(spec, use_actions=use_actions)
    weights = [torch.full((3,), 2.0), torch.full((3, 20, 20), 0.1), torch.full((4, 5), 1.0)]
    for_actions = torch.full((3 if use_actions else 0,), 3.0)

    def linear(inputs: Inputs) -> torch.Tensor:
        parts = zip([*inputs.observations, inputs.actions], [*weights, for_actions], strict=True)
        total = sum((sensor.flatten(1) * weight.flatten()).sum(dim=1) for sensor, weight in parts)
        return (total - total.detach()).unsqueeze(1)

    monkeypatch.setattr(source._network, "codes", linear)
    monkeypatch.setattr(source._network, "logits", lambda codes: codes.squeeze(1))
    transitions = everything(Experience(make_trajectories(spec, [8]), CPU))
    square = 3 * 2.0**2 + 1200 * 0.1**2 + 20 * 1.0**2 + (3 * 3.0**2 if use_actions else 0.0)
    inputs = source._inputs(transitions)
    assert source._penalty(inputs, inputs, SINGLE_RANK.part(len(inputs.actions))).item() == pytest.approx(
        (0.25 * math.sqrt(square) - 1.0) ** 2, rel=1e-4
    )


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


def test_the_scale_is_that_of_experts_and_policy_together(
    make_source, write_demo, shown, make_trajectories
) -> None:
    spec = BehaviorSpec((VECTOR,), NUMBERS)
    path = write_demo(spec, shown([np.full((11, 3), 8.0, np.float32)], np.zeros((10, 2))))
    source = make_source("gail", spec, demo_path=str(path), network_settings={"normalize": True})
    trajectories = make_trajectories(spec, [500])
    trajectories.observations[0][:] = 2.0
    source.record(Experience(trajectories, CPU))
    seen = source._normalizer.forward([torch.tensor([[5.0, 8.0, 2.0]])])[0]
    assert seen[0].tolist() == pytest.approx([0.0, 1.0, -1.0], abs=0.03)


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
    assert _same(straight.state_dict(), resumed.state_dict())
    assert torch.equal(straight.rewards(everything(first)), resumed.rewards(everything(first)))


def _same(some: Any, other: Any) -> bool:
    if isinstance(some, dict):
        return some.keys() == other.keys() and all(_same(some[key], other[key]) for key in some)
    return torch.equal(some, other) if isinstance(some, torch.Tensor) else bool(some == other)
