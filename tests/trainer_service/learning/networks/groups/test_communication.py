"""Networks of agents that communicate: what each value depends on, and what the parts add up to."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from trainer_service.config.hyperparameters.off_policy import ShareSettings, SICSettings
from trainer_service.config.network import NetworkSettings
from trainer_service.learning.networks.groups.communication import CommunicatingNetwork
from trainer_service.learning.networks.groups.histories import GroupInput
from trainer_service.learning.networks.groups.messages import MessageNetwork
from trainer_service.learning.networks.groups.shared_features import SharedFeaturesNetwork
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec


def spec_of(size: int, *branches: int) -> BehaviorSpec:
    return BehaviorSpec((ObservationSpec("eyes", (size,)),), ActionSpec(0, branches))


def shared_features(
    num_agents: int, spec: BehaviorSpec, *, units: int = 8, layers: int = 1, **settings
) -> SharedFeaturesNetwork:
    hyper = ShareSettings.model_validate(settings)
    return SharedFeaturesNetwork(
        spec, NetworkSettings(hidden_units=units, num_layers=layers), hyper, num_agents
    )


def messages(
    num_agents: int, spec: BehaviorSpec, *, units: int = 8, layers: int = 1, **settings
) -> MessageNetwork:
    hyper = SICSettings.model_validate(settings)
    return MessageNetwork(spec, NetworkSettings(hidden_units=units, num_layers=layers), hyper, num_agents)


def shaken(network: CommunicatingNetwork) -> CommunicatingNetwork:
    """No weight is zero any more."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(0.0, 0.5, generator=generator)
    return network


def seen(batch: int, num_agents: int, size: int) -> Tensor:
    return torch.randn(batch, num_agents, size, generator=torch.Generator().manual_seed(batch + num_agents))


@pytest.mark.parametrize("num_agents", [2, 3, 4])
def test_shared_features_equal_the_sum_written_out_agent_by_agent(num_agents: int) -> None:
    network = shaken(shared_features(num_agents, spec_of(3, 4)))
    inputs = seen(6, num_agents, 3)
    first, second = network.encoder
    h = [
        torch.relu(
            torch.relu(inputs[:, i] @ first.weight[i] + first.bias[i]) @ second.weight[i] + second.bias[i]
        )
        for i in range(num_agents)
    ]
    g = list(h)
    for _ in range(4):
        g = [(g[i] + g[(i + 1) % num_agents]) / 2 for i in range(num_agents)]
    for i, (own, mixed) in enumerate(zip(h, g, strict=True)):
        value = mixed @ network.critic.weight[i] + network.critic.bias[i]
        joined = torch.cat([own, mixed], dim=1)
        advantage = torch.tanh(joined @ network.advantage.weight[i] + network.advantage.bias[i])
        torch.testing.assert_close(network.group_outputs(GroupInput([inputs]))[:, i], value + advantage)


@pytest.mark.parametrize("num_agents", [2, 3, 4])
def test_messages_equal_the_sum_written_out_agent_by_agent(num_agents: int) -> None:
    network = shaken(messages(num_agents, spec_of(3, 4), layers=0))
    assert not list(network.body)
    inputs = seen(6, num_agents, 3)
    sent = [
        torch.tanh(inputs[:, i] @ network.messages.weight[i] + network.messages.bias[i])
        for i in range(num_agents)
    ]
    for i in range(num_agents):
        received = torch.cat([sent[i], *(sent[j] for j in range(num_agents) if j != i)], dim=1)
        expected = received @ network.readout.weight[i] + network.readout.bias[i]
        torch.testing.assert_close(network.group_outputs(GroupInput([inputs]))[:, i], expected)


def received(network: CommunicatingNetwork, parameter: Tensor, agent: int) -> list[bool]:
    """Returns the agents in whose networks one agent's value leaves a gradient."""
    network.zero_grad()
    network.group_outputs(GroupInput([seen(6, 4, 3)]))[:, agent].sum().backward()
    assert parameter.grad is not None
    return [bool(grad.any()) for grad in parameter.grad]


def test_gradients_reach_teammates() -> None:
    network = shaken(shared_features(4, spec_of(3, 2)))
    assert received(network, network.encoder[0].weight, 1) == [True] * 4
    assert received(network, network.critic.weight, 1) == [False, True, False, False]
    sic = shaken(messages(4, spec_of(3, 2)))
    assert received(sic, sic.messages.weight, 1) == [True] * 4
    assert received(sic, sic.body[0].weight, 1) == [True] * 4
    assert received(sic, sic.readout.weight, 1) == [False, True, False, False]


def test_who_is_out_of_reach_is_not_heard() -> None:
    alone = shaken(shared_features(4, spec_of(3, 2), share_iterations=0))
    assert received(alone, alone.encoder[0].weight, 1) == [False, True, False, False]
    once = shaken(shared_features(4, spec_of(3, 2), share_iterations=1))
    assert received(once, once.encoder[0].weight, 1) == [False, True, True, False]


@pytest.mark.parametrize("make", [shared_features, messages])
def test_the_policy_is_that_of_whose_turn_it_is(make) -> None:
    network = shaken(make(3, spec_of(2, 4)))
    inputs = seen(5, 3, 2)
    values = network.group_outputs(GroupInput([inputs]))
    for agent in range(3):
        who = torch.eye(3)[[agent] * 5]
        logits = network.policy([inputs[:, agent], inputs.flatten(1), who]).logits
        assert torch.equal(logits, values[:, agent])
