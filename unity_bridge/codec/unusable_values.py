"""Unusable values: replaced by 0 and counted, or refused where they do not stop."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from unity_bridge.codec.columns import Columns
from unity_bridge.errors import WireError
from unity_bridge.steps import Observation
from unity_bridge.throttled_logger import ThrottledLogger

LARGEST_REWARD = 1e10
"""Rewards and group rewards beyond ± this are replaced: what is learned from the others would be nothing beside it."""

LARGEST_OBSERVED = 1e15
"""Observed numbers beyond ± this are replaced: sums of their squares would come near to what a float holds."""

TOLERATED_SHARE = 0.01
"""Share of all values. A simulation that sends more for long has come apart, and must not be trained on zeros."""

MOST_IN_EXCESS = 100
"""Replaced values, beyond the tolerated share of all values, at which the bridge ends a conversation."""

MOST_ROWS_IN_A_ROW = 100
"""Rows of one agent, one after the other, of which more than the tolerated share was replaced, before that."""

_MOST_WATCHED = 1000
"""Most agents for which rows are counted."""

_throttled = ThrottledLogger(logging.getLogger(__name__))


class UnusableValues:
    """A filter of NaN, infinite and absurdly large values in the messages of one simulator about one behavior.

    A rare division by zero costs only that value: it becomes 0, and the log and the summaries report it. A diverged
    simulation costs its simulator. The filter refuses the message in two cases:

    - More than ``MOST_IN_EXCESS`` values were replaced beyond ``TOLERATED_SHARE`` of all received values. Messages
      below that share pay the excess off.
    - ``MOST_ROWS_IN_A_ROW`` successive rows of one agent each had more than that share replaced.
    """

    def __init__(self, where: str, sensors: Sequence[str]) -> None:
        """where: names the behavior in messages; sensors: name the observations."""
        self._where = where
        self._sensors = sensors
        self._total = 0
        self._excess = 0.0
        self._rows_in_a_row: dict[int, int] = {}
        """Number of successive rows with too much replaced, by agent."""

    def replace(self, columns: Columns[Observation]) -> int:
        """Replaces unusable values by 0. Returns their number.

        Raises:
            WireError: there were too many lately.
        """
        usable = _all_within(columns.rewards, LARGEST_REWARD)
        usable &= _all_within(columns.group_rewards, LARGEST_REWARD)
        for values in columns.observations:
            usable &= values.dtype == np.uint8 or _all_within(values, LARGEST_OBSERVED)
        if usable and not self.is_counting:
            return 0
        return self._replace(columns)

    @property
    def is_counting(self) -> bool:
        """Whether earlier replacements still count against the limit."""
        return bool(self._excess or self._rows_in_a_row)

    def refuse(self, columns: Columns[Observation]) -> None:
        """Raises WireError if anything is NaN or infinite, however few; what is finite may be as large as it is."""
        for name, values, largest in self._fields(columns):
            finite = np.isfinite(values)
            if not finite.all():
                raise WireError(self._description(columns, name, values, ~finite, largest))

    def _replace(self, columns: Columns[Observation]) -> int:
        in_row = np.zeros(len(columns.done), np.int64)
        size = 0
        worst = ""
        for name, values, largest in self._fields(columns):
            size += values.size
            unusable = _unusable(values, largest)
            count = np.count_nonzero(unusable)
            if not count:
                continue
            text = self._description(columns, name, values, unusable, largest)
            worst = worst or text
            others = f" ({count - 1} more in this message)" if count > 1 else ""
            _throttled.log((self._where, name), f"{text}: it was replaced by 0{others}")
            in_row += np.count_nonzero(unusable.reshape(len(in_row), -1), axis=1)
            values[unusable] = 0
        replaced = int(in_row.sum())
        self._total += replaced
        self._excess = max(0.0, self._excess + replaced - TOLERATED_SHARE * size)
        agent = self._agent_over_limit(columns, in_row > TOLERATED_SHARE * size / max(len(in_row), 1))
        if replaced and self._excess > MOST_IN_EXCESS:
            raise WireError(f"{worst}; {self._total} values could not be used: too many of all values")
        if agent is not None:
            raise WireError(
                f"{worst}; {self._total} values could not be used, some of them "
                f"in each of the last {MOST_ROWS_IN_A_ROW} rows of agent {agent}"
            )
        return replaced

    def _agent_over_limit(self, columns: Columns[Observation], has_excess: NDArray[np.bool_]) -> int | None:
        """Counts rows in a row, and returns an agent of which too many came, if there is one."""
        ids = set(columns.agent_ids[has_excess].tolist())
        before = self._rows_in_a_row
        absent = before.keys() - set(columns.agent_ids.tolist())
        counts = {agent: before[agent] for agent in absent} | {
            agent: before.get(agent, 0) + 1 for agent in ids
        }
        self._rows_in_a_row = counts if len(counts) <= _MOST_WATCHED else {}
        return next((agent for agent in ids if counts[agent] > MOST_ROWS_IN_A_ROW), None)

    def _fields(self, columns: Columns[Observation]) -> Iterator[tuple[str, Observation, float]]:
        """Yields the fields that may hold such values: name, values, and how large they may be. Bytes cannot."""
        yield "reward", columns.rewards, LARGEST_REWARD
        yield "group reward", columns.group_rewards, LARGEST_REWARD
        for name, values in zip(self._sensors, columns.observations, strict=True):
            if values.dtype != np.uint8:
                yield name, values, LARGEST_OBSERVED

    def _description(
        self,
        columns: Columns[Observation],
        name: str,
        values: Observation,
        unusable: NDArray[np.bool_],
        largest: float,
    ) -> str:
        """Describes the first unusable value: its place, the expected range and the value."""
        row, *place = map(int, np.unravel_index(unusable.argmax(), unusable.shape))
        at = f", float {', '.join(map(str, place))}" if place else ""
        got = values[(row, *place)]
        expected = f"a number within ±{largest:g}" if np.isfinite(got) else "a finite number"
        return f"{self._where}, agent {columns.agent_ids[row]}, {name}{at}: expected {expected}, got {got:g}"


def are_surely_usable(values: NDArray[np.float32]) -> bool:
    """Returns whether nothing among rewards and observed numbers is NaN or too large, most of the time.

    False says nothing: a few that are usable, but large, are enough for it.
    """
    return _all_within(values, min(LARGEST_REWARD, LARGEST_OBSERVED))


def _all_within(values: Observation, largest: float) -> bool:
    """Whether nothing lies beyond ± ``largest``, most of the time: False for NaN, and where many are nearly as large.

    The sum of squares is the cheapest thing to ask, less than whether all are finite.
    """
    return bool(np.vdot(values, values) <= largest * largest)


def _unusable(values: Observation, largest: float) -> NDArray[np.bool_]:
    """Returns which values are NaN, or lie beyond ± ``largest``."""
    unusable: NDArray[np.bool_] = ~(np.abs(values) <= largest)
    return unusable
