"""Messages that repeat an earlier layout: the same agents in the same order, none of them at its end.

Almost every message of a run is one. Then all its bytes are known beforehand, but for those of the agents' rewards,
observations and masks: one comparison shows that the layout is repeated, and the values are copied out without looking
at rows one by one. Any other message is read the general way, which also learns the layouts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

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
from unity_bridge.codec.rows import LENGTH, Entry, RowLayout, entries
from unity_bridge.codec.step_decoder import StepDecoder
from unity_bridge.codec.unusable_values import are_surely_usable
from unity_bridge.steps import StepBatch

MOST_KNOWN = 8
"""Layouts that are remembered, of different lengths. A run has one, and one for each part of its agents that
asks for decisions at once."""

LONGEST = 1 << 20
"""Most bytes of a message that is remembered: beyond that, copying is what takes the time."""

LONGEST_PAUSE = 1024
"""Most messages that are not learned from after one that was learned in vain."""

MOST_RUNS = 8
"""Runs of rows of one layout in a message that is remembered. Zeros are left out, and larger ids are longer: a repeated
layout has one to three."""

_SAME = frozenset((ID, GROUP_ID, DONE, MAX_STEP_REACHED))
"""Values that do not change from one message of a layout to the next."""

_HEADER, _OUTPUT = (1, LENGTH), (2, LENGTH)
_RL_OUTPUT = (1, LENGTH)
_AGENT_INFOS = (2, LENGTH)
_KEY, _ROWS = (1, LENGTH), (2, LENGTH)
_ROW = (1, LENGTH)


class RepeatedLayouts:
    """The layouts of one conversation, learned from the messages that were read the general way."""

    def __init__(self) -> None:
        self._known: dict[int, _RepeatedLayout] = {}
        """By their lengths."""
        self._lengths: deque[int] = deque(maxlen=MOST_KNOWN)
        """Lengths of the last messages that repeated no layout; only a message of one of these is worth remembering."""
        self._pause = 1
        self._left = 0
        """Messages to let pass before the next one is learned."""

    def read(self, data: bytes) -> dict[str, StepBatch] | None:
        """Returns the batches of a message with a known layout, by full behavior id in order; None for any other."""
        usual = self._known.get(len(data))
        batches = None if usual is None else usual.read(data)
        if usual is not None and batches is not None and not usual.is_proven:
            usual.is_proven = True
            self._pause, self._left = 1, 0
        return batches

    def learn(
        self, data: bytes, batches: Mapping[str, StepBatch], decoders: Mapping[str, StepDecoder]
    ) -> None:
        """Remembers the layout of a message that may repeat from now on.

        Each layout that never repeats doubles the number of messages until the next attempt. So learning costs
        nothing with messages that are never alike.

        Args:
            data: the message.
            batches: the batches decoded from it.
            decoders: the decoders of these batches.
        """
        is_as_long = len(data) in self._lengths
        self._lengths.append(len(data))
        if self._left:
            self._left -= 1
            return
        if not is_as_long or len(data) > LONGEST:
            return
        if any(batch.num_terminal for batch in batches.values()):
            return
        if any(decoders[behavior].may_be_compressed for behavior in batches):
            return
        self._left = self._pause = min(2 * self._pause, LONGEST_PAUSE)
        try:
            usual = _RepeatedLayout(data, batches, decoders)
        except ValueError:
            return
        self._known.pop(len(data), None)
        if len(self._known) == MOST_KNOWN:
            of_no_use = (length for length, each in self._known.items() if not each.is_proven)
            del self._known[next(of_no_use, next(iter(self._known)))]
        self._known[len(data)] = usual


class _Run(NamedTuple):
    """Successive rows of one layout, and where they lie in the message."""

    rows: slice
    """Among the rows of the behavior."""

    start: int
    """Offset of the first row in the message, with its tag."""

    layout: RowLayout
    """The layout of one row with its tag and length. Only the values of the row change between messages."""

    @property
    def num_rows(self) -> int:
        return int(self.rows.stop - self.rows.start)

    @property
    def place(self) -> slice:
        """Bytes of the message."""
        return slice(self.start, self.start + self.num_rows * self.layout.size)


class _Rows(NamedTuple):
    """One behavior's rows in a layout."""

    behavior: str
    runs: Sequence[_Run]
    columns: Sequence[str]
    """Names of the sensors' columns."""
    example: StepBatch
    decoder: StepDecoder

    def read(self, data: bytes) -> StepBatch | None:
        """Returns the rows as a batch; None if values may have to be replaced."""
        example = self.example
        n = len(example)
        floats = np.zeros(n * (2 + sum(values[0].size for values in example.observations)), np.float32)
        rewards, group_rewards, end = floats[:n], floats[n : 2 * n], 2 * n
        columns = {REWARD: rewards, GROUP_REWARD: group_rewards}
        observations = []
        for name, values in zip(self.columns, example.observations, strict=True):
            start, end = end, end + values.size
            observations.append(floats[start:end].reshape(values.shape))
            columns[name] = floats[start:end].reshape(n, -1)
        allowed = np.ones(example.allowed_actions.shape, np.bool_)
        for run in self.runs:
            table = run.layout.table(data, run.start, run.num_rows)
            for name in run.layout.values:
                if name == ACTION_MASK:
                    allowed[run.rows] = table[name] == 0
                else:
                    columns[name][run.rows] = table[name]
        if self.decoder.counts_unusable or not are_surely_usable(floats):
            return None
        if not self.decoder.leaves_choices(allowed):
            return None
        return StepBatch(
            agent_ids=example.agent_ids.copy(),
            observations=tuple(observations),
            rewards=rewards,
            terminated=np.zeros(n, np.bool_),
            truncated=np.zeros(n, np.bool_),
            allowed_actions=allowed,
            group_ids=example.group_ids.copy(),
            group_rewards=group_rewards,
        )


def _columns(batch: StepBatch) -> tuple[str, ...]:
    return tuple(map(observation_name, range(len(batch.observations))))


class _RepeatedLayout:
    """All bits of a message but those of its agents' values, and where these lie."""

    def __init__(
        self, data: bytes, batches: Mapping[str, StepBatch], decoders: Mapping[str, StepDecoder]
    ) -> None:
        """Raises ValueError if the message is written in a way that no usual protobuf library writes it."""
        places = _places_of_rows(data)
        self._rows = [
            _Rows(behavior, _runs(data, places[behavior], batch), _columns(batch), batch, decoders[behavior])
            for behavior, batch in batches.items()
        ]
        self._fixed_bits = np.full(len(data), 0xFF, np.uint8)
        for run in (run for rows in self._rows for run in rows.runs):
            self._fixed_bits[run.place] = np.tile(run.layout.fixed_bits, run.num_rows)
        self._template = self._bits(data)
        self.is_proven = False
        """Whether a later message was one of these."""

    def read(self, data: bytes) -> dict[str, StepBatch] | None:
        """Returns the batches of a message of this length; None if it is another, or values may have to be replaced."""
        if self._bits(data) != self._template:
            return None
        batches = {}
        for rows in self._rows:
            batch = rows.read(data)
            if batch is None:
                return None
            batches[rows.behavior] = batch
        return batches

    def _bits(self, data: bytes) -> bytes:
        return (np.frombuffer(data, np.uint8) & self._fixed_bits).tobytes()


def _places_of_rows(data: bytes) -> dict[str, slice]:
    """Returns where each behavior's rows lie in a well-formed UnityMessageProto that holds nothing but agents.

    Raises:
        ValueError: it holds something else, or is written in an order in which no usual protobuf library writes it.
    """
    header, output = entries(data, 0, len(data))
    _require(header, _HEADER)
    _require(output, _OUTPUT)
    (rl_output,) = entries(data, output.start, output.stop)
    _require(rl_output, _RL_OUTPUT)
    places: dict[str, slice] = {}
    for infos in entries(data, rl_output.start, rl_output.stop):
        _require(infos, _AGENT_INFOS)
        key, rows = entries(data, infos.start, infos.stop)
        _require(key, _KEY)
        _require(rows, _ROWS)
        places[data[key.start : key.stop].decode()] = slice(rows.start, rows.stop)
    return places


def _runs(data: bytes, place: slice, batch: StepBatch) -> list[_Run]:
    """Returns the rows at a place of a message, from which a batch was read, in runs of one layout.

    Raises:
        ValueError: they are of too many layouts, or unusual in themselves.
    """
    runs: list[_Run] = []
    start, row = place.start, 0
    while start < place.stop:
        if len(runs) == MOST_RUNS:
            raise ValueError("rows of many layouts")
        first = next(entries(data, start, place.stop))
        _require(first, _ROW)
        example = data[start : first.stop]
        values = agent_info_values(example, first.start - start)
        if values is None:
            raise ValueError("an unusual row")
        mask = values.get(ACTION_MASK)
        if mask is not None and mask.stop - mask.start != batch.allowed_actions.shape[1]:
            raise ValueError("a mask of another length")
        count = _count_fitting(RowLayout(example, values), data[start : place.stop])
        changing = {name: value for name, value in values.items() if name not in _SAME}
        runs.append(_Run(slice(row, row + count), start, RowLayout(example, changing)))
        start, row = start + count * len(example), row + count
    if row != len(batch):
        raise ValueError("rows that were not read as they lie")
    return runs


def _count_fitting(layout: RowLayout, data: bytes) -> int:
    """Returns how many rows at the beginning of the data have the layout."""
    fitting = layout.fitting(data[: len(data) // layout.size * layout.size])
    return len(fitting) if fitting.all() else int(fitting.argmin())


def _require(entry: Entry, kind: tuple[int, int]) -> None:
    if (entry.number, entry.wire_type) != kind:
        raise ValueError(f"field {entry.number} of wire type {entry.wire_type}")
