"""Padding of heterogeneous agents, so that the behaviors of a team are one behavior to their learner.

The sensors of all members stand side by side, and an agent sees zeros where it has no such sensor. Actions are as many
as the member with the most of each kind has; what another lacks is not allowed, or cut off before an answer leaves.
Papoudakis et al. 2021 and SuperSuit (Terry et al. 2020) pad observations and actions likewise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from unity_bridge.arrays import Bools, Integers
from unity_bridge.specs import ActionSpec, BehaviorSpec, MemberSpec, ObservationSpec
from unity_bridge.steps import ActionBatch, Observation, StepBatch, as_floats

Scalar = TypeVar("Scalar", bound=np.generic)


def padded_spec(members: Sequence[MemberSpec]) -> BehaviorSpec:
    """The spec that the agents of all members are padded to.

    Sensors come in the order of the members; those of equal name, shape, properties and type are one.
    """
    sensors: list[ObservationSpec] = []
    for member in members:
        # Of two equal sensors of one member, each is one of its own.
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
    """The numbers of those ``sensors`` that a member has, in its own order; the others are zeros for its agents.

    sensors: those of the padded spec or a selection of them.
    """
    places: dict[ObservationSpec, list[int]] = {}
    for number, sensor in enumerate(sensors):
        places.setdefault(sensor, []).append(number)
    left = {sensor: iter(numbers) for sensor, numbers in places.items()}
    found = (next(left.get(sensor, iter(())), None) for sensor in member.observation_specs)
    return tuple(number for number in found if number is not None)


def member_choices(padded: ActionSpec, member: MemberSpec) -> Bools:
    """Which choices of the padded branches are a member's own, side by side. Shape [sum of the padded branches]."""
    own = member.action_spec.discrete_branches
    parts = [
        np.arange(size) < (own[branch] if branch < len(own) else 0)
        for branch, size in enumerate(padded.discrete_branches)
    ]
    return np.concatenate([*parts, np.zeros(0, np.bool_)])


def possible_choices(padded: ActionSpec, member: MemberSpec) -> Bools:
    """Which of the padded choices a member may ever be allowed: its own, and the first of each branch that it lacks.

    Shape [sum of the padded branches].
    """
    possible = member_choices(padded, member)
    starts = np.cumsum([0, *padded.discrete_branches])[:-1]
    possible[starts[len(member.action_spec.discrete_branches) :]] = True
    return possible


class _Padding(NamedTuple):
    """The way of one member's columns into the padded ones."""

    sensors: tuple[int, ...]
    choices: Bools
    possible: Bools


class AgentPadding:
    """The way of a team's steps to its learner, and of the learner's actions back to the members."""

    def __init__(self, spec: BehaviorSpec) -> None:
        """spec: as ``padded_spec`` makes it."""
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
        """Pads one tick's batches and joins them: terminal rows of one member after the other, then waiting ones.

        batches: one per member; None where the tick has none. At least one.

        Raises ValueError for an agent id that two members have.
        """
        parts = {number: batch for number, batch in enumerate(batches) if batch is not None}
        given = list(parts.values())
        rows = _MergedRows(given)
        agent_ids = rows.joined([batch.agent_ids for batch in given])
        for of_kind in (agent_ids[: rows.num_terminal], agent_ids[rows.num_terminal :]):
            if len(np.unique(of_kind)) < len(of_kind):
                twice = next(agent for agent, times in Counter(of_kind.tolist()).items() if times > 1)
                raise ValueError(f"agent {twice} stands in two behaviors of the team")
        sensors = range(len(self._spec.observation_specs))
        members = [np.full(len(batch), number, np.int64) for number, batch in parts.items()]
        return StepBatch(
            agent_ids=agent_ids,
            observations=tuple(self._padded_sensor(sensor, parts, rows) for sensor in sensors),
            rewards=rows.joined([batch.rewards for batch in given]),
            terminated=rows.joined([batch.terminated for batch in given]),
            truncated=rows.joined([batch.truncated for batch in given]),
            allowed_actions=self._padded_choices(parts, rows),
            group_ids=rows.joined([batch.group_ids for batch in given]),
            group_rewards=rows.joined([batch.group_rewards for batch in given]),
            members=rows.joined(members),
        )

    def split(self, actions: ActionBatch, members: Integers) -> list[ActionBatch]:
        """Cuts actions for the waiting rows of a merged batch into each member's own.

        members: the numbers of their members, ascending. Shape [M].
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

    def _padded_sensor(self, sensor: int, parts: Mapping[int, StepBatch], rows: _MergedRows) -> Observation:
        """All rows of one padded sensor: bytes if all that have it sent bytes."""
        seen = {
            part: batch.observations[self._paddings[number].sensors.index(sensor)]
            for part, (number, batch) in enumerate(parts.items())
            if sensor in self._paddings[number].sensors and len(batch)
        }
        spec = self._spec.observation_specs[sensor]
        as_bytes = all(each.dtype == np.uint8 for each in seen.values()) if seen else spec.is_picture
        shape = (rows.count, *spec.shape)
        padded: Observation = np.zeros(shape, np.uint8) if as_bytes else np.zeros(shape, np.float32)
        for part, observation in seen.items():
            padded[rows.of[part]] = observation if as_bytes else as_floats(observation)
        return padded

    def _padded_choices(self, parts: Mapping[int, StepBatch], rows: _MergedRows) -> Bools:
        allowed = np.zeros((rows.count, self._spec.action_spec.mask_size), np.bool_)
        for part, (number, batch) in enumerate(parts.items()):
            padding = self._paddings[number]
            of_member = np.tile(padding.possible, (len(batch), 1))
            of_member[:, padding.choices] = batch.allowed_actions
            allowed[rows.of[part]] = of_member
        return allowed


class _MergedRows:
    """The places of several batches' rows in one batch: terminal rows first, then waiting ones."""

    def __init__(self, batches: Sequence[StepBatch]) -> None:
        self.count = sum(map(len, batches))
        self.num_terminal = sum(batch.num_terminal for batch in batches)
        self.of: list[Integers] = []
        """By batch: the merged row of each of its rows."""
        ended, waiting = 0, self.num_terminal
        for batch in batches:
            ends, waits = batch.num_terminal, len(batch) - batch.num_terminal
            self.of.append(
                np.concatenate([np.arange(ended, ended + ends), np.arange(waiting, waiting + waits)])
            )
            ended, waiting = ended + ends, waiting + waits

    def joined(self, columns: Sequence[NDArray[Scalar]]) -> NDArray[Scalar]:
        """One column of all batches, each row in its place. Shape [N]."""
        merged = np.empty(self.count, columns[0].dtype)
        for rows, column in zip(self.of, columns, strict=True):
            merged[rows] = column
        return merged
