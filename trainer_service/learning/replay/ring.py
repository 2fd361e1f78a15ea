"""Ring buffer: columns of arrays in which the newest rows overwrite the oldest."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer_service.learning.replay.lent_rows import Loan
from unity_bridge.arrays import Rows
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import Observation, as_floats

Arrays = dict[str, NDArray[Any]]

FIRST_ROWS = 1024
"""Rows allocated at the start."""
FIRST_SEGMENTS = 64
"""Trajectories allocated at the start."""


class Ring:
    """The last ``capacity`` rows, with the final observations of their trajectories.

    Memory is allocated as rows arrive, up to the capacity. Rows are stored in the order of their arrival. So the next
    observation is usually the observation of the following row; only the final observation of each trajectory is
    stored separately, in ``finals``. ``steps`` must have a column ``segment``, and ``finals`` a column ``terminated``.
    A subclass defines the oldest trajectory that a row needs.
    """

    def __init__(self, capacity: int, steps: Arrays, finals: Arrays) -> None:
        """steps, finals: empty columns of the right shapes and types."""
        self.capacity = capacity
        self._size = 0
        self._head = 0
        """The next row to write."""
        self._segments = 0
        """Number of trajectories added so far, which is the number of the next one."""
        self._steps = steps
        self._finals = finals
        self._written = {"steps": 0, "finals": 0}
        """Numbers of steps and finals written since the ring was created or loaded."""
        self._loans: dict[str, weakref.ref[Loan]] = {}
        """The last result of ``state`` for each column, as long as it is referenced."""

    def __len__(self) -> int:
        """Number of rows that can be sampled."""
        return self._size

    @property
    def oldest(self) -> int:
        """The oldest row."""
        return self._head if self._size == self.capacity else 0

    @property
    def bytes(self) -> int:
        """Memory of the arrays, in bytes."""
        return sum(column.nbytes for columns in (self._steps, self._finals) for column in columns.values())

    def state(self) -> Arrays:
        """The whole buffer, as views if possible. Write it to a file; do not keep it.

        Columns of rows are ``LentRows``. Their loan gives the present values even after new rows overwrite them.
        """
        slots = self._final_capacity
        ends = self._lent("finals", self._finals, min(self._segments, slots), self._segments % slots, slots)
        counters = np.array([self.capacity, self._head, self._segments], np.int64)
        return {
            **self._lent("steps", self._steps, self._size, self._head, self.capacity),
            **ends,
            "counters": counters,
            "final_slots": np.array(slots, np.int64),
        }

    def _lent(self, kind: str, columns: Arrays, size: int, head: int, capacity: int) -> Arrays:
        loan = Loan(kind, columns, size, head=head, capacity=capacity, written=self._written[kind])
        self._loans[kind] = weakref.ref(loan)
        return loan.rows()

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> Rows:
        """Restores a state. From a buffer of another capacity, the newest rows are kept.

        Returns the saved row numbers of the kept rows. Raises KeyError or ValueError if the state does not fit.
        """
        capacity, head, segments = (int(counter) for counter in state["counters"])
        kept = np.arange(len(state["steps.segment"]))
        if len(kept) > capacity or not 0 <= head < capacity:
            raise ValueError(f"{len(kept)} rows, the next at {head}, in a buffer of {capacity}")
        if capacity != self.capacity:
            # From oldest to newest, since the ring closes at another row.
            kept = np.roll(kept, -head)[-self.capacity :]
            head = len(kept) % self.capacity
        self._size = self._head = 0
        self._written = {"steps": 0 if capacity == self.capacity else self.capacity, "finals": 0}
        self._reserve(len(kept))
        for name in self._steps:
            write(self._steps, {name: state[f"steps.{name}"][kept]}, np.arange(len(kept)), blank=True)
        self._size, self._head = len(kept), head
        finals = {name: state[f"finals.{name}"] for name in self._finals}
        self._load_finals(finals, segments, int(state["final_slots"]))
        return kept

    def _load_finals(self, finals: Arrays, segments: int, slots: int) -> None:
        """Loads finals from ``slots`` slots."""
        count = len(finals["terminated"])
        if count != min(segments, slots) or not 0 < slots <= max(FIRST_SEGMENTS, 2 * count):
            raise ValueError(f"the ends of {segments} trajectories, in {slots} slots, are {count}")
        self._segments = segments
        if segments - self._first_segment > slots:
            raise ValueError(
                f"rows are of trajectories since {self._first_segment}, whose ends are not there"
            )
        columns = self._finals.items()
        self._finals = {name: np.zeros((slots, *column.shape[1:]), column.dtype) for name, column in columns}
        write(self._finals, finals, np.arange(count), blank=True)

    def _append(self, steps: Arrays, finals: Arrays) -> Rows:
        """Appends rows and the finals of their trajectories. Returns the rows, at most ``capacity``."""
        count = len(steps["segment"])
        if count > self.capacity:
            steps = {name: column[count - self.capacity :] for name, column in steps.items()}
            count = self.capacity
        self._reserve(count)
        rows = (self._head + np.arange(count)) % self.capacity
        self._overwrite("steps", self._steps, steps, rows, blank=not self._size)
        self._size = min(self.capacity, self._size + count)
        self._head = (self._head + count) % self.capacity
        self._add_finals(finals)
        return rows

    def _overwrite(self, kind: str, columns: Arrays, values: Arrays, rows: Rows, *, blank: bool) -> None:
        """Writes values into rows, see ``write``. Loans of these rows keep the old values."""
        self._written[kind] += len(rows)
        put = partial(write, columns, values, rows, blank=blank)
        loan = self._loans[kind]() if kind in self._loans else None
        put() if loan is None else loan.overwrite(rows, put)

    @property
    def _first_segment(self) -> int:
        """Number of the oldest trajectory with a row in the ring."""
        if not self._size:
            return self._segments
        return self._segment_of(self.oldest)

    def _segment_of(self, row: int) -> int:
        """Number of the oldest trajectory that this row, or a later one, needs."""
        return int(self._steps["segment"][row])

    @property
    def _final_capacity(self) -> int:
        return len(self._finals["terminated"])

    def _add_finals(self, finals: Arrays) -> None:
        """Writes finals in the slots of overwritten trajectories, or in new ones."""
        count = len(finals["terminated"])
        live = np.arange(min(self._first_segment, self._segments), self._segments)
        if len(live) + count > self._final_capacity:
            slots = max(2 * self._final_capacity, len(live) + count)
            self._written["finals"] += slots  # finals move to other slots
            for name, column in self._finals.items():
                grown = np.zeros((slots, *column.shape[1:]), column.dtype)
                grown[live % slots] = column[live % len(column)]
                self._finals[name] = grown
        slots_of = (self._segments + np.arange(count)) % self._final_capacity
        self._overwrite("finals", self._finals, finals, slots_of, blank=not len(live))
        self._segments += count

    def _reserve(self, count: int) -> None:
        """Allocates memory for more rows, up to ``capacity``."""
        rows = len(self._steps["segment"])
        needed = min(self._head + count, self.capacity)
        if needed <= rows:
            return
        rows = min(self.capacity, max(needed, 2 * rows))
        for name, column in self._steps.items():
            grown = np.empty((rows, *column.shape[1:]), column.dtype)
            grown[: self._size] = column[: self._size]
            self._steps[name] = grown


def write(columns: Arrays, values: Arrays, rows: Rows, *, blank: bool) -> None:
    """Writes values into rows. Byte pictures stay bytes until floats arrive. blank: whether the columns are empty."""
    for name, value in values.items():
        column = columns[name]
        if np.uint8 not in (value.dtype, column.dtype) or value.dtype == column.dtype:
            column[rows] = value
        elif blank:
            columns[name] = np.zeros(column.shape, value.dtype)
            columns[name][rows] = value
        else:
            columns[name] = as_floats(column)
            columns[name][rows] = as_floats(value)


def observation_arrays(observations: tuple[Observation, ...]) -> Arrays:
    """Returns each sensor's observations, by column name."""
    return {f"observations.{index}": sensor for index, sensor in enumerate(observations)}


def observation_columns(spec: BehaviorSpec, *rows: int) -> Arrays:
    """Returns empty columns for every sensor, [*rows, *sensor shape]."""
    return {
        f"observations.{index}": np.empty((*rows, *sensor.shape), np.float32)
        for index, sensor in enumerate(spec.observation_specs)
    }
