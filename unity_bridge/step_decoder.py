"""What agents saw and earned, from bytes: serialized AgentInfoProtos to a StepBatch. The trainer's side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from unity_bridge.agent_info_layout import (
    ACTION_MASK,
    DONE,
    GROUP_ID,
    GROUP_REWARD,
    ID,
    MAX_STEP_REACHED,
    REWARD,
    agent_info_values,
    observation_name,
)
from unity_bridge.errors import WireError
from unity_bridge.rows import RowLayout, read_varints
from unity_bridge.sensor_layout import SensorLayout, layouts_as_declared
from unity_bridge.specs import BehaviorSpec, ObservationSpec
from unity_bridge.steps import StepBatch
from unity_bridge.wire.agent_info_pb2 import AgentInfoProto
from unity_bridge.wire.observation_pb2 import NONE, ObservationProto

MOST_LAYOUTS = 256
"""Layouts that a decoder remembers. Zeros are left out and ids grow, so an ordinary run meets a few dozen."""


class Columns(NamedTuple):
    """A table of rows in wire order, one array per field, before it is checked and sorted. N rows."""

    agent_ids: NDArray[np.int64]
    rewards: NDArray[np.float32]
    done: NDArray[np.bool_]
    interrupted: NDArray[np.bool_]
    """Meaningful where done."""
    allowed: NDArray[np.bool_]
    observations: tuple[NDArray[np.float32], ...]
    """Flat: [N, floats of the sensor]."""
    group_ids: NDArray[np.int64]
    group_rewards: NDArray[np.float32]

    @staticmethod
    def empty(rows: int, spec: BehaviorSpec) -> Columns:
        """Room for ``rows`` rows: everything allowed, everything else zero."""
        return Columns(
            agent_ids=np.zeros(rows, np.int64),
            rewards=np.zeros(rows, np.float32),
            done=np.zeros(rows, np.bool_),
            interrupted=np.zeros(rows, np.bool_),
            allowed=np.ones((rows, spec.action_spec.mask_size), np.bool_),
            observations=tuple(np.zeros((rows, s.size), np.float32) for s in spec.observation_specs),
            group_ids=np.zeros(rows, np.int64),
            group_rewards=np.zeros(rows, np.float32),
        )

    def take(self, rows: NDArray[np.intp]) -> Columns:
        """The given rows, in the given order."""
        return Columns(
            agent_ids=self.agent_ids[rows],
            rewards=self.rewards[rows],
            done=self.done[rows],
            interrupted=self.interrupted[rows],
            allowed=self.allowed[rows],
            observations=tuple(values[rows] for values in self.observations),
            group_ids=self.group_ids[rows],
            group_rewards=self.group_rewards[rows],
        )


class StepDecoder:
    """Turns one behavior's rows, as they came from one simulator, into step batches.

    Every row is held against the behavior's spec; whatever breaks it, or is not a finite number, is refused
    with the behavior, the agent and the sensor in the text.
    """

    def __init__(
        self, behavior_id: str, spec: BehaviorSpec, layouts: Sequence[SensorLayout] | None = None
    ) -> None:
        """A decoder that has seen no row yet.

        Args:
            behavior_id: for error messages.
            spec: of the behavior.
            layouts: how each sensor's values lie in the messages; like in our arrays if None.
        """
        self._where = f"behavior '{behavior_id}'"
        self._spec = spec
        self._sensor_layouts = (
            layouts_as_declared(spec.observation_specs) if layouts is None else tuple(layouts)
        )
        self._layouts: dict[int, list[RowLayout]] = {}
        self._fewest_bytes = 4 * sum(sensor.size for sensor in spec.observation_specs)

    def decode(self, rows: Sequence[bytes]) -> StepBatch:
        """The rows as a batch, terminal rows first, each kind in the order in which it came.

        An agent may own a terminal row and, after it, a deciding row. Simulators can also end an episode
        right after its agent asked for a decision. Then the deciding row comes first, and its action is
        going to be executed in the next episode: here that row becomes the first of the next episode, and
        what it earned moves to the terminal row, so nothing is lost or counted twice. If the same agent
        owned yet another terminal row before both, the episode between them saw no action at all, and its
        terminal row is dropped.

        Args:
            rows: Serialized AgentInfoProtos of one message.

        Raises:
            WireError: A row cannot be parsed, breaks the spec or holds NaN or infinity, or one agent's rows
                contradict each other.
        """
        columns = self._sorted(self._read(rows))
        self._require_finite(columns)
        return self._batch(columns)

    def _read(self, rows: Sequence[bytes]) -> Columns:
        """The rows as columns, those that share a layout at once, the rest one by one."""
        lengths = list(map(len, rows))
        different = set(lengths)
        if different and min(different) < self._fewest_bytes:
            # Refuses the row. The spec's sizes are claims: no memory is taken for floats that did not come.
            short = lengths.index(min(different))
            self._parse(short, rows[short])
        columns = Columns.empty(len(rows), self._spec)
        if len(different) == 1:
            self._read_equally_long(columns, rows, np.arange(len(rows)))
            return columns
        length_of_row = np.array(lengths)
        for length in different:
            self._read_equally_long(columns, rows, np.flatnonzero(length_of_row == length))
        return columns

    def _read_equally_long(self, columns: Columns, rows: Sequence[bytes], indices: NDArray[np.intp]) -> None:
        """Reads the rows at ``indices``, all of one length, into the columns."""
        for layout in self._layouts.get(len(rows[indices[0]]), ()):
            indices = self._read_fitting(columns, rows, layout, indices)
            if not len(indices):
                return
        while len(indices):
            first = int(indices[0])
            info = self._parse(first, rows[first])
            learned = self._learn(rows[first])
            if learned:
                indices = self._read_fitting(columns, rows, learned, indices)
            else:
                self._store_info(columns, first, info)
                indices = indices[1:]

    def _read_fitting(
        self, columns: Columns, rows: Sequence[bytes], layout: RowLayout, indices: NDArray[np.intp]
    ) -> NDArray[np.intp]:
        """Reads the rows that have the layout; returns the indices of those that have not."""
        alike = rows if len(indices) == len(rows) else [rows[index] for index in indices.tolist()]
        data = b"".join(alike)
        if layout.fits(data):
            self._store_table(columns, indices, layout.table(data))
            return indices[:0]
        fitting = layout.fitting(data)
        self._store_table(columns, indices[fitting], layout.table(data)[fitting])
        return indices[~fitting]

    def _learn(self, row: bytes) -> RowLayout | None:
        """The layout of a row that fits the spec but no layout met before; None where it has no usual one."""
        values = agent_info_values(row)
        if not values:
            return None
        if sum(map(len, self._layouts.values())) == MOST_LAYOUTS:
            self._layouts.clear()
        layout = RowLayout(row, values)
        self._layouts.setdefault(len(row), []).append(layout)
        return layout

    def _parse(self, index: int, row: bytes) -> AgentInfoProto:
        """The row as a message whose observations fit the spec."""
        try:
            info = AgentInfoProto.FromString(row)
        except DecodeError as error:
            raise WireError(
                f"{self._where}, row {index}: expected an AgentInfoProto, got {len(row)} other bytes"
            ) from error
        specs = self._spec.observation_specs
        if len(info.observations) != len(specs):
            raise WireError(
                f"{self._where}, agent {info.id}: expected {len(specs)} sensors, got {len(info.observations)}"
            )
        sensors = zip(info.observations, specs, self._sensor_layouts, strict=True)
        for sensor, (observation, spec, layout) in enumerate(sensors):
            where = f"{self._where}, agent {info.id}, sensor {sensor} '{spec.name}'"
            _require_fit(observation, spec, layout, where)
        return info

    def _store_table(self, columns: Columns, where: NDArray[np.intp], table: NDArray[np.void]) -> None:
        names = table.dtype.names or ()
        for sensor, target in enumerate(columns.observations):
            target[where] = table[observation_name(sensor)]
        if ID in names:
            columns.agent_ids[where] = read_varints(table[ID])
        if REWARD in names:
            columns.rewards[where] = table[REWARD]
        if DONE in names:
            columns.done[where] = table[DONE]
        if MAX_STEP_REACHED in names:
            columns.interrupted[where] = table[MAX_STEP_REACHED]
        if ACTION_MASK in names and table[ACTION_MASK].shape[1] == columns.allowed.shape[1]:
            columns.allowed[where] = table[ACTION_MASK] == 0
        if GROUP_ID in names:
            columns.group_ids[where] = read_varints(table[GROUP_ID])
        if GROUP_REWARD in names:
            columns.group_rewards[where] = table[GROUP_REWARD]

    def _store_info(self, columns: Columns, index: int, info: AgentInfoProto) -> None:
        columns.agent_ids[index] = info.id
        columns.rewards[index] = info.reward
        columns.done[index] = info.done
        columns.interrupted[index] = info.max_step_reached
        columns.group_ids[index] = info.group_id
        columns.group_rewards[index] = info.group_reward
        for target, observation in zip(columns.observations, info.observations, strict=True):
            target[index] = observation.float_data.data
        if len(info.action_mask) == columns.allowed.shape[1]:
            columns.allowed[index] = np.logical_not(info.action_mask)

    def _require_finite(self, columns: Columns) -> None:
        if not _all_finite(columns.rewards):
            self._refuse(columns, columns.rewards, "reward")
        if not _all_finite(columns.group_rewards):
            self._refuse(columns, columns.group_rewards, "group reward")
        for sensor, values in enumerate(columns.observations):
            if not _all_finite(values):
                self._refuse(
                    columns, values, f"sensor {sensor} '{self._spec.observation_specs[sensor].name}'"
                )

    def _refuse(self, columns: Columns, values: NDArray[np.float32], name: str) -> None:
        row, *place = np.argwhere(~np.isfinite(values))[0].tolist()
        at = f", float {place[0]}" if place else ""
        got = values[(row, *place)]
        raise WireError(
            f"{self._where}, agent {columns.agent_ids[row]}, {name}{at}: expected a finite number, got {got}"
        )

    def _sorted(self, columns: Columns) -> Columns:
        """Terminal rows first; at most one of each kind per agent."""
        done = columns.done
        if len(set(columns.agent_ids.tolist())) < len(done):
            return columns.take(self._untangle(columns))
        if np.count_nonzero(done) and np.any(done[1:] > done[:-1]):
            return columns.take(np.argsort(~done, kind="stable"))
        return columns

    def _untangle(self, columns: Columns) -> NDArray[np.intp]:
        """Returns the rows to keep, terminal ones first; moves rewards as decode() tells."""
        terminal: dict[int, int] = {}
        deciding: dict[int, int] = {}
        unplayed: set[int] = set()
        for row, (agent, done) in enumerate(
            zip(columns.agent_ids.tolist(), columns.done.tolist(), strict=True)
        ):
            if not done and agent in deciding:
                raise WireError(f"{self._where}, agent {agent}: two rows of one message ask for a decision")
            if not done:
                deciding[agent] = row
            elif agent not in terminal:
                terminal[agent] = row
                if agent in deciding:
                    _move_rewards(columns, source=deciding[agent], target=row)
            elif deciding.get(agent, -1) > terminal[agent] and agent not in unplayed:
                unplayed.add(agent)
            else:
                raise WireError(f"{self._where}, agent {agent}: two rows of one message end the same episode")
        return np.array([*terminal.values(), *deciding.values()], np.intp)

    def _batch(self, columns: Columns) -> StepBatch:
        return StepBatch(
            agent_ids=columns.agent_ids,
            observations=tuple(
                layout.arrange(values, spec)
                for values, spec, layout in zip(
                    columns.observations, self._spec.observation_specs, self._sensor_layouts, strict=True
                )
            ),
            rewards=columns.rewards,
            terminated=columns.done & ~columns.interrupted,
            truncated=columns.done & columns.interrupted,
            allowed_actions=columns.allowed,
            group_ids=columns.group_ids,
            group_rewards=columns.group_rewards,
        )


def _require_fit(
    observation: ObservationProto, spec: ObservationSpec, layout: SensorLayout, where: str
) -> None:
    if observation.compression_type != NONE:
        raise WireError(f"{where}: expected uncompressed floats, got a compressed picture")
    if observation.name and spec.name and observation.name != spec.name:
        raise WireError(f"{where}: expected the sensor of the first message, got '{observation.name}'")
    if observation.shape and tuple(observation.shape) != layout.shape:
        raise WireError(f"{where}: expected shape {layout.shape}, got {tuple(observation.shape)}")
    count = len(observation.float_data.data)
    if count != spec.size:
        raise WireError(f"{where}: expected {spec.size} floats, got {count}")


def _all_finite(values: NDArray[np.float32]) -> bool:
    return bool(np.count_nonzero(np.isfinite(values)) == values.size)


def _move_rewards(columns: Columns, *, source: int, target: int) -> None:
    for rewards in (columns.rewards, columns.group_rewards):
        with np.errstate(over="ignore"):  # a sum that overflows is refused like any other infinity
            rewards[target] += rewards[source]
        rewards[source] = 0.0
