"""Recordings as a stream of segments: the action for each observation, and the ends of episodes.

A simulator writes a row when an agent requests its next decision. The row holds the observation and the *previous*
action: the action for row t is in row t + 1, and the last action is in the row of the final state. In recordings of
Unity's first recorders, which did not repeat the head at the end, each row holds its observation and the action for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path

import numpy as np

from unity_bridge.codec.messages import BehaviorDescription, decode_behavior_spec
from unity_bridge.codec.sensor_reader import is_compressed
from unity_bridge.demonstrations.file_format import index_file, read_rows
from unity_bridge.demonstrations.records import DemonstratedSegment
from unity_bridge.demonstrations.rows import RecordedRows, RowReader, split_row
from unity_bridge.errors import DemonstrationError, WireError
from unity_bridge.specs import FloatOrder
from unity_bridge.wire.agent_info_pb2 import AgentInfoProto

SUFFIX = ".demo"

_LARGEST_BLOCK = 1 << 24
"""Most numbers in the observations of one segment, so that large pictures do not fill the memory."""


class DemonstrationFile:
    """One recording. It is looked through when it is opened, and read when its segments are asked for."""

    def __init__(self, path: Path, float_order: FloatOrder = "hwc") -> None:
        """Opens a recording.

        Args:
            path: of the file.
            float_order: of uncompressed pictures that are described as (channels, height, width). The file does not
                name the package that wrote it: 3.0.0 and 4.0.0 write ``hwc``, later ones ``chw``.

        Raises:
            DemonstrationError: the file cannot be read, is no recording, or ends too early.
        """
        self.path = path
        self._index = index_file(path)
        self.meta = self._index.meta
        self.is_shifted = self._index.has_copy or not self.meta.number_steps
        """Whether each row holds the previous action, as today's writers put it."""

        self._float_order = float_order
        first_row = self._first_row()
        description = self._describe(first_row, float_order)
        self.spec = description.spec
        self._layouts = description.layouts
        self.ambiguous_pictures = self._ambiguous_pictures(first_row)
        """Names of the sensors whose pictures ``float_order`` puts in order, because the file does not tell how they
        lie."""

    @property
    def behavior_name(self) -> str:
        """The behavior's name without the team."""
        return self._index.brain.brain_name.partition("?")[0]

    @property
    def num_rows(self) -> int:
        """Steps and final states together."""
        return self._index.rows

    def segments(self, longest: int = 1024) -> Iterator[DemonstratedSegment]:
        """Reads the recorded episodes in order, cut into segments of at most ``longest`` steps, or fewer if very large.

        Raises:
            DemonstrationError: a row is damaged or does not fit the recording's behavior. It names the rows.
        """
        if longest < 1:
            raise ValueError(f"longest: expected at least 1 step, got {longest}")
        numbers = sum(sensor.size for sensor in self.spec.observation_specs)
        longest = max(1, min(longest, _LARGEST_BLOCK // max(numbers, 1)))
        remaining: RecordedRows | None = None
        begun = False
        for rows in self._blocks(longest):
            joined = rows if remaining is None else remaining.followed_by(rows)
            bounds = _bounds(joined)
            for start, stop in pairwise(bounds[:-1]):
                yield from self._episode(joined.part(start, stop), longest, begun=begun)
                begun = False
            remaining = joined.part(bounds[-2], len(joined))
            while len(remaining) > longest + 1:
                yield self._segment(remaining.part(0, longest + 1), starts_episode=not begun)
                remaining, begun = remaining.part(longest, len(remaining)), True
        if remaining is not None:
            yield from self._episode(remaining, longest, begun=begun)

    def _episode(self, rows: RecordedRows, longest: int, *, begun: bool) -> Iterator[DemonstratedSegment]:
        """The segments of an episode of which all rows are there."""
        for start in range(0, len(rows) - 1, longest):
            segment = rows.part(start, start + longest + 1)
            yield self._segment(segment, starts_episode=not begun and not start)

    def _segment(self, rows: RecordedRows, *, starts_episode: bool) -> DemonstratedSegment:
        """T steps out of T + 1 rows."""
        steps = len(rows) - 1
        answers = slice(1, None) if self.is_shifted else slice(0, steps)
        if not rows.has_action[answers].all():
            raise DemonstrationError(f"'{self.path}': expected an action beside every step, a row holds none")
        ended, by_clock = bool(rows.done[-1]), bool(rows.interrupted[-1])
        return DemonstratedSegment(
            observations=tuple(values[:steps] for values in rows.observations),
            continuous_actions=rows.continuous[answers],
            discrete_actions=rows.discrete[answers],
            rewards=rows.rewards[1:],
            group_rewards=rows.group_rewards[1:],
            final_observations=tuple(values[steps:] for values in rows.observations),
            terminated=ended and not by_clock,
            truncated=ended and by_clock,
            starts_episode=starts_episode,
        )

    def _blocks(self, size: int) -> Iterator[RecordedRows]:
        """All rows, ``size`` at once."""
        reader = RowReader(self.behavior_name, self.spec, self._layouts)
        stream = read_rows(self.path, self._index)
        first = 0
        while block := list(islice(stream, size)):
            try:
                yield reader.read(block)
            except WireError as error:
                last = first + len(block) - 1
                raise DemonstrationError(f"'{self.path}', rows {first} to {last}: {error}") from error
            first += len(block)

    def _first_row(self) -> bytes:
        first = next(read_rows(self.path, self._index), None)
        if first is None:
            raise DemonstrationError(f"'{self.path}': expected recorded steps, got none")
        try:
            info, _ = split_row(first)
        except WireError as error:
            raise DemonstrationError(f"'{self.path}': {error}") from error
        return info

    def _describe(self, first_row: bytes, float_order: FloatOrder) -> BehaviorDescription:
        try:
            description = decode_behavior_spec(self._index.brain, first_row, picture_layout=float_order)
        except WireError as error:
            raise DemonstrationError(f"'{self.path}': {error}") from error
        if not (description.spec.action_spec.continuous_size or description.spec.action_spec.discrete_size):
            raise DemonstrationError(f"'{self.path}': expected a behavior that acts, got one without actions")
        return description

    def _ambiguous_pictures(self, first_row: bytes) -> tuple[str, ...]:
        other = self._describe(first_row, "chw" if self._float_order == "hwc" else "hwc")
        shown = AgentInfoProto.FromString(first_row).observations
        sensors = zip(self.spec.observation_specs, self._layouts, other.layouts, shown, strict=True)
        return tuple(
            spec.name
            for spec, layout, other_layout, observation in sensors
            if layout != other_layout and not is_compressed(observation, len(spec.shape))
        )


def open_demonstrations(path: Path, float_order: FloatOrder = "hwc") -> list[DemonstrationFile]:
    """A recording, or all of a folder in the order of their names. float_order: see ``DemonstrationFile``.

    Raises:
        DemonstrationError: there is none, or one cannot be read.
    """
    if path.is_dir():
        found = sorted(each for each in path.iterdir() if each.suffix == SUFFIX and each.is_file())
        if not found:
            raise DemonstrationError(f"'{path}': expected a folder with recordings ({SUFFIX}), it holds none")
        return [DemonstrationFile(each, float_order) for each in found]
    if not path.exists():
        raise DemonstrationError(
            f"'{path}' does not exist; expected a recording ({SUFFIX}) or a folder of them"
        )
    if path.suffix != SUFFIX:
        raise DemonstrationError(f"'{path}': expected a recording, whose name ends in {SUFFIX}")
    return [DemonstrationFile(path, float_order)]


def _bounds(rows: RecordedRows) -> list[int]:
    """The rows where episodes begin, and the number of rows. The last episode may continue behind it."""
    goes_on = ~rows.done[:-1] & (rows.agent_ids[:-1] == rows.agent_ids[1:])
    return [0, *(np.flatnonzero(~goes_on) + 1).tolist(), len(rows)]
