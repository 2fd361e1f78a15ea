"""Actors that decide alone, and critics that see what everyone sees and does. B joint steps, n agents.

All agents are computed at once, be it by networks of their own or by one that serves them all. Sensors are vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from trainer_service.config.network import NetworkSettings
from trainer_service.networks.groups.group_q_network import require_vectors
from trainer_service.networks.groups.stacked import (
    StackedBody,
    StackedLinear,
    StackedNormedBody,
    make_stacked_body,
)
from trainer_service.networks.policies.action_heads import ActionParameters
from trainer_service.networks.policies.deterministic_actor import DirectActions
from trainer_service.networks.policies.imitator import Imitator
from unity_bridge.specs import BehaviorSpec


class StackedActors(nn.Module):
    """Actors μ_i(o_i): numbers before tanh, and logits of choices."""

    memory_size = policy_memory_size = 0
    """They remember nothing: see RecurrentActors."""

    def __init__(
        self,
        agent_spec: BehaviorSpec,
        settings: NetworkSettings,
        *,
        agent_sensors: Sequence[int],
        num_agents: int,
        shared: bool,
        ids: bool,
    ) -> None:
        """agent_spec: what an agent sees and can do; agent_sensors: which of the observations of ``policy`` it sees.

        shared: one network for all; ids: it is given the agent's id, the last of those observations, one-hot.
        Without sharing that id selects the network. Raises ValueError where a sensor is no vector.
        """
        super().__init__()
        require_vectors("maddpg", agent_spec.observation_specs)
        self._agent_sensors = tuple(agent_sensors)
        self._num_agents = num_agents
        self._shared, self._ids = shared, shared and ids
        self.actions = DirectActions(agent_spec.action_spec)
        count = 1 if shared else num_agents
        inputs = sum(sensor.size for sensor in agent_spec.observation_specs) + (
            num_agents if self._ids else 0
        )
        self.body = make_stacked_body(count, inputs, settings)
        self.output = StackedLinear(count, self.body.output_size, self.actions.size, gain=0.1)

    def policy(self, observations: Sequence[Tensor]) -> ActionParameters:
        """Returns the parameters of M single agents' actions, from normalized observations, one [M, …] per sensor."""
        seen = torch.cat([observations[i] for i in self._agent_sensors], dim=1)
        if self._shared:
            inputs = torch.cat([seen, observations[-1]], dim=1) if self._ids else seen
            return self.actions.forward(self._of(0, inputs))
        ids = observations[-1]
        if torch.jit.is_tracing():  # type: ignore[attr-defined,no-untyped-call]  # not in torch's types
            # In plain products, for inference engines that know no others.
            one_by_one = [self._of(k, seen) * ids[:, k : k + 1] for k in range(self._num_agents)]
            return self.actions.forward(torch.stack(one_by_one).sum(dim=0))
        everyone = seen.unsqueeze(1).expand(-1, self._num_agents, -1)
        outputs = self.output.forward(self.body.forward(everyone))
        return self.actions.forward((outputs * ids.unsqueeze(2)).sum(dim=1))

    def group_policy(self, observations: Sequence[Tensor]) -> ActionParameters:
        """Returns the parameters of whole groups' actions, [B, n, …]. observations: what each member sees itself."""
        seen = torch.cat(list(observations), dim=2)
        return self.actions.forward(_each(self.body, self.output, seen, self._shared, self._ids))

    def step(self, observations: Sequence[Tensor], memories: Tensor) -> tuple[ActionParameters, Tensor]:
        """There is no memory to step on."""
        raise ValueError("there is no memory to step on")

    def imitators(self) -> list[Imitator]:
        """The actors, as they learn from what single agents demonstrated."""
        if self._shared:
            return self._imitator(0).of_each(self._num_agents if self._ids else 0)
        return [self._imitator(k) for k in range(self._num_agents)]

    def _imitator(self, agent: int) -> Imitator:
        return Imitator(partial(self._encode, agent), None, partial(self._decide, agent))

    def _encode(self, agent: int, observations: Sequence[Tensor]) -> Tensor:
        return self.body.of(agent, torch.cat(list(observations), dim=1))

    def _decide(self, agent: int, features: Tensor) -> ActionParameters:
        return self.actions.forward(self.output.of(agent, features))

    def _of(self, agent: int, seen: Tensor) -> Tensor:
        return self.output.of(agent, self.body.of(agent, seen))


class StackedCritics(nn.Module):
    """Critics Q_i(x, a): what a group's actions are worth to each of its agents, present or not."""

    def __init__(
        self, agent_spec: BehaviorSpec, settings: NetworkSettings, *, num_agents: int, shared: bool
    ) -> None:
        """agent_spec, shared: as for the actors; a critic for all is given the agent's id."""
        super().__init__()
        self._shared = shared
        seen = sum(sensor.size for sensor in agent_spec.observation_specs)
        done = agent_spec.action_spec.continuous_size + agent_spec.action_spec.mask_size
        inputs = num_agents * (seen + 1 + done) + (num_agents if shared else 0)
        count = 1 if shared else num_agents
        self.body = make_stacked_body(count, inputs, settings)
        self.value = StackedLinear(count, self.body.output_size, 1, gain=0.1)

    def forward(self, observations: Sequence[Tensor], present: Tensor, actions: Tensor) -> Tensor:
        """Values [B, n].

        observations: what members see, zeros for absent ones, one [B, n, …] per sensor; present: bool [B, n];
        actions: everyone's, as each critic is given them, numbers and one-hot choices: [B, n critics or 1, n, C + K].
        """
        groups, num_agents = present.shape
        seen = torch.cat([*observations, present.unsqueeze(2).to(actions.dtype)], dim=2).flatten(1)
        shown = (actions * present.view(groups, 1, num_agents, 1)).flatten(2).expand(-1, num_agents, -1)
        inputs = torch.cat([seen.unsqueeze(1).expand(-1, num_agents, -1), shown], dim=2)
        return _each(self.body, self.value, inputs, self._shared, self._shared).squeeze(2)


def _each(
    body: StackedBody | StackedNormedBody, head: StackedLinear, inputs: Tensor, shared: bool, ids: bool
) -> Tensor:
    """Every agent's features, [B, n, F], through networks of their own or through one. ids: that is given their ids."""
    return each_through(head, each_through(body, inputs, shared, ids), shared)


def each_through(
    layers: StackedBody | StackedNormedBody | StackedLinear, inputs: Tensor, shared: bool, ids: bool = False
) -> Tensor:
    """Every agent's inputs, [B, n, F], through layers of their own or through those that all share; see above."""
    if not shared:
        return layers.forward(inputs)
    groups, num_agents = inputs.shape[:2]
    rows = inputs.flatten(0, 1)
    if ids:
        rows = torch.cat([rows, torch.eye(num_agents, device=rows.device).repeat(groups, 1)], dim=1)
    return layers.forward(rows.unsqueeze(1)).view(groups, num_agents, -1)
