"""A critic with the observations of all agents of a group. F joint steps of groups of up to n agents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer_service.config.network import NetworkSettings
from trainer_service.learning.networks.critics.value_scale import ScaledValues, Scaling
from trainer_service.learning.networks.encoders.encoder import ObservationEncoder
from trainer_service.learning.networks.encoders.layers import make_body, observations_as_floats
from trainer_service.learning.networks.encoders.memory import make_memory
from trainer_service.learning.networks.members import agents_with, observed_columns, rows_of_state
from unity_bridge.specs import BehaviorSpec

CentralState = Literal["joint", "environment", "agent", "own_and_joint"]


class JointCritic(nn.Module):
    """A critic of a group's members or of the whole group, with one value per reward signal.

    ``joint``: the inputs are all members' concatenated observations, zeros for absent members, and their presence. One
    body has a value head per agent. ``environment``: the same with the simulator's global state. ``agent``: the inputs
    of each member are the joint state, its own observations and its index. ``own_and_joint``: each member has two
    bodies, and their features are averaged. One has its own observations as inputs. The other has the observations of
    all members, its own first and then in the order of indices, and its index.
    """

    columns: Tensor | None
    """Columns of all members' concatenated observations that are not padding; None for all."""

    def __init__(
        self,
        spec: BehaviorSpec,
        settings: NetworkSettings,
        *,
        state_sensors: Sequence[int],
        state: CentralState,
        num_agents: int,
        signals: int,
        members: int,
        scaling: Scaling,
    ) -> None:
        """num_agents: n. members: values of a joint step, n, or 1 for the group's value."""
        super().__init__()
        self._state_sensors = tuple(state_sensors)
        self._kind = state
        self._num_agents, self._members = num_agents, members
        self.encoder = ObservationEncoder([spec.observation_specs[i] for i in state_sensors], settings)
        encoded = self.encoder.output_size
        self._state_agents = agents_with(spec, state_sensors) if state == "environment" else None
        self.register_buffer("columns", observed_columns(spec, state_sensors), persistent=False)
        observed_size = num_agents * encoded if self.columns is None else len(self.columns)
        joint = encoded if state == "environment" else observed_size + num_agents
        inputs = {
            "agent": joint + encoded + num_agents,
            # The padding's columns differ by the member whose observations come first, so all columns are used.
            "own_and_joint": num_agents * (encoded + 2),
        }.get(state, joint)
        self.body = make_body(inputs, settings)
        self.own_body = make_body(encoded, settings) if state == "own_and_joint" else None
        self.memory = None if settings.memory is None else make_memory(settings.hidden_units, settings.memory)
        features = settings.hidden_units if self.memory is None else self.memory.output_size
        self._by_member = state in ("agent", "own_and_joint")
        self.value = ScaledValues(features, signals, scaling, members=1 if self._by_member else members)

    def forward(
        self, observations: Sequence[Tensor], members: Tensor, filled: Tensor | None = None
    ) -> Tensor:
        """Returns values in units of the scale of returns, see ``value``. [F, members, signals]

        observations: [R, …] per sensor. members: int64 [F, n], the row of each agent, −1 for absent agents. filled:
        the existing joint steps of sequences that begin without memory, bool [Q, L].

        Returns [F, members, signals].
        """
        encoded = self.encoder.forward(observations_as_floats([observations[i] for i in self._state_sensors]))
        inputs = self._inputs(encoded, members)
        if not self._by_member:
            return self.value.forward(self._features(inputs.unsqueeze(1), filled).squeeze(1))
        return self.value.forward(self._features(inputs[:, : self._members], filled)).squeeze(2)

    def _inputs(self, encoded: Tensor, members: Tensor) -> Tensor:
        # −1 indexes the row of zeros for absent agents.
        table = torch.cat([encoded, encoded.new_zeros((1, encoded.shape[1]))])
        if self._kind == "environment":
            return table[rows_of_state(members, self._state_agents)]
        each = table[members]
        present = (members >= 0).to(encoded.dtype)
        observed = each.flatten(start_dim=1)
        joint = torch.cat([observed if self.columns is None else observed[:, self.columns], present], dim=1)
        if self._kind == "joint":
            return joint
        index = torch.arange(self._num_agents, device=joint.device)
        shape = (len(members), self._num_agents, -1)
        agent_id = functional.one_hot(index, self._num_agents).to(joint.dtype).expand(shape)
        if self._kind == "agent":
            return torch.cat([joint.unsqueeze(1).expand(shape), each, agent_id], dim=2)
        from_each = (index.unsqueeze(1) + index) % self._num_agents
        return torch.cat([each[:, from_each].flatten(start_dim=2), present[:, from_each], agent_id], dim=2)

    def _features(self, inputs: Tensor, filled: Tensor | None) -> Tensor:
        """Maps [F, n, inputs], with one row per value, to [F, n, features]."""
        features = self.body.forward(inputs)
        if self.own_body is not None:
            own = inputs[..., : self.encoder.output_size]
            features = 0.5 * (features + self.own_body.forward(own))
        if self.memory is None or filled is None:
            return features
        return self.memory.unroll_each(features, filled)
