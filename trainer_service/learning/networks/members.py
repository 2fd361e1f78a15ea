"""The members of a heterogeneous group: each uses its part of the group's padded sensors and actions.

n agents of a group, S sensors, C continuous actions and K choices in all branches, padded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor, nn

from trainer_service.learning.rollout.agent_padding import member_choices, member_sensors
from unity_bridge.specs import ActionSpec, BehaviorSpec


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
