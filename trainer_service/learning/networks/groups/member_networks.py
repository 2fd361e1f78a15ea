"""Networks of the behaviors of a heterogeneous group, on their own sensors and with their own actions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from trainer_service.config.hyperparameters.common import Sharing
from trainer_service.config.network import NetworkSettings
from trainer_service.learning.networks.groups.agent_networks import AgentNetworks
from trainer_service.learning.networks.groups.histories import GroupInput
from trainer_service.learning.networks.members import (
    PaddedColumns,
    action_columns,
    member_views,
)
from trainer_service.learning.networks.policies.imitator import Imitator
from unity_bridge.specs import BehaviorSpec


class MemberNetworks(AgentNetworks):
    """A network for each behavior of a heterogeneous group, or for each agent. Missing actions have the output 0."""

    def __init__(
        self,
        actions: Any,
        agent_spec: BehaviorSpec,
        settings: NetworkSettings,
        make: Callable[..., AgentNetworks],
        *,
        agent_sensors: Sequence[int],
        share: Sharing,
        ids: bool,
    ) -> None:
        """actions: of the padded actions. agent_spec: an agent's own sensors, padded.

        make: makes a member's network as that of a single behavior. agent_sensors: numbers of an agent's own sensors
        in the observations of ``outputs``; the last observation is the agent's id. share: of the whole group; with
        ``group`` the agents of each member share a network. ids: whether a network of several agents gets their ids.
        """
        super().__init__(actions, agent_spec)
        self._views = member_views(agent_spec, range(len(agent_spec.observation_specs)))
        self._agent_sensors = tuple(agent_sensors)
        self.each = nn.ModuleList(
            make(
                view.spec, settings, agent_sensors=range(len(view.sensors)), num_agents=view.num_agents,
                share="none" if share == "none" else "full", ids=ids,
            )
            for view in self._views
        )  # fmt: skip
        self.columns = nn.ModuleList(
            PaddedColumns(action_columns(agent_spec.action_spec, view), actions.size) for view in self._views
        )
        self.memory_size = self.policy_memory_size = self._network(0).memory_size

    def keep(self, agents: slice) -> None:
        """Removes the networks of all other agent indices, in a copy that becomes a model of these agents."""
        kept = [k for k, view in enumerate(self._views) if view.agents == agents]
        self._views = [self._views[k] for k in kept]
        self.each = nn.ModuleList(self.each[k] for k in kept)
        self.columns = nn.ModuleList(self.columns[k] for k in kept)

    def outputs(self, observations: Sequence[Tensor]) -> Tensor:
        """Implements ActionNetwork, for agents of any members."""
        ids = observations[-1]
        if torch.jit.is_tracing():  # type: ignore[attr-defined,no-untyped-call]  # not in torch's types
            # Plain products, since inference engines may not support other operators.
            outputs = [
                self._outputs(k, observations) * ids[:, view.agents].sum(dim=1, keepdim=True)
                for k, view in enumerate(self._views)
            ]
            return torch.stack(outputs).sum(dim=0)
        rows = [ids[:, view.agents].any(dim=1).nonzero().squeeze(1) for view in self._views]
        parts = [self._outputs(k, [sensor[mine] for sensor in observations]) for k, mine in enumerate(rows)]
        return torch.cat(parts)[torch.argsort(torch.cat(rows))]

    def step_outputs(self, observations: Sequence[Tensor], memories: Tensor) -> tuple[Tensor, Tensor]:
        """Implements ActionNetwork."""
        outputs, all_memories = [], []
        for k, view in enumerate(self._views):
            own = self._own_observations(k, observations)
            output, next_memories = self._network(k).step_outputs(own, memories)
            is_own = observations[-1][:, view.agents].sum(dim=1, keepdim=True)
            outputs.append(self.columns[k](output, like=own[-1]) * is_own)
            all_memories.append(next_memories * is_own)
        return torch.stack(outputs).sum(dim=0), torch.stack(all_memories).sum(dim=0)

    def group_outputs(self, seen: GroupInput) -> Tensor:
        """Implements AgentNetworks."""
        parts = []
        for k, view in enumerate(self._views):
            own = [seen.observations[sensor][:, view.agents] for sensor in view.sensors]
            histories = None if seen.histories is None else seen.histories.of(view.agents)
            if seen.histories is not None and histories is None:
                shape = (len(seen.histories.selected), own[0].shape[1], self._network(k).actions.size)
                outputs = own[0].new_zeros(shape)
            else:
                outputs = self._network(k).group_outputs(GroupInput(own, histories))
            parts.append(self.columns[k](outputs))
        return torch.cat(parts, dim=1)

    def imitators(self) -> list[Imitator]:
        """Raises ValueError: demonstrations are of one behavior, and do not identify members."""
        raise ValueError("demonstrations are of one behavior; a team of several cannot learn from them")

    def _network(self, k: int) -> AgentNetworks:
        return cast(AgentNetworks, self.each[k])

    def _outputs(self, k: int, observations: Sequence[Tensor]) -> Tensor:
        own = self._own_observations(k, observations)
        padded: Tensor = self.columns[k](self._network(k).outputs(own), like=own[-1])
        return padded

    def _own_observations(self, k: int, observations: Sequence[Tensor]) -> list[Tensor]:
        """Inputs of a member's network from single agents: its own sensors, and ids within the member."""
        view = self._views[k]
        own = [observations[self._agent_sensors[sensor]] for sensor in view.sensors]
        return [*own, observations[-1][:, view.agents]]
