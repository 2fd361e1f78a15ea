"""COMA's critic: the value of each choice of an agent, given the other agents' observations and actions.

F joint steps, n agents.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from trainer_service.config.network import NetworkSettings
from trainer_service.learning.networks.critics.value_scale import ScaledValues, Scaling
from trainer_service.learning.networks.encoders.encoder import ObservationEncoder
from trainer_service.learning.networks.encoders.layers import make_body, observations_as_floats
from trainer_service.learning.networks.encoders.memory import make_memory
from trainer_service.learning.networks.members import agents_with, observed_columns, rows_of_state
from unity_bridge.specs import BehaviorSpec


class COMACritic(nn.Module):
    """A critic Q(s, (a₋ᵢ, ·)) of every agent i. One pass gives the values of all choices, for each reward signal.

    Its inputs are the state, the agent's own observations and index, and the actions of all other agents.
    """

    columns: Tensor | None
    """Columns of all agents' concatenated observations that are not padding; None for all."""

    def __init__(
        self,
        spec: BehaviorSpec,
        settings: NetworkSettings,
        *,
        agent_sensors: Sequence[int],
        state_sensors: Sequence[int],
        num_agents: int,
        signals: int,
        scaling: Scaling,
    ) -> None:
        """state_sensors: sensors of the global state; none for all agents' observations."""
        super().__init__()
        self._agent_sensors, self._state_sensors = tuple(agent_sensors), tuple(state_sensors)
        self._num_agents, self._mask_size = num_agents, spec.action_spec.mask_size
        sensors = spec.observation_specs
        self.encoder = ObservationEncoder([sensors[i] for i in agent_sensors], settings)
        self.of_state = (
            ObservationEncoder([sensors[i] for i in state_sensors], settings) if state_sensors else None
        )
        encoded = self.encoder.output_size
        self._state_agents = agents_with(spec, state_sensors)
        self.register_buffer("columns", observed_columns(spec, agent_sensors), persistent=False)
        observed_size = num_agents * encoded if self.columns is None else len(self.columns)
        joint = observed_size + num_agents if self.of_state is None else self.of_state.output_size
        inputs = joint + encoded + num_agents + num_agents * self._mask_size
        self.body = make_body(inputs, settings)
        self.memory = None if settings.memory is None else make_memory(settings.hidden_units, settings.memory)
        features = settings.hidden_units if self.memory is None else self.memory.output_size
        self.value = ScaledValues(features, signals, scaling, members=self._mask_size)

    def forward(
        self, observations: Sequence[Tensor], actions: Tensor, members: Tensor, filled: Tensor | None = None
    ) -> Tensor:
        """Returns [F, n, A, signals], in units of the scale of returns. Values of absent agents are arbitrary.

        observations: [R, …] per sensor. actions: one-hot, [R, A]. members: int64 [F, n], each agent's row, −1 for
        absent agents. filled: the existing joint steps of sequences that begin without memory, bool [Q, L].
        """
        observations = observations_as_floats(observations)
        encoded = self.encoder.forward([observations[i] for i in self._agent_sensors])
        each, present = _table(encoded)[members], (members >= 0).to(encoded.dtype)
        observed = each.flatten(start_dim=1)
        joint = torch.cat([observed if self.columns is None else observed[:, self.columns], present], dim=1)
        if self.of_state is not None:
            state = self.of_state.forward([observations[i] for i in self._state_sensors])
            joint = _table(state)[rows_of_state(members, self._state_agents)]
        done = _table(actions)[members]
        features = self.body.forward(self._inputs(joint, each, done))
        if self.memory is not None and filled is not None:
            features = self.memory.unroll_each(features, filled)
        return self.value.forward(features)

    def _inputs(self, joint: Tensor, each: Tensor, done: Tensor) -> Tensor:
        """Returns every agent's inputs: state, own observation, index, and other agents' actions. [F, n, inputs]"""
        agent_id = torch.eye(self._num_agents, device=done.device, dtype=done.dtype)
        others = (done.unsqueeze(1) * (1.0 - agent_id).unsqueeze(2)).flatten(start_dim=2)
        shape = (len(each), self._num_agents, -1)
        return torch.cat([joint.unsqueeze(1).expand(shape), each, agent_id.expand(shape), others], dim=2)


def _table(rows: Tensor) -> Tensor:
    """Appends a row of zeros, which −1 indexes for absent agents."""
    return torch.cat([rows, rows.new_zeros((1, rows.shape[1]))])
