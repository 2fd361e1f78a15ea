"""Padding of sensors and actions, so that a heterogeneous group is one behavior to its learner.

The padded spec has the sensors of all members, and an agent observes zeros for a sensor that it lacks. The number of
actions of each kind is the largest of all members. Another member's missing choices are masked, and its missing
continuous actions are cut off before they are sent. Papoudakis et al. 2021 and SuperSuit (Terry et al. 2020) also pad
observations and actions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple

import numpy as np

from unity_bridge.arrays import Bools, Integers
from unity_bridge.specs import ActionSpec, BehaviorSpec, MemberSpec, ObservationSpec
from unity_bridge.steps import ActionBatch, Observation, StepBatch, join_batches, join_observations


def padded_spec(members: Sequence[MemberSpec]) -> BehaviorSpec:
    """Returns the padded spec of the agents of all members.

    Sensors are in the order of the members. Sensors of different members with equal name, shape, properties and type
    are one.
    """
    sensors: list[ObservationSpec] = []
    for member in members:
        # Two equal sensors of one member stay two sensors.
        missing = Counter(member.observation_specs) - Counter(sensors)
        for sensor in member.observation_specs:
            if missing[sensor]:
                missing[sensor] -= 1
                sensors.append(sensor)
    actions = [member.action_spec for member in members]
    branches = zip_longest(*(action.discrete_branches for action in actions), fillvalue=1)
    most = max((action.continuous_size for action in actions), default=0)
    return BehaviorSpec(tuple(sensors), ActionSpec(most, tuple(map(max, branches))), tuple(members))


def member_sensors(sensors: Sequence[ObservationSpec], member: MemberSpec) -> tuple[int, ...]:
    """Returns the numbers of a member's own sensors, in its order. Its agents observe zeros for all others.

    sensors: of the padded spec, or a selection of these.
    """
    places: dict[ObservationSpec, list[int]] = {}
    for number, sensor in enumerate(sensors):
        places.setdefault(sensor, []).append(number)
    left = {sensor: iter(numbers) for sensor, numbers in places.items()}
    found = (next(left.get(sensor, iter(())), None) for sensor in member.observation_specs)
    return tuple(number for number in found if number is not None)


def member_choices(padded: ActionSpec, member: MemberSpec) -> Bools:
    """Whether each choice of the padded branches is the member's own. Shape [sum of the padded branches]."""
    own = member.action_spec.discrete_branches
    parts = [
        np.arange(size) < (own[branch] if branch < len(own) else 0)
        for branch, size in enumerate(padded.discrete_branches)
    ]
    return np.concatenate([*parts, np.zeros(0, np.bool_)])


def possible_choices(padded: ActionSpec, member: MemberSpec) -> Bools:
    """Whether the mask can allow each padded choice: a member's own, and the first of each branch that it lacks.

    Shape [sum of the padded branches].
    """
    possible = member_choices(padded, member)
    starts = np.cumsum([0, *padded.discrete_branches])[:-1]
    possible[starts[len(member.action_spec.discrete_branches) :]] = True
    return possible


class _Padding(NamedTuple):
    """Scatters one member's sensors and choices into the padded layout."""

    sensors: tuple[int, ...]
    discrete: Bools
    possible: Bools


class AgentPadding:
    """Pads the steps of a heterogeneous group for its learner, and splits the learner's actions by member."""

    def __init__(self, spec: BehaviorSpec) -> None:
        """spec: the result of ``padded_spec``. Raises ValueError for any other spec."""
        if not spec.members or padded_spec(spec.members) != spec:
            raise ValueError("its sensors and actions are not those of its members, padded")
        self._spec = spec
        actions = spec.action_spec
        self._paddings = [
            _Padding(
                member_sensors(spec.observation_specs, member),
                member_choices(actions, member),
                possible_choices(actions, member),
            )
            for member in spec.members
        ]

    def merge(self, batches: Sequence[StepBatch | None]) -> StepBatch:
        """Pads and joins one tick's batches: the terminal rows of all members, then their waiting rows.

        batches: one per member, None for a member without one. At least one is not None.

        Raises ValueError if two members have the same agent id.
        """
        given = [(number, batch) for number, batch in enumerate(batches) if batch is not None]
        parts = [(number, batch) for number, batch in given if len(batch)] or given[:1]
        padded = [self.pad(number, batch.observations, batch.allowed_actions) for number, batch in parts]
        columns = zip(*(observations for observations, _ in padded), strict=True)
        merged = join_batches(
            [batch for _, batch in parts],
            [join_observations(column) for column in columns],
            np.concatenate([allowed for _, allowed in padded]),
            np.repeat([number for number, _ in parts], [len(batch) for _, batch in parts]),
        )
        _require_distinct(merged.agent_ids[: merged.num_terminal])
        _require_distinct(merged.agent_ids[merged.num_terminal :])
        return merged

    def split(self, actions: ActionBatch, members: Integers) -> list[ActionBatch]:
        """Splits the actions of a merged batch's waiting rows by member.

        members: the member of each row, ascending. Shape [M].
        """
        parts = []
        end = 0
        counts = np.bincount(members, minlength=len(self._spec.members)).tolist()
        for member, count in zip(self._spec.members, counts, strict=True):
            begin, end = end, end + count
            own = member.action_spec
            continuous = actions.continuous[begin:end, : own.continuous_size]
            parts.append(ActionBatch(continuous, actions.discrete[begin:end, : own.discrete_size]))
        return parts

    def pad(
        self, member: int, observations: Sequence[Observation], allowed_actions: Bools
    ) -> tuple[list[Observation], Bools]:
        """Pads the observations and action masks of M agents of one member. Shapes [M, …]."""
        rows, padding = len(allowed_actions), self._paddings[member]
        own = dict(zip(padding.sensors, observations, strict=True))
        padded = [
            own[sensor] if sensor in own else _absent(rows, spec)
            for sensor, spec in enumerate(self._spec.observation_specs)
        ]
        allowed = np.tile(padding.possible, (rows, 1))
        allowed[:, padding.discrete] = allowed_actions
        return padded, allowed


def _absent(rows: int, sensor: ObservationSpec) -> Observation:
    """Zero observations for a padded sensor. A picture's zeros are bytes, which take a quarter of the memory."""
    shape = (rows, *sensor.shape)
    return np.zeros(shape, np.uint8) if sensor.is_picture else np.zeros(shape, np.float32)


def _require_distinct(agent_ids: Integers) -> None:
    """Raises ValueError for a repeated agent id."""
    if len(np.unique(agent_ids)) < len(agent_ids):
        twice = next(agent for agent, times in Counter(agent_ids.tolist()).items() if times > 1)
        raise ValueError(f"agent {twice} stands in two behaviors of the team")
