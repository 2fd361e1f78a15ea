"""The decoder of agents' steps, from serialized AgentInfoProtos to a StepBatch, for trainers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import cast

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from unity_bridge.codec.agent_info_layout import (
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
from unity_bridge.codec.columns import Columns, SensorColumn, to_arrays
from unity_bridge.codec.rows import Row, RowLayout, read_varints
from unity_bridge.codec.sensor_layout import SensorLayout, layouts_as_declared
from unity_bridge.codec.sensor_reader import SensorReader, is_compressed
from unity_bridge.codec.step_encoder import largest_number, require_valid
from unity_bridge.codec.unusable_values import UnusableValues
from unity_bridge.errors import WireError
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import Observation, StepBatch
from unity_bridge.throttled_logger import ThrottledLogger
from unity_bridge.untrusted_text import quoted
from unity_bridge.wire.agent_info_pb2 import AgentInfoProto

MOST_LAYOUTS = 256
"""Layouts that a decoder remembers. Zeros are left out and ids grow, so an ordinary run meets a few dozen."""

MOST_OF_A_LENGTH = 16
"""Layouts of one length that it remembers, and so tries on a row. An ordinary run meets two or three."""

MOST_NEW_LAYOUTS = 16
"""Rows of one message from which it tries to learn a layout, because each is tried on all rows of its length that are
left. The rest is then read row by row: every row is looked at a bounded number of times, however unlike they are."""

PIECE_BYTES = 1 << 20
"""Bytes of rows that are compared at once: what that takes stays small, and in the processor's cache, however long the
message is."""

ROOM_BESIDE_SENSORS = 4096
"""Bytes that a row may take for its scalars, and for fields that later versions of the protocol may add."""

MOST_CHOICES = 1 << 26
"""Choices of all agents of one message: a thousand agents with 65 536 each. They take memory without being sent."""

BYTES_PER_CHOICE = 2
"""Most that a mask takes for each choice: a list that is not packed."""

_COLUMNS = {
    ID: "agent_ids", REWARD: "rewards", DONE: "done", MAX_STEP_REACHED: "interrupted",
    GROUP_ID: "group_ids", GROUP_REWARD: "group_rewards",
}  # fmt: skip
"""The column of each scalar of an AgentInfoProto."""

_throttled = ThrottledLogger(logging.getLogger(__name__))


class StepDecoder:
    """A decoder of one behavior's rows, as they come from one simulator, into step batches.

    Every row is checked against the behavior's spec; one that breaks it is refused with the behavior, the agent and
    the sensor in the text. Values that cannot be used, such as NaN, become 0 as long as they are few.
    """

    def __init__(
        self,
        behavior_id: str,
        spec: BehaviorSpec,
        layouts: Sequence[SensorLayout] | None = None,
        *,
        refuse_unusable: bool = False,
    ) -> None:
        """Makes a decoder that has seen no row yet.

        Args:
            behavior_id: for error messages.
            spec: of the behavior.
            layouts: how each sensor's values lie in the messages; like in our arrays if None.
            refuse_unusable: refuses each message with NaN or infinity, and replaces nothing.
        """
        self._where = f"behavior {quoted(behavior_id)}"
        if layouts is None:
            layouts = layouts_as_declared(spec.observation_specs)
        self._spec = spec
        self._mask_size = spec.action_spec.mask_size
        self._sensors = tuple(
            SensorReader(index, *pair)
            for index, pair in enumerate(zip(spec.observation_specs, layouts, strict=True))
        )
        self.may_be_compressed = any(sensor.may_be_compressed for sensor in self._sensors)
        """Whether some observations may be PNG files."""
        self._fewest_bytes = 4 * sum(sensor.size for sensor in self._sensors if not sensor.may_be_compressed)
        self._most_bytes = (
            ROOM_BESIDE_SENSORS
            + BYTES_PER_CHOICE * self._mask_size
            + sum(sensor.most_bytes for sensor in self._sensors)
        )
        numbers, parts = sum(sensor.size for sensor in self._sensors), 1 + len(self._sensors)
        self.usual_bytes = 8 * numbers + BYTES_PER_CHOICE * self._mask_size + 256 * parts
        """More bytes than each row of many needs: twice its floats, its mask, and room for names."""
        self._layouts: dict[int, list[RowLayout]] = {}
        self._unusable = UnusableValues(self._where, [sensor.name for sensor in self._sensors])
        self._refuse_unusable = refuse_unusable
        self.replaced = 0
        """Values of the last message that were replaced by 0."""
        self._adopted_ids: tuple[bytes, bytes] | None = None
        """Checked ids of the agents and groups of the last adopted batch, if no episode ended in it."""

    @property
    def counts_unusable(self) -> bool:
        """Whether values were replaced recently, so that the values of the next messages must be counted."""
        return self._unusable.is_counting

    def decode(self, rows: Sequence[Row]) -> StepBatch:
        """Returns the rows as a batch, terminal rows first, each kind in the order in which it came.

        An agent may own a terminal row and, after it, a deciding row. Simulators can also end an episode
        right after its agent asked for a decision. Then the deciding row comes first, and its action is
        going to be executed in the next episode: here that row becomes the first of the next episode, and
        its rewards move to the terminal row, so nothing is lost or counted twice. If the same agent
        owned yet another terminal row before both, the episode between them saw no action at all, and its
        terminal row is dropped.

        Args:
            rows: Serialized AgentInfoProtos of one message.

        Raises:
            WireError: A row cannot be parsed or breaks the spec, one agent's rows contradict each other, or too
                many values could not be used lately (see UnusableValues).
        """
        return self._batch(self._arrays(self._read(rows)))

    def adopt(self, batch: StepBatch) -> StepBatch:
        """Returns a batch that did not come as a message, as ``decode`` would return it; the two share no memory.

        Raises:
            ValueError: it does not have the spec's shapes, or an id is not one of 0 to 2³¹ − 1.
            WireError: one agent's rows contradict each other, or too many values could not be used lately.
        """
        require_valid(batch, self._spec)
        has_masks = batch.allowed_actions.shape[1] == self._mask_size
        columns = Columns(
            agent_ids=np.array(batch.agent_ids, np.int64),
            rewards=np.array(batch.rewards, np.float32),
            done=batch.terminated | batch.truncated,
            interrupted=np.array(batch.truncated),
            allowed=np.array(batch.allowed_actions)
            if has_masks
            else np.ones((len(batch), self._mask_size), np.bool_),
            observations=tuple(
                [
                    sensor.adopt(values)
                    for sensor, values in zip(self._sensors, batch.observations, strict=True)
                ]
            ),
            group_ids=np.array(batch.group_ids, np.int64),
            group_rewards=np.array(batch.group_rewards, np.float32),
        )
        ids = columns.agent_ids.tobytes(), columns.group_ids.tobytes()
        if batch.num_terminal or ids != self._adopted_ids:
            largest_number(ID, columns.agent_ids)
            largest_number(GROUP_ID, columns.group_ids)
            adopted = self._batch(columns)
            self._adopted_ids = None if batch.num_terminal else ids
            return adopted
        # The usual message: the agents of the last one, all of which wait.
        self._filter(columns)
        return self._as_batch(columns, columns.done, columns.interrupted)

    def decode_in_order(self, rows: Sequence[Row]) -> Columns[Observation]:
        """The rows as they came, each a moment of its own: for recordings, where an agent owns many.

        Observations are [N, *sensor shape].

        Raises:
            WireError: A row cannot be parsed, breaks the spec, or holds NaN or infinity.
        """
        columns = self._arrays(self._read(rows))
        self._unusable.refuse(columns)
        return columns.with_arrays(self._shaped(columns))

    def _read(self, rows: Sequence[Row]) -> Columns[SensorColumn]:
        """Reads the rows into columns: rows with a common layout at once, all other rows one by one."""
        lengths = list(map(len, rows))
        different = set(lengths)
        if different and min(different) < self._fewest_bytes:
            # Refuses the row. The spec's sizes are claims: no memory is taken for floats that did not come.
            short = lengths.index(min(different))
            self._parse(short, bytes(rows[short]))
        if different and max(different) > self._most_bytes:
            long = lengths.index(max(different))
            raise WireError(
                f"{self._where}, row {long}: expected at most {self._most_bytes} bytes, got {lengths[long]}"
            )
        if len(rows) * self._mask_size > MOST_CHOICES:
            raise WireError(
                f"{self._where}: expected agents with {MOST_CHOICES} choices at most, "
                f"got {len(rows)} with {self._mask_size}"
            )
        room = tuple(sensor.column(len(rows)) for sensor in self._sensors)
        columns = Columns.empty(len(rows), self._mask_size, room)
        if len(different) == 1:
            self._read_equally_long(columns, rows, np.arange(len(rows)), MOST_NEW_LAYOUTS)
            return columns
        rows_of: dict[int, list[int]] = {}
        for row, length in enumerate(lengths):
            rows_of.setdefault(length, []).append(row)
        to_learn = MOST_NEW_LAYOUTS
        for indices in rows_of.values():
            to_learn = self._read_equally_long(columns, rows, np.array(indices), to_learn)
        return columns

    def _arrays(self, columns: Columns[SensorColumn]) -> Columns[Observation]:
        """Returns the columns, once all rows are read, with an array for every sensor."""
        if not self.may_be_compressed:
            return cast("Columns[Observation]", columns)
        wheres = [f"{self._where}, {sensor.name}" for sensor in self._sensors]
        return columns.with_arrays(to_arrays(columns.observations, wheres))

    def _read_equally_long(
        self, columns: Columns[SensorColumn], rows: Sequence[Row], indices: NDArray[np.intp], to_learn: int
    ) -> int:
        """Reads the rows at ``indices``, all of one length, into the columns.

        Tries to learn a layout from ``to_learn`` of them at most; returns from how many it still may.
        """
        layouts = self._layouts.get(len(rows[indices[0]]), ())
        for place, layout in enumerate(layouts):
            left = self._read_fitting(columns, rows, layout, indices)
            if place and len(left) < len(indices):
                self._move_to_front(layout)
            indices = left
            if not len(indices):
                return to_learn
        while len(indices):
            first = int(indices[0])
            row = bytes(rows[first])
            info = self._parse(first, row)
            learned = None
            if to_learn and not self._has_pictures(info):
                to_learn -= 1
                learned = self._learn_layout(row)
            if learned:
                indices = self._read_fitting(columns, rows, learned, indices)
            else:
                self._store_info(columns, first, info)
                indices = indices[1:]
        return to_learn

    def _read_fitting(
        self,
        columns: Columns[SensorColumn],
        rows: Sequence[Row],
        layout: RowLayout,
        indices: NDArray[np.intp],
    ) -> NDArray[np.intp]:
        """Reads the rows that have the layout, chunk by chunk. Returns the indices of the other rows."""
        most = max(1, PIECE_BYTES // layout.size)
        if len(indices) <= most:
            return self._read_piece(columns, rows, layout, indices)
        pieces = [indices[start : start + most] for start in range(0, len(indices), most)]
        return np.concatenate([self._read_piece(columns, rows, layout, piece) for piece in pieces])

    def _read_piece(
        self,
        columns: Columns[SensorColumn],
        rows: Sequence[Row],
        layout: RowLayout,
        indices: NDArray[np.intp],
    ) -> NDArray[np.intp]:
        """Reads those of a few rows that have the layout; returns the indices of the others."""
        alike = rows if len(indices) == len(rows) else [rows[index] for index in indices.tolist()]
        data = b"".join(alike)
        if layout.fits(data):
            self._store_table(columns, indices, layout.table(data))
            return indices[:0]
        fitting = layout.fitting(data)
        if not np.count_nonzero(fitting):
            return indices
        self._store_table(columns, indices[fitting], layout.table(data)[fitting])
        return indices[~fitting]

    def _has_pictures(self, info: AgentInfoProto) -> bool:
        """Whether a row that fits the spec holds PNG files."""
        return self.may_be_compressed and any(
            is_compressed(seen, len(sensor.spec.shape))
            for sensor, seen in zip(self._sensors, info.observations, strict=True)
        )

    def _learn_layout(self, row: bytes) -> RowLayout | None:
        """Returns and remembers the layout of a row that fits no known one; None where it has no usual one."""
        values = agent_info_values(row)
        if not values:
            return None
        if sum(map(len, self._layouts.values())) == MOST_LAYOUTS:
            self._layouts.clear()
        layout = RowLayout(row, values)
        self._move_to_front(layout)
        return layout

    def _move_to_front(self, layout: RowLayout) -> None:
        """Moves the layout to the front of the layouts of its length, and drops the last ones beyond the limit."""
        others = [other for other in self._layouts.get(layout.size, ()) if other is not layout]
        self._layouts[layout.size] = [layout, *others[: MOST_OF_A_LENGTH - 1]]

    def _parse(self, index: int, row: bytes) -> AgentInfoProto:
        """Parses a row into a message, and checks that its observations fit the spec."""
        try:
            info = AgentInfoProto.FromString(row)
        except DecodeError as error:
            raise WireError(
                f"{self._where}, row {index}: expected an AgentInfoProto, got {len(row)} other bytes"
            ) from error
        if len(info.observations) != len(self._sensors):
            raise WireError(
                f"{self._where}, agent {info.id}: "
                f"expected {len(self._sensors)} sensors, got {len(info.observations)}"
            )
        for sensor, observation in zip(self._sensors, info.observations, strict=True):
            sensor.require_fit(observation, f"{self._where}, agent {info.id}, {sensor.name}")
        return info

    def _store_table(
        self, columns: Columns[SensorColumn], where: NDArray[np.intp], table: NDArray[np.void]
    ) -> None:
        names = table.dtype.names or ()
        for sensor, target in enumerate(columns.observations):
            target[where] = table[observation_name(sensor)]
        # One by one: this runs for every message, and a loop takes 2 us longer.
        if ID in names:
            columns.agent_ids[where] = read_varints(table[ID])
        if REWARD in names:
            columns.rewards[where] = table[REWARD]
        if DONE in names:
            columns.done[where] = table[DONE]
        if MAX_STEP_REACHED in names:
            columns.interrupted[where] = table[MAX_STEP_REACHED]
        if GROUP_ID in names:
            columns.group_ids[where] = read_varints(table[GROUP_ID])
        if GROUP_REWARD in names:
            columns.group_rewards[where] = table[GROUP_REWARD]
        if ACTION_MASK in names:
            if table[ACTION_MASK].shape[1] == self._mask_size:
                columns.allowed[where] = table[ACTION_MASK] == 0
            else:
                self._log_wrong_mask(columns.agent_ids[where][0], table[ACTION_MASK].shape[1])

    def _store_info(self, columns: Columns[SensorColumn], index: int, info: AgentInfoProto) -> None:
        for name, column in _COLUMNS.items():
            getattr(columns, column)[index] = getattr(info, name)
        for sensor, target, seen in zip(self._sensors, columns.observations, info.observations, strict=True):
            sensor.store(target, index, seen, f"{self._where}, agent {info.id}, {sensor.name}")
        if len(info.action_mask) == self._mask_size:
            columns.allowed[index] = np.logical_not(info.action_mask)
        elif info.action_mask:
            self._log_wrong_mask(info.id, len(info.action_mask))

    def _log_wrong_mask(self, agent: int, size: int) -> None:
        """Logs that a mask of another length forbids nothing, as with ML-Agents."""
        _throttled.log(
            (self._where, ACTION_MASK),
            f"{self._where}, agent {agent}: expected an action mask of {self._mask_size} choices, got one of {size}; "
            "it forbids nothing",
        )

    def _sorted(self, columns: Columns[Observation]) -> Columns[Observation]:
        """Returns the rows, terminal ones first, at most one of each kind per agent."""
        done = columns.done
        ids = columns.agent_ids.tolist()
        ended = np.count_nonzero(done)
        is_sorted = np.count_nonzero(done[:ended]) == ended
        if is_sorted and len(set(ids[:ended])) == ended and len(set(ids[ended:])) == len(ids) - ended:
            return columns
        if len(set(ids)) < len(ids):
            return columns.take(self._resolve_repeated_agents(columns))
        return columns.take(np.argsort(~done, kind="stable"))

    def _resolve_repeated_agents(self, columns: Columns[Observation]) -> NDArray[np.intp]:
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

    def _batch(self, columns: Columns[Observation]) -> StepBatch:
        """Returns the batch of a message's rows, once values that cannot be used are replaced or refused."""
        self._filter(columns)
        columns = self._sorted(columns)
        terminated, truncated = columns.done & ~columns.interrupted, columns.done & columns.interrupted
        return self._as_batch(columns, terminated, truncated)

    def _filter(self, columns: Columns[Observation]) -> None:
        if self._refuse_unusable:
            self._unusable.refuse(columns)
        else:
            self.replaced = self._unusable.replace(columns)
        if not self.leaves_choices(columns.allowed):
            self._allow_where_none_is_left(columns)

    def leaves_choices(self, allowed: NDArray[np.bool_]) -> bool:
        """Whether action masks leave a choice to each row in each branch. allowed: [N, sum of branches]."""
        return bool(allowed.all() or self._spec.action_spec.choices_left(allowed).all())

    def _allow_where_none_is_left(self, columns: Columns[Observation]) -> None:
        """Allows everything to agents that are to act and have no choice in a branch, and logs the first of them."""
        actions = self._spec.action_spec
        allowed = columns.allowed | columns.done[:, np.newaxis]
        if found := actions.first_without_choice(allowed):
            row, text = found
            _throttled.log(
                (self._where, ACTION_MASK),
                f"{self._where}, agent {columns.agent_ids[row]}: action mask: {text}; every choice is allowed",
            )
            columns.allowed[~actions.choices_left(allowed).all(axis=1)] = True

    def _as_batch(
        self, columns: Columns[Observation], terminated: NDArray[np.bool_], truncated: NDArray[np.bool_]
    ) -> StepBatch:
        return StepBatch(
            agent_ids=columns.agent_ids,
            observations=self._shaped(columns),
            rewards=columns.rewards,
            terminated=terminated,
            truncated=truncated,
            allowed_actions=columns.allowed,
            group_ids=columns.group_ids,
            group_rewards=columns.group_rewards,
        )

    def _shaped(self, columns: Columns[Observation]) -> tuple[Observation, ...]:
        return tuple(
            values.reshape(sensor.batch_shape)
            for values, sensor in zip(columns.observations, self._sensors, strict=True)
        )


def _move_rewards(columns: Columns[Observation], *, source: int, target: int) -> None:
    for rewards in (columns.rewards, columns.group_rewards):
        rewards[target] += rewards[source]
        rewards[source] = 0.0
