"""Networks of teams of unlike agents: padding must change nothing, and what an agent lacks must count nowhere."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from trainer_service.config import NetworkSettings
from trainer_service.config.hyperparameters.common import Sharing
from trainer_service.learning.networks.encoders.normalizer import ObservationNormalizer
from trainer_service.learning.networks.groups.agent_networks import AgentNetworks
from trainer_service.learning.networks.groups.group_q_network import make_q_network
from trainer_service.learning.networks.groups.histories import GroupInput
from trainer_service.learning.networks.groups.stacked_actor_critic import (
    MemberCritics,
    StackedCritics,
    make_actors,
)
from trainer_service.learning.networks.members import (
    actions_of_agents,
    continuous_of_agents,
    sensors_of_agents,
)
from trainer_service.learning.networks.policies.action_heads import ActionParameters
from trainer_service.learning.networks.policies.group_actors import AgentActor, GroupActors
from trainer_service.learning.rollout.agent_padding import padded_spec
from trainer_service.learning.rollout.observation_selector import make_selector
from unity_bridge.simulators.scene import vector_sensor
from unity_bridge.specs import ActionSpec, BehaviorSpec, MemberSpec

KEEPER = MemberSpec("Keeper", (vector_sensor("eyes", 3), vector_sensor("clock", 1)), ActionSpec(2, (3,)), 1)
PLAYER = MemberSpec("Player", (vector_sensor("feet", 2), vector_sensor("clock", 1)), ActionSpec(1, (2, 2)), 2)
TEAM = make_selector(padded_spec([KEEPER, PLAYER]), with_state=False, num_agents=3).spec
EYES, CLOCK, FEET, ID = range(4)
AGENT_SPEC = padded_spec([KEEPER, PLAYER])
CHOOSERS = [
    replace(each, action_spec=replace(each.action_spec, continuous_size=0)) for each in (KEEPER, PLAYER)
]
SETTINGS = NetworkSettings(hidden_units=16, num_layers=2)
NORMED = NetworkSettings(hidden_units=16, num_layers=1, layer_norm=True)
GROUPS = 5

several = pytest.mark.parametrize("share", ["group", "none"])
every = pytest.mark.parametrize("share", ["group", "none", "full"])


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(3)


def group_observations() -> list[Tensor]:
    """Eyes, clock and feet of whole groups, padded. [GROUPS, 3, …] each."""
    eyes, clock, feet = torch.randn(GROUPS, 3, 3), torch.randn(GROUPS, 3, 1), torch.randn(GROUPS, 3, 2)
    eyes[:, 1:] = 0.0
    feet[:, :1] = 0.0
    return [eyes, clock, feet]


def rows_of(observations: list[Tensor], *, shuffled: bool = True) -> tuple[list[Tensor], Tensor]:
    """The same as rows of single agents, ids last; and where each came from."""
    ids = torch.eye(3).expand(GROUPS, 3, 3)
    order = torch.randperm(3 * GROUPS) if shuffled else torch.arange(3 * GROUPS)
    return [sensor.flatten(0, 1)[order] for sensor in (*observations, ids)], order


# Distributions of actions


# Actors on policy


def group_actors(share: Sharing, settings: NetworkSettings = SETTINGS) -> GroupActors:
    sensors = [EYES, CLOCK, FEET, ID] if share == "full" else [EYES, CLOCK, FEET]
    return GroupActors(TEAM, settings, agent_sensors=sensors, index_sensor=ID, share=share)


@pytest.mark.parametrize(("share", "settings"), [("group", SETTINGS), ("none", NORMED)])
def test_an_actor_of_a_team_is_what_it_is_alone(share: Sharing, settings: NetworkSettings) -> None:
    """Its weights, copied into a network that knows of no team, decide the same and get the same gradient."""
    actors = group_actors(share, settings)
    assert len(actors.each) == (2 if share == "group" else 3)
    rows, order = rows_of(group_observations())
    who = order % 3
    whole = actors.policy(rows)
    with torch.no_grad():
        done, chosen, _ = actors.actions.sample(whole, ALLOWED[who], torch.Generator().manual_seed(1))
    loss = actors.actions.log_prob(whole, ALLOWED[who], done, chosen)
    for agent in (0, 2):
        member, sensors = (KEEPER, (EYES, CLOCK)) if agent == 0 else (PLAYER, (FEET, CLOCK))
        number = agent if share == "none" else min(agent, 1)
        spec = BehaviorSpec(tuple(TEAM.observation_specs[i] for i in sorted(sensors)), member.action_spec)
        alone = AgentActor(spec, settings)
        alone.load_state_dict(list(actors)[number].state_dict())
        mine = who == agent if share == "none" else (who > 0) == (agent > 0)
        own = alone.forward([rows[i][mine] for i in sorted(sensors)], None)
        numbers, branches = member.action_spec.continuous_size, member.action_spec.discrete_size
        log_prob = alone.actions.log_prob(own, None, done[mine, :numbers], chosen[mine, :branches])
        torch.testing.assert_close(loss[mine], log_prob)
        actors.zero_grad()
        (loss[mine].mean() - actors.actions.entropy(_rows(whole, mine), ALLOWED[who][mine]).mean()).backward(
            retain_graph=True
        )
        (log_prob.mean() - alone.actions.entropy(own, None).mean()).backward()
        for one, other in zip(list(actors)[number].parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad)
        others = [each for k, each in enumerate(actors) if k != number]
        assert all(
            not each.grad.any() for other in others for each in other.parameters() if each.grad is not None
        )


ALLOWED = torch.tensor(
    [[True, True, True, True, False], [True, True, False, True, True], [True, True, False, True, True]]
)


def _rows(whole: ActionParameters, mine: Tensor) -> ActionParameters:
    return ActionParameters(*(column[mine] for column in whole if column is not None))


@every
def test_what_an_agent_lacks_is_nothing_to_its_actor(share: Sharing) -> None:
    rows, order = rows_of(group_observations())
    decided = group_actors(share).policy(rows)
    has = continuous_of_agents(TEAM)
    assert has is not None
    assert decided.has_continuous is not None
    assert torch.equal(decided.has_continuous, has[order % 3])
    assert torch.equal(decided.mean[order % 3 > 0, 1], torch.zeros(2 * GROUPS))
    assert torch.equal(decided.log_sigma, torch.zeros(3 * GROUPS, 2))
    assert (decided.mean[:, 0].abs() > 0).all()


# Action values


def q_networks(share: Sharing, settings: NetworkSettings = SETTINGS) -> AgentNetworks:
    sensors, ids = [EYES, CLOCK, FEET], share != "none"
    return make_q_network(
        padded_spec(CHOOSERS), settings, agent_sensors=sensors, num_agents=3, share=share, ids=ids
    )


@every
def test_values_in_a_group_are_those_of_single_agents(share: Sharing) -> None:
    network, observations = q_networks(share), group_observations()
    rows, order = rows_of(observations)
    together = network.group_outputs(GroupInput(observations))
    assert together.shape == (GROUPS, 3, 5)
    torch.testing.assert_close(together.flatten(0, 1)[order], network.outputs(rows))
    has = actions_of_agents(padded_spec(CHOOSERS))
    assert has is not None
    assert torch.equal(together != 0, (has > 0).expand(GROUPS, -1, -1))


# Deterministic actors and critics of everyone


@several
def test_deterministic_actions_that_an_agent_lacks_are_0(share: Sharing) -> None:
    sensors = [EYES, CLOCK, FEET]
    actors = make_actors(AGENT_SPEC, NORMED, agent_sensors=sensors, num_agents=3, share=share, ids=False)
    observations = group_observations()
    rows, order = rows_of(observations)
    together, alone = actors.group_policy(GroupInput(observations)), actors.policy(rows)
    torch.testing.assert_close(together.mean.flatten(0, 1)[order], alone.mean)
    torch.testing.assert_close(together.logits.flatten(0, 1)[order], alone.logits)
    assert torch.equal(together.mean != 0, torch.tensor([[1, 1], [1, 0], [1, 0]]).bool().expand(GROUPS, 3, 2))


@every
def test_critics_do_not_see_padding(share: Sharing) -> None:
    critics: MemberCritics | StackedCritics = (
        MemberCritics(AGENT_SPEC, SETTINGS)
        if share == "group"
        else StackedCritics(AGENT_SPEC, SETTINGS, num_agents=3, shared=share == "full")
    )
    present = torch.ones(GROUPS, 3, dtype=torch.bool)
    actions = torch.randn(GROUPS, 1, 3, 7, requires_grad=True)
    observations = [sensor.requires_grad_() for sensor in group_observations()]
    values = critics.forward(GroupInput(observations), present, actions)
    assert values.shape == (GROUPS, 3)
    values.sum().backward()
    assert actions.grad is not None
    own = torch.tensor(
        [[1, 1, 1, 1, 1, 0, 0], [1, 0, 1, 1, 0, 1, 1], [1, 0, 1, 1, 0, 1, 1]], dtype=torch.bool
    )
    assert torch.equal(actions.grad[:, 0] != 0, own.expand(GROUPS, 3, 7))
    for sensor, agents in ((EYES, [0]), (CLOCK, [0, 1, 2]), (FEET, [1, 2])):
        gradient = observations[sensor].grad
        assert gradient is not None
        touched = gradient.abs().sum(dim=(0, 2)) > 0
        assert touched.nonzero().flatten().tolist() == agents


# Normalization


def normalizer() -> ObservationNormalizer:
    return ObservationNormalizer(TEAM.observation_specs, normalize=True, has_sensor=sensors_of_agents(TEAM))


def test_statistics_of_a_sensor_are_those_of_agents_that_have_it() -> None:
    made, rows = normalizer(), rows_of([10.0 + 3.0 * sensor for sensor in group_observations()])[0]
    has_eyes = rows[ID][:, 0] > 0
    rows[EYES][~has_eyes] = 0.0
    rows[FEET][has_eyes] = 0.0
    alone = ObservationNormalizer(KEEPER.observation_specs, normalize=True)
    for _ in range(3):
        made.update(rows)
        alone.update([rows[EYES][has_eyes], rows[CLOCK]])
    normalized = made.forward(rows)
    torch.testing.assert_close(
        normalized[EYES][has_eyes], alone.forward([rows[EYES], rows[CLOCK]])[0][has_eyes]
    )
    assert not normalized[EYES][~has_eyes].any()
    assert not normalized[FEET][has_eyes].any()
    assert normalized[FEET][~has_eyes].any()
    assert torch.equal(normalized[ID], rows[ID])
