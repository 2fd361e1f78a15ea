"""Simulator to trainer: what a scene's own expert would do, for opponents that play like it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from google.protobuf.message import DecodeError

from unity_bridge.codec.actions import decode_actions, encode_actions
from unity_bridge.errors import WireError
from unity_bridge.side_channels.framing import SideChannelRecord
from unity_bridge.specs import ActionSpec
from unity_bridge.steps import ActionBatch
from unity_bridge.wire.row_view_pb2 import RowViewRLInput

EXPERT = UUID("6f0b2c1e-3d1a-5c0e-9b57-2a8a35f6d0c4")
"""A channel of this project; Unity knows nothing of it."""


def expert_record(actions: Mapping[str, ActionBatch]) -> SideChannelRecord:
    """The expert's actions for every row that waits, by behavior id, as a message on the channel."""
    encoded = {behavior_id: encode_actions(batch) for behavior_id, batch in actions.items()}
    return SideChannelRecord(EXPERT, RowViewRLInput(agent_actions=encoded).SerializeToString())


def parse_expert(
    records: Iterable[SideChannelRecord], behavior_id: str, rows: int, spec: ActionSpec
) -> ActionBatch | None:
    """Returns the expert's actions for the waiting rows of a behavior, from a tick's messages; None if there are none.

    Raises:
        WireError: they cannot be read, or are fewer.
    """
    for record in records:
        if record.channel == EXPERT:
            try:
                given = RowViewRLInput.FromString(record.body).agent_actions
            except DecodeError as error:
                raise WireError(
                    f"the expert's actions: expected actions, got {len(record.body)} other bytes"
                ) from error
            if behavior_id in given:
                where = f"the expert's actions for behavior '{behavior_id}'"
                return decode_actions(given[behavior_id], rows, spec, where)
    return None
