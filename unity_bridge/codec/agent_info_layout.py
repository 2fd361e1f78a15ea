"""The places of the values in a serialized AgentInfoProto."""

from __future__ import annotations

from unity_bridge.codec.rows import FIXED32, LENGTH, VARINT, Entry, Value, entries

REWARD, DONE, MAX_STEP_REACHED, ID = "reward", "done", "max_step_reached", "id"
ACTION_MASK, GROUP_ID, GROUP_REWARD = "action_mask", "group_id", "group_reward"
"""Names of the values in a layout; a value that the example leaves out has none."""

_SCALARS = {
    (7, FIXED32): REWARD,
    (8, VARINT): DONE,
    (9, VARINT): MAX_STEP_REACHED,
    (10, VARINT): ID,
    (11, LENGTH): ACTION_MASK,
    (14, VARINT): GROUP_ID,
    (15, FIXED32): GROUP_REWARD,
}
_OBSERVATION = (13, LENGTH)
_KNOWN = {13, *(number for number, _ in _SCALARS)}
_FLOAT_DATA = 4
_PACKED_DATA = (1, LENGTH)


def observation_name(sensor: int) -> str:
    """Returns the name of a sensor's floats in a layout."""
    return f"observation_{sensor}"


def agent_info_values(data: bytes, start: int = 0) -> dict[str, Value] | None:
    """Returns the values in ``data``, which from ``start`` on is a well-formed AgentInfoProto.

    A field that the protocol does not know, as later versions may add, is none. None where the message is written in a
    way that no usual protobuf library writes it, though parsers must accept it: a field twice, a list unpacked.
    """
    values: dict[str, Value] = {}
    sensors = 0
    try:
        for entry in entries(data, start, len(data)):
            kind = (entry.number, entry.wire_type)
            if entry.number not in _KNOWN:
                continue
            if kind == _OBSERVATION:
                name, value = observation_name(sensors), _observed(data, entry)
                sensors += 1
            else:
                name, value = _SCALARS[kind], _scalar(entry)
            if name in values:
                return None
            values[name] = value
    except (KeyError, ValueError):
        return None
    return values


def _scalar(entry: Entry) -> Value:
    if entry.wire_type == FIXED32:
        return Value.float(entry.start)
    if entry.wire_type == LENGTH:
        return Value.bits(entry.start, entry.stop)
    if entry.number not in (8, 9):
        return Value.number(entry.start, entry.stop)
    if entry.stop - entry.start > 1:
        raise ValueError("a boolean of several bytes")
    return Value.bit(entry.start)


def _observed(data: bytes, observation: Entry) -> Value:
    """Returns the floats of one ObservationProto; everything else in it is layout."""
    (floats,) = (e for e in entries(data, observation.start, observation.stop) if e.number == _FLOAT_DATA)
    (packed,) = entries(data, floats.start, floats.stop)
    if (packed.number, packed.wire_type) != _PACKED_DATA:
        raise ValueError("floats that are not one packed list")
    return Value.floats(packed.start, packed.stop)
