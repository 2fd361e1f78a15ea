"""The rows of a recording as arrays: each holds an observation of the demonstrator and an action."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from unity_bridge.codec.sensor_layout import SensorLayout
from unity_bridge.codec.step_decoder import StepDecoder
from unity_bridge.demonstrations.actions import ActionReader
from unity_bridge.errors import WireError
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import Observation, join_observations
from unity_bridge.wire.row_view_pb2 import RowViewPair


@dataclass(frozen=True, slots=True, eq=False)
class RecordedRows:
    """Consecutive rows of a file, N of them."""

    observations: tuple[Observation, ...]
    """Shapes [N, *sensor shape]."""

    agent_ids: NDArray[np.int64]

    rewards: NDArray[np.float32]
    """Rewards of the actions before the rows. Shape [N]."""

    group_rewards: NDArray[np.float32]
    done: NDArray[np.bool_]
    """The episode ended, and the row is its final state. Shape [N]."""

    interrupted: NDArray[np.bool_]
    """Whether the clock ended the episode. Means something where done. Shape [N]."""

    continuous: NDArray[np.float32]
    discrete: NDArray[np.int64]

    has_action: NDArray[np.bool_]
    """Which rows hold an action. Shape [N]."""

    def __len__(self) -> int:
        return len(self.rewards)

    def part(self, start: int, stop: int) -> RecordedRows:
        """Rows ``start`` to ``stop``, without copying them."""
        arrays = {field.name: getattr(self, field.name)[start:stop] for field in fields(self)[1:]}
        return RecordedRows(tuple(values[start:stop] for values in self.observations), **arrays)

    def followed_by(self, other: RecordedRows) -> RecordedRows:
        """These rows and the others behind them."""
        arrays = {
            field.name: np.concatenate([getattr(self, field.name), getattr(other, field.name)])
            for field in fields(self)[1:]
        }
        pairs = zip(self.observations, other.observations, strict=True)
        return RecordedRows(tuple(join_observations(pair) for pair in pairs), **arrays)


class RowReader:
    """Reads the rows of one recording, many at once."""

    def __init__(self, behavior: str, spec: BehaviorSpec, layouts: Sequence[SensorLayout]) -> None:
        self._infos = StepDecoder(behavior, spec, layouts)
        self._actions = ActionReader(spec.action_spec)

    def read(self, rows: Sequence[bytes]) -> RecordedRows:
        """Serialized AgentInfoActionPairProtos as arrays.

        Raises:
            WireError: a row cannot be parsed or does not fit the behavior.
        """
        pairs = [split_row(row) for row in rows]
        columns = self._infos.decode_in_order([info for info, _ in pairs])
        continuous, discrete, has_action = self._actions.read([action for _, action in pairs])
        return RecordedRows(
            observations=columns.observations,
            agent_ids=columns.agent_ids,
            rewards=columns.rewards,
            group_rewards=columns.group_rewards,
            done=columns.done,
            interrupted=columns.interrupted,
            continuous=continuous,
            discrete=discrete,
            has_action=has_action,
        )


def split_row(row: bytes) -> tuple[bytes, bytes]:
    """Splits a row into its observation and its action: a serialized AgentInfoProto and a serialized AgentActionProto.

    Raises:
        WireError: it is neither.
    """
    try:
        pair = RowViewPair.FromString(row)
    except DecodeError:
        raise WireError(f"expected an observation and an action, got {len(row)} other bytes") from None
    return pair.agent_info, pair.action_info
