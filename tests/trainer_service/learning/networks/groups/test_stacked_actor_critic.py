"""The selection of an agent's network, and what a critic may depend on."""

from __future__ import annotations

import pytest
import torch

from trainer_service.config import NetworkSettings
from trainer_service.config.hyperparameters.common import Sharing
from trainer_service.learning.networks.groups.agent_networks import AgentNetworks
from trainer_service.learning.networks.groups.histories import GroupInput
from trainer_service.learning.networks.groups.stacked_actor_critic import StackedCritics, make_actors
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

NUM_AGENTS, GROUPS = 3, 4
SPEC = BehaviorSpec((ObservationSpec("eyes", (5,)), ObservationSpec("ears", (2,))), ActionSpec(2, (3, 2)))
SETTINGS = NetworkSettings(hidden_units=16, num_layers=2)

kinds = pytest.mark.parametrize(
    ("shared", "ids"), [(False, False), (True, True), (True, False)], ids=["own", "told", "same"]
)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(5)


def actors(*, shared: bool, ids: bool) -> AgentNetworks:
    share: Sharing = "full" if shared else "none"
    return make_actors(SPEC, SETTINGS, agent_sensors=[0, 1], num_agents=NUM_AGENTS, share=share, ids=ids)


def seen() -> list[torch.Tensor]:
    return [torch.randn(GROUPS, NUM_AGENTS, 5), torch.randn(GROUPS, NUM_AGENTS, 2)]


@kinds
def test_in_its_group_an_agent_does_what_it_does_alone(shared: bool, ids: bool) -> None:
    network, observations = actors(shared=shared, ids=ids), seen()
    together = network.group_policy(GroupInput(observations))
    order = torch.randperm(GROUPS * NUM_AGENTS)
    who = torch.eye(NUM_AGENTS).repeat(GROUPS, 1)
    alone = network.policy(
        [each.flatten(0, 1)[order] for each in (*observations, who.view(GROUPS, NUM_AGENTS, -1))]
    )
    for one, other in zip(together[:3], alone[:3], strict=True):
        torch.testing.assert_close(one.flatten(0, 1)[order], other)
    assert together.mean.shape == (GROUPS, NUM_AGENTS, 2)
    assert together.logits.shape == (GROUPS, NUM_AGENTS, 5)


@pytest.mark.parametrize("shared", [False, True])
def test_a_critic_depends_on_its_inputs_and_no_absent_agent(shared: bool) -> None:
    critics = StackedCritics(SPEC, SETTINGS, num_agents=NUM_AGENTS, shared=shared)
    present = torch.ones(GROUPS, NUM_AGENTS, dtype=torch.bool)
    present[0, 2] = False
    observations = [torch.where(present[:, :, None], each, 0.0) for each in seen()]
    actions = torch.randn(GROUPS, NUM_AGENTS, NUM_AGENTS, 7)
    values = critics.forward(GroupInput(observations), present, actions)
    assert values.shape == (GROUPS, NUM_AGENTS)
    for critic in range(NUM_AGENTS):
        told = actions.clone()
        told[:, critic, 2] += 1.0
        moved = critics.forward(GroupInput(observations), present, told) != values
        expected = torch.zeros(GROUPS, NUM_AGENTS, dtype=torch.bool)
        expected[1:, critic] = True  # in the first group agent 2 is absent, and what it does is nothing
        assert torch.equal(moved, expected)
