"""Action values of a group's agents, by one network for all agents or one for each."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trainer_service.config.hyperparameters.common import Sharing
from trainer_service.config.network import NetworkSettings
from trainer_service.learning.networks.encoders.encoder import Trunk
from trainer_service.learning.networks.encoders.layers import kaiming_linear, observations_as_floats
from trainer_service.learning.networks.encoders.memory import EncoderInput
from trainer_service.learning.networks.groups.agent_networks import AgentNetworks, require_vectors
from trainer_service.learning.networks.groups.histories import GroupInput
from trainer_service.learning.networks.groups.member_networks import MemberNetworks
from trainer_service.learning.networks.groups.stacked_networks import StackedNetworks
from trainer_service.learning.networks.policies.action_heads import ActionParameters
from trainer_service.learning.networks.policies.imitator import Imitator
from trainer_service.learning.networks.policies.q_network import GreedyChoices
from unity_bridge.specs import BehaviorSpec, ObservationSpec


class SharedQNetwork(AgentNetworks):
    """One network for all agents, with their ids as an option."""

    def __init__(
        self, agent_spec: BehaviorSpec, settings: NetworkSettings, *, agent_sensors: Sequence[int], ids: int
    ) -> None:
        """agent_spec: an agent's own sensors and actions. agent_sensors: their numbers in ``outputs``' observations.

        ids: length of agent ids, which are the last of these observations; 0 without ids.
        """
        super().__init__(GreedyChoices(agent_spec.action_spec.discrete_branches), agent_spec)
        self._agent_sensors = (*agent_sensors, -1) if ids else tuple(agent_sensors)
        self._ids = ids
        sensors = agent_spec.observation_specs
        inputs = (*sensors, ObservationSpec("ids", (ids,))) if ids else sensors
        self.trunk = Trunk(BehaviorSpec(inputs, agent_spec.action_spec), settings)
        self.memory_size = self.policy_memory_size = self.trunk.memory_size
        # Near zero, so that initially no choice is better than another.
        self.q = kaiming_linear(self.trunk.output_size, agent_spec.action_spec.mask_size, gain=0.1)

    def outputs(self, observations: Sequence[Tensor]) -> Tensor:
        """Implements ActionNetwork."""
        inputs = observations_as_floats([observations[i] for i in self._agent_sensors])
        return self.own(self.q.forward(self.trunk.forward(inputs)), observations[-1])

    def step_outputs(self, observations: Sequence[Tensor], memories: Tensor) -> tuple[Tensor, Tensor]:
        """Implements ActionNetwork."""
        inputs = observations_as_floats([observations[i] for i in self._agent_sensors])
        features, next_memories = self.trunk.step(inputs, memories)
        return self.own(self.q.forward(features), observations[-1]), next_memories

    def group_outputs(self, seen: GroupInput) -> Tensor:
        """Implements AgentNetworks."""
        observations, histories = seen
        if histories is not None:
            inputs = [histories.places(sensor) for sensor in observations]
            if self._ids:
                inputs.append(torch.eye(self._ids, device=inputs[0].device)[histories.agents])
            features = self.trunk.encode(EncoderInput(inputs, histories.sequences))
            return self.own(self.q.forward(features[histories.selected]))
        groups, num_agents = observations[0].shape[:2]
        inputs = observations_as_floats(observations)
        if self._ids:
            inputs.append(torch.eye(self._ids, device=inputs[0].device).expand(groups, -1, -1))
        if not self.trunk.encoder.vector_sizes:
            inputs = [sensor.flatten(0, 1) for sensor in inputs]
        features = self.trunk.body.forward(self.trunk.encoder.forward(inputs).flatten(0, -2))
        return self.own(self.q.forward(features).view(groups, num_agents, -1))

    def imitators(self) -> list[Imitator]:
        """Implements AgentNetworks."""
        return Imitator.of_trunk(self.trunk, self._decide).of_each(self._ids)

    def _decide(self, features: Tensor) -> ActionParameters:
        return self.parameters_of(self.q.forward(features))


def make_q_network(
    agent_spec: BehaviorSpec,
    settings: NetworkSettings,
    *,
    agent_sensors: Sequence[int],
    num_agents: int,
    share: Sharing,
    ids: bool,
) -> AgentNetworks:
    """Makes a network of agents' values from their own observations: one for all, one per behavior, or one each.

    agent_spec, agent_sensors: as in SharedQNetwork. ids: whether a network of several agents gets their ids. Raises
    ValueError if a sensor of separate networks is not a vector.
    """
    choices = GreedyChoices(agent_spec.action_spec.discrete_branches)
    if agent_spec.members and share != "full":
        return MemberNetworks(
            choices, agent_spec, settings, make_q_network, agent_sensors=agent_sensors, share=share, ids=ids
        )
    if share == "none":
        require_vectors("share: none", agent_spec.observation_specs)
        return StackedNetworks(
            choices, agent_spec, settings, agent_sensors=agent_sensors, num_agents=num_agents
        )
    return SharedQNetwork(agent_spec, settings, agent_sensors=agent_sensors, ids=num_agents if ids else 0)
