"""The messages by which a simulator introduced itself, kept for a trainer that does not know it."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from unity_bridge.codec.rows import LENGTH, entries
from unity_bridge.wire.brain_parameters_pb2 import BrainParametersProto
from unity_bridge.wire.unity_message_pb2 import UnityMessageProto
from unity_bridge.wire.unity_output_pb2 import UnityOutputProto
from unity_bridge.wire.unity_rl_initialization_output_pb2 import UnityRLInitializationOutputProto

_OUTPUT = UnityMessageProto.DESCRIPTOR.fields_by_name["unity_output"].number
_STEPS = UnityOutputProto.DESCRIPTOR.fields_by_name["rl_output"].number
_INITIALIZATION = UnityOutputProto.DESCRIPTOR.fields_by_name["rl_initialization_output"].number


class Handshake:
    """The introduction, the confirmation and the behaviors of one simulator.

    A simulator sends each of them once. Agents and their values are not read.
    """

    def __init__(self) -> None:
        self._introduction: bytes | None = None
        self._confirmation: bytes | None = None
        self._behaviors: dict[str, BrainParametersProto] = {}

    def note(self, data: bytes) -> None:
        """Keeps what a message of the simulator says about itself and its behaviors."""
        initialization, has_steps = _initialization(data)
        if initialization is not None and initialization.communication_version and not has_steps:
            self._introduction, self._confirmation, self._behaviors = data, None, {}
            return
        if self._confirmation is None:
            self._confirmation = data
        if initialization is not None:
            self._behaviors.update({each.brain_name: each for each in initialization.brain_parameters})

    def messages(self) -> list[bytes]:
        """Returns the messages that introduce the simulator again: as many as it has sent, two at most.

        The second one carries all behaviors. The reply to it is RESET, which a simulator takes in place of actions.
        """
        if self._introduction is None:
            return []
        if self._confirmation is None:
            return [self._introduction]
        described = UnityMessageProto()
        described.unity_output.rl_initialization_output.brain_parameters.extend(self._behaviors.values())
        # Protobuf merges messages that lie one behind the other.
        return [
            self._introduction,
            self._confirmation + (described.SerializeToString() if self._behaviors else b""),
        ]


def _initialization(data: bytes) -> tuple[UnityRLInitializationOutputProto | None, bool]:
    """Returns what a message says about its simulator, and whether it has steps."""
    found: UnityRLInitializationOutputProto | None = None
    has_steps = False
    try:
        for output in entries(data, 0, len(data)):
            if output.number != _OUTPUT or output.wire_type != LENGTH:
                continue
            for field in entries(data, output.start, output.stop):
                has_steps = has_steps or field.number == _STEPS
                if field.number == _INITIALIZATION:
                    found = found or UnityRLInitializationOutputProto()
                    found.MergeFromString(data[field.start : field.stop])
    except (ValueError, IndexError, DecodeError):
        return None, False
    return found, has_steps
