"""A critic with the observations of all agents of a group. F joint steps of groups of up to n agents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer_service.config.network import NetworkSettings
from trainer_service.networks.critics.value_scale import ScaledValues, Scaling
from trainer_service.networks.encoders.encoder import ObservationEncoder
from trainer_service.networks.encoders.layers import make_body, observations_as_floats
from trainer_service.networks.encoders.memory import make_memory
from trainer_service.networks.members import agents_with, observed_columns, rows_of_state
from unity_bridge.specs import BehaviorSpec

CentralState = Literal["joint", "environment", "agent", "own_and_joint"]


class JointCritic(nn.Module):
    """A critic of a group's members, one value per reward signal, or of the group as a whole.

    ``joint``: what it sees are all members' observations side by side, absent ones as zeros, and which are there. A
    value per agent sits on one body. ``environment``: likewise, from the simulator's own state.
    ``agent``: the joint state, the member's own observations and its index, for each member by itself.
    ``own_and_joint``: for each member by itself two bodies, whose features are averaged: one sees its own observations,
    the other those of all, its own first, then of those after it in the order of indices, and its index.
    """

    columns: Tensor | None
    """Columns of all members' observations side by side that are not padding; None for all."""

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
        """num_agents: n; members: values of a joint step, n, or 1 for the group's."""
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
            # From each member's place what is padding stands elsewhere: all is seen.
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
        """Values in units of the scale of returns: see ``value``.

        observations: [R, …] per sensor; members: int64 [F, n], the row of each agent, −1 for
        absent ones; filled: which joint steps there are of sequences that begin without memory, bool [Q, L].

        Returns [F, members, signals].
        """
        encoded = self.encoder.forward(observations_as_floats([observations[i] for i in self._state_sensors]))
        inputs = self._inputs(encoded, members)
        if not self._by_member:
            return self.value.forward(self._features(inputs.unsqueeze(1), filled).squeeze(1))
        return self.value.forward(self._features(inputs[:, : self._members], filled)).squeeze(2)

    def _inputs(self, encoded: Tensor, members: Tensor) -> Tensor:
        # −1 finds the row of zeros that stands for absent agents.
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
        """Maps [F, n, inputs], of as many as there are values for, to [F, n, features]."""
        features = self.body.forward(inputs)
        if self.own_body is not None:
            own = inputs[..., : self.encoder.output_size]
            features = 0.5 * (features + self.own_body.forward(own))
        if self.memory is None or filled is None:
            return features
        return self.memory.unroll_each(features, filled)
