"""Member networks: each uses one member's part of a heterogeneous group's padded sensors and actions.

n agents of a group, S sensors, C continuous actions and K choices in all branches, padded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from trainer_service.config.hyperparameters.common import Sharing
from trainer_service.config.network import NetworkSettings
from trainer_service.learning.rollout.agent_padding import member_choices, member_sensors
from unity_bridge.specs import ActionSpec, BehaviorSpec

NetworkT = TypeVar("NetworkT", bound=nn.Module)


@dataclass(frozen=True, slots=True)
class MemberView:
    """The agents of one member, and their part of the padded sensors and actions."""

    agents: slice
    """Indices of its agents in a group."""

    sensors: tuple[int, ...]
    """Numbers of its sensors, and of sensors that all agents get, such as ids."""

    spec: BehaviorSpec
    """These sensors in this order, with the member's own actions."""

    continuous: tuple[int, ...]
    """Columns of its continuous actions among C."""

    discrete: tuple[int, ...]
    """Columns of its choices among K."""

    @property
    def num_agents(self) -> int:
        """Number of its agents in a group."""
        return int(self.agents.stop - self.agents.start)


def action_columns(padded: ActionSpec, view: MemberView) -> list[int]:
    """Columns of a member's continuous actions and choices among C + K."""
    return [*view.continuous, *(padded.continuous_size + choice for choice in view.discrete)]


def member_views(spec: BehaviorSpec, sensors: Sequence[int]) -> list[MemberView]:
    """One view for each member of a heterogeneous group. sensors: the numbers in ``spec`` of a network's inputs."""
    of_each_member = [set(member_sensors(spec.observation_specs, member)) for member in spec.members]
    of_members = set(chain.from_iterable(of_each_member))
    views: list[MemberView] = []
    for member, of_member in zip(spec.members, of_each_member, strict=True):
        start = views[-1].agents.stop if views else 0
        own_sensors = tuple(number for number in sensors if number in of_member or number not in of_members)
        views.append(
            MemberView(
                slice(start, start + member.num_agents),
                own_sensors,
                BehaviorSpec(tuple(spec.observation_specs[i] for i in own_sensors), member.action_spec),
                tuple(range(member.action_spec.continuous_size)),
                tuple(member_choices(spec.action_spec, member).nonzero()[0].tolist()),
            )
        )
    return views


def sensors_of_agents(spec: BehaviorSpec) -> Tensor | None:
    """1 if the agent of an index has a sensor, 0 for padding. [n, S]; None if all agents have all sensors."""
    views = member_views(spec, range(len(spec.observation_specs)))
    return _marked(views, len(spec.observation_specs), lambda view: view.sensors)


def continuous_of_agents(spec: BehaviorSpec) -> Tensor | None:
    """1 if the agent of an index has a continuous action. [n, C]; None if all agents have all of them."""
    return _marked(member_views(spec, ()), spec.action_spec.continuous_size, lambda view: view.continuous)


def discrete_of_agents(spec: BehaviorSpec) -> Tensor | None:
    """1 if the agent of an index has a choice. [n, K]; None if all agents have all choices."""
    return _marked(member_views(spec, ()), spec.action_spec.mask_size, lambda view: view.discrete)


def actions_of_agents(spec: BehaviorSpec) -> Tensor | None:
    """1 if the agent of an index has a continuous action or choice. [n, C + K]; None if all agents have all of them."""
    size = spec.action_spec.continuous_size + spec.action_spec.mask_size
    return _marked(member_views(spec, ()), size, lambda view: action_columns(spec.action_spec, view))


def branches_of_agents(spec: BehaviorSpec) -> Tensor | None:
    """Number of branches of the agent of an index, at least 1. [n]; None if all agents have all branches."""
    most = spec.action_spec.discrete_size
    counts = [spec.members[member].action_spec.discrete_size for member in spec.agent_members]
    return None if set(counts) <= {most} else torch.tensor(counts, dtype=torch.float32).clamp(min=1.0)


def observed_columns(spec: BehaviorSpec, sensors: Sequence[int]) -> Tensor | None:
    """Columns without padding in all agents' concatenated observations, each agent's sensors in the given order.

    int64, into n times the sensors' sizes; None for all columns, or if a sensor is not a vector.
    """
    shown = [spec.observation_specs[number] for number in sensors]
    has = sensors_of_agents(spec)
    if has is None or any(len(sensor.shape) != 1 for sensor in shown):
        return None
    sizes = torch.tensor([sensor.size for sensor in shown])
    return _columns(has[:, list(sensors)].repeat_interleave(sizes, dim=1))


def acted_columns(spec: BehaviorSpec) -> Tensor | None:
    """Columns without padding in all agents' concatenated actions: continuous, then discrete, of each agent.

    int64, into n · (C + K); None for all columns.
    """
    has = actions_of_agents(spec)
    return None if has is None else _columns(has)


def agents_with(spec: BehaviorSpec, sensors: Sequence[int]) -> list[int] | None:
    """The indices of agents that have all of these sensors; None if all agents have them."""
    has = sensors_of_agents(spec)
    if has is None or bool(has[:, list(sensors)].all()):
        return None
    indices: list[int] = has[:, list(sensors)].all(dim=1).nonzero().flatten().tolist()
    return indices


def rows_of_state(rows: Tensor, agents: Sequence[int] | None) -> Tensor:
    """The row of a present agent that has the global state; −1 if there is none. [F]

    rows: of each agent, −1 for absent agents, [F, n]. agents: the result of ``agents_with``.
    """
    return (rows if agents is None else rows[:, list(agents)]).amax(dim=1)


def _marked(
    views: Sequence[MemberView], size: int, columns: Callable[[MemberView], Sequence[int]]
) -> Tensor | None:
    if not views:
        return None
    marks = torch.zeros(views[-1].agents.stop, size)
    for view in views:
        marks[view.agents, list(columns(view))] = 1.0
    return None if bool(marks.all()) else marks


def _columns(each: Tensor) -> Tensor | None:
    """Indices of ones over all agents' columns. [n, F] to int64; None if all are ones."""
    return None if bool(each.all()) else each.flatten().nonzero().flatten()


class PaddedColumns(nn.Module):
    """Scatters a member's own columns into the padded columns. Other columns are 0."""

    scatter: Tensor
    """One 1 per row, at the padded column. [own columns, size]"""

    def __init__(self, columns: Sequence[int], size: int) -> None:
        super().__init__()
        self.register_buffer("scatter", torch.eye(size)[list(columns)], persistent=False)

    def forward(self, own: Tensor, like: Tensor | None = None) -> Tensor:
        """Maps [..., own columns] to [..., size]. like: [..., any] with as many rows, for tracing."""
        # Products, since inference engines may support few other operators. Factors 0 and 1 lose no precision.
        if len(self.scatter):
            return own @ self.scatter
        if like is None:
            return own.new_zeros((*own.shape[:-1], self.scatter.shape[1]))
        return (like[..., :1] * 0.0) @ self.scatter.new_zeros(1, self.scatter.shape[1])


def each_made_by(
    make: Callable[..., NetworkT], settings: NetworkSettings, share: Sharing, *, ids: bool
) -> Callable[[MemberView], NetworkT]:
    """Returns a function that makes the network of a member as ``make`` makes that of a single behavior.

    share: of the whole group; with ``group`` the agents of each member share a network. ids: whether a network of
    several agents gets their ids.
    """
    return lambda view: make(
        view.spec, settings, agent_sensors=range(len(view.sensors)), num_agents=view.num_agents,
        share="none" if share == "none" else "full", ids=ids,
    )  # fmt: skip


class MemberNetworks(nn.Module):
    """A network for each member of a heterogeneous group, with its own sensors. Outputs are in padded columns."""

    def __init__(
        self,
        agent_spec: BehaviorSpec,
        agent_sensors: Sequence[int],
        make: Callable[[MemberView], nn.Module],
        columns: Callable[[MemberView], Sequence[int]],
        size: int,
    ) -> None:
        """agent_spec: an agent's own sensors, padded. agent_sensors: their numbers in ``of_agents``' observations.

        make: makes a member's network. columns: returns the columns of its outputs among ``size``.
        """
        super().__init__()
        self._views = member_views(agent_spec, range(len(agent_spec.observation_specs)))
        self._agent_sensors = tuple(agent_sensors)
        self.each = nn.ModuleList(make(view) for view in self._views)
        self.columns = nn.ModuleList(PaddedColumns(columns(view), size) for view in self._views)

    def keep(self, agents: slice) -> None:
        """Removes the networks of all other agent indices, in a copy that becomes a model of these agents."""
        kept = [k for k, view in enumerate(self._views) if view.agents == agents]
        self._views = [self._views[k] for k in kept]
        self.each = nn.ModuleList(self.each[k] for k in kept)
        self.columns = nn.ModuleList(self.columns[k] for k in kept)

    def of_agents(
        self, observations: Sequence[Tensor], forward: Callable[[Any, list[Tensor]], Tensor]
    ) -> Tensor:
        """Returns outputs of M agents of any members, [M, size]. observations: one [M, …] per sensor, ids last.

        forward: applies a member's network to its agents' own sensors, with ids within the member last.
        """
        ids = observations[-1]
        if torch.jit.is_tracing():  # type: ignore[attr-defined,no-untyped-call]  # not in torch's types
            # Plain products, since inference engines may not support other operators.
            outputs = [
                self._outputs(k, observations, forward) * ids[:, view.agents].sum(dim=1, keepdim=True)
                for k, view in enumerate(self._views)
            ]
            return torch.stack(outputs).sum(dim=0)
        rows = [ids[:, view.agents].any(dim=1).nonzero().squeeze(1) for view in self._views]
        parts = [
            self._outputs(k, [sensor[mine] for sensor in observations], forward)
            for k, mine in enumerate(rows)
        ]
        return torch.cat(parts)[torch.argsort(torch.cat(rows))]

    def step(
        self,
        observations: Sequence[Tensor],
        forward: Callable[[Any, list[Tensor]], tuple[Tensor, Tensor]],
    ) -> tuple[Tensor, Tensor]:
        """Returns the outputs of M agents like ``of_agents``, and their next memories, by networks with memory."""
        outputs, memories = [], []
        for k, view in enumerate(self._views):
            own_observations = self._own_observations(k, observations)
            output, next_memory = forward(self.each[k], own_observations)
            is_own = observations[-1][:, view.agents].sum(dim=1, keepdim=True)
            outputs.append(self.columns[k](output, like=own_observations[-1]) * is_own)
            memories.append(next_memory * is_own)
        return torch.stack(outputs).sum(dim=0), torch.stack(memories).sum(dim=0)

    def of_groups(
        self, observations: Sequence[Tensor], forward: Callable[[MemberView, Any, list[Tensor]], Tensor]
    ) -> Tensor:
        """Returns outputs of all agents of B groups, [B, n, size]. observations: the agents' own, [B, n, …] each.

        forward: applies a member's network to its agents' observations, [B, its agents, …].
        """
        parts = []
        for view, network, columns in zip(self._views, self.each, self.columns, strict=True):
            own = forward(view, network, [observations[sensor][:, view.agents] for sensor in view.sensors])
            parts.append(columns(own))
        return torch.cat(parts, dim=1)

    def _outputs(
        self, k: int, observations: Sequence[Tensor], forward: Callable[[Any, list[Tensor]], Tensor]
    ) -> Tensor:
        own_observations = self._own_observations(k, observations)
        padded: Tensor = self.columns[k](forward(self.each[k], own_observations), like=own_observations[-1])
        return padded

    def _own_observations(self, k: int, observations: Sequence[Tensor]) -> list[Tensor]:
        """Inputs of a member's network from single agents: its own sensors, and ids within the member."""
        view = self._views[k]
        own = [observations[self._agent_sensors[sensor]] for sensor in view.sensors]
        return [*own, observations[-1][:, view.agents]]
