"""Valid things, and what becomes of them when one place is changed: messages, bytes, zip archives.

Everything takes a ``random.Random``, so that hypothesis and a counted run draw from the same.
"""

from __future__ import annotations

import io
import random
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from unity_bridge.codec.pictures import encode_png
from unity_bridge.side_channels import STATS, SideChannelRecord, pack_records
from unity_bridge.simulators.conversation import introduction
from unity_bridge.wire.agent_info_pb2 import AgentInfoProto
from unity_bridge.wire.unity_message_pb2 import UnityMessageProto

INTEGERS = (0, 1, -1, 2, 7, 127, 128, 255, 1 << 15, 1 << 20, 2**31 - 1, -(2**31), 1 << 24)
FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-45, 1e10, -1e18, 1e30, 3.4e38, float("inf"), float("-inf"), float("nan"))
TEXTS = (
    "", "?", "?team=0", "3DBall", "3DBall?team=99999999999999999999", "3DBall?team=" + "9" * 4301, "3DBall?team=-1",
    "3DBall?team=2147483648", "3DBall?team=1&team=0", "../../esc/pwn", "/etc/passwd", "..", "CON", "a" * 5000,
    "\x1b[31mred\n[INFO] forged\r", "nul\0", "Späher", "\u202egnp.exe", "a\\b", "1.5.0", "2.0.0", "9" * 5000, "%s%n{0}",
)  # fmt: skip
"""What has broken some program somewhere."""

LONGEST_REFUSAL = 4000
"""Characters that an error may have, whatever it was about."""


def require_fit_to_print(text: str, longest: int = LONGEST_REFUSAL) -> None:
    """Fails where an error would hand a stranger's control characters, or very much of him, to a terminal."""
    assert len(text) <= longest, f"an error of {len(text)} characters: {text[:300]!r}"
    control = {character for character in text if character != "\n" and not character.isprintable()}
    assert not control, f"an error holds {control!r}: {text[:300]!r}"


def conversation(dice: random.Random, behavior: str, *, continuous: int = 2, size: int = 8) -> list[bytes]:
    """A simulator's messages from its introduction on: valid, and rarely twice the same."""
    return [message.SerializeToString() for message in _messages(dice, behavior, continuous, size)]


def _messages(dice: random.Random, behavior: str, continuous: int, size: int) -> Iterator[UnityMessageProto]:
    yield UnityMessageProto.FromString(introduction())
    yield _ok()
    agents, groups = dice.randint(1, 4), dice.random() < 0.3
    for step in range(dice.randint(1, 3)):
        message = _ok()
        if step == 0:
            parameters = message.unity_output.rl_initialization_output.brain_parameters.add(
                brain_name=behavior, is_training=True
            )
            parameters.action_spec.num_continuous_actions = continuous
        rows = message.unity_output.rl_output.agentInfos[behavior].value
        for agent in range(agents):
            rows.append(_row(dice, agent, size, group=1 if groups else 0))
        if step and dice.random() < 0.5:
            rows.append(_row(dice, 0, size, group=1 if groups else 0, done=True))
        if dice.random() < 0.3:
            message.unity_output.rl_output.side_channel = side_channel(dice)
        yield message


def _row(dice: random.Random, agent: int, size: int, **fields: Any) -> AgentInfoProto:
    done = fields.get("done", False)
    info = AgentInfoProto(
        id=agent, reward=dice.random(), done=done, max_step_reached=done and dice.random() < 0.5
    )
    info.group_id = fields["group"]
    info.group_reward = dice.random() if fields["group"] else 0.0
    seen = info.observations.add(shape=[size], dimension_properties=[1], name="body")
    seen.float_data.data.extend(dice.random() for _ in range(size))
    return info


def _ok() -> UnityMessageProto:
    message = UnityMessageProto()
    message.header.status = 200
    return message


def pictures(dice: random.Random, behavior: str) -> list[bytes]:
    """A conversation of an agent with a camera, that sends pictures as files, with a mask of three choices."""
    messages = [introduction(), _ok().SerializeToString()]
    channels = dice.choice([1, 3, 4, 6])
    for step in range(2):
        message = _ok()
        if step == 0:
            parameters = message.unity_output.rl_initialization_output.brain_parameters.add(
                brain_name=behavior
            )
            parameters.action_spec.num_discrete_actions = 1
            parameters.action_spec.discrete_branch_sizes.append(3)
        info = message.unity_output.rl_output.agentInfos[behavior].value.add(id=1)
        info.action_mask.extend([False, True, False])
        seen = info.observations.add(shape=[channels, 6, 5], dimension_properties=[1, 2, 2], name="camera")
        seen.compression_type = 1
        seen.compressed_data = encode_png(np.full((channels, 6, 5), dice.randrange(256), np.uint8))
        seen.compressed_channel_mapping.extend(
            [0, 0, 0] if channels == 1 else [*range(channels), *(-1,) * (-channels % 3)]
        )
        messages.append(message.SerializeToString())
    return messages


def side_channel(dice: random.Random) -> bytes:
    """A statistic, and a message on an unknown channel."""
    name = b"score"
    body = struct.pack("<i", len(name)) + name + struct.pack("<fi", dice.random(), dice.randrange(4))
    return pack_records([SideChannelRecord(STATS, body)])


def mutated_message(dice: random.Random, data: bytes) -> bytes:
    """The message with one to three fields changed, wherever they are, or with other bytes."""
    if dice.random() < 0.25:
        return mutated_bytes(dice, data)
    message = UnityMessageProto.FromString(data)
    for _ in range(dice.choice([1, 1, 1, 2, 3])):
        _mutate(dice, message)
    return message.SerializeToString()


def _mutate(dice: random.Random, message: Message) -> None:
    places = list(_places(message))
    holder, field = dice.choice(places)
    if field.is_repeated:
        _mutate_many(dice, holder, field)
    elif field.message_type is not None:
        dice.choice([holder.ClearField, lambda name: getattr(holder, name).SetInParent()])(field.name)
    else:
        _set(dice, holder, field)


def _places(message: Message) -> Iterator[tuple[Message, FieldDescriptor]]:
    """Every field of the message and of those inside it, said or not; those of rows again and again."""
    for field in message.DESCRIPTOR.fields:
        yield message, field
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            parts: Sequence[Any] = [value[key] for key in value]
        else:
            parts = value if field.is_repeated else [value]
        for part in parts:
            if isinstance(part, Message):
                yield from _places(part)


def _mutate_many(dice: random.Random, holder: Message, field: FieldDescriptor) -> None:
    values = getattr(holder, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        keys = list(values)
        if keys:
            key = dice.choice(keys)
            values[dice.choice(TEXTS).replace("\0", "0")].CopyFrom(values[key])
            if dice.random() < 0.7:
                del values[key]
        return
    way = dice.randrange(4)
    if way == 0 or not len(values):
        for _ in range(dice.choice([1, 1, 2, 50])):
            if field.message_type is not None:
                values.append(values[0]) if len(values) else values.add()
            else:
                _append(dice, values, field)
    elif way == 1:
        del values[dice.randrange(len(values)) :]
    elif way == 2 and field.message_type is None:
        del values[:]
        _append(dice, values, field)
    else:
        holder.ClearField(field.name)


def _append(dice: random.Random, values: Any, field: FieldDescriptor) -> None:
    values.append(_scalar(dice, field))


def _set(dice: random.Random, holder: Message, field: FieldDescriptor) -> None:
    setattr(holder, field.name, _scalar(dice, field))


def _scalar(dice: random.Random, field: FieldDescriptor) -> Any:
    kind = field.cpp_type
    if kind in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
        return dice.choice(FLOATS)
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return dice.random() < 0.5
    if kind == FieldDescriptor.CPPTYPE_STRING:
        if field.type == FieldDescriptor.TYPE_BYTES:
            return mutated_bytes(dice, side_channel(dice))
        return dice.choice(TEXTS)
    number = dice.choice(INTEGERS)
    unsigned = kind in (FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64)
    return number % 2**32 if unsigned else number


def mutated_bytes(dice: random.Random, data: bytes) -> bytes:
    """The bytes cut, flipped, doubled, or with others between them."""
    changed = bytearray(data)
    for _ in range(dice.choice([1, 1, 2, 5])):
        place = dice.randrange(len(changed) + 1)
        way = dice.randrange(6)
        if way == 0 and changed:
            changed[place % len(changed)] ^= 1 << dice.randrange(8)
        elif way == 1:
            del changed[place:]
        elif way == 2:
            changed[place:place] = dice.randbytes(dice.choice([1, 2, 8, 100]))
        elif way == 3:
            del changed[place : place + dice.choice([1, 4, 30])]
        elif way == 4:
            changed[place:place] = changed[place : place + dice.choice([1, 10, 200])]
        else:  # a length that lies
            changed[place : place + 4] = struct.pack("<i", dice.choice(INTEGERS))
    return bytes(changed)


def mutated_png(dice: random.Random, data: bytes) -> bytes:
    """A PNG file with other chunks (their checksums are right), or with a header of other sizes."""
    chunks = list(_chunks(data))
    way = dice.randrange(5)
    if way == 0:
        return mutated_bytes(dice, data)
    place = dice.randrange(len(chunks))
    kind, content = chunks[place]
    if way == 1:
        chunks[0] = (
            b"IHDR",
            struct.pack(">II", *(dice.choice(INTEGERS) % 2**32 for _ in range(2))) + chunks[0][1][8:],
        )
    elif way == 2:
        chunks[place] = (kind, mutated_bytes(dice, content))
    elif way == 3:
        text = zlib.compress(bytes(1 << 20), 9)
        chunks.insert(
            place, (dice.choice([b"zTXt", b"iCCP", b"IHDR", b"PLTE", b"tRNS", b"IDAT"]), b"a\0\0" + text)
        )
    else:
        chunks[place : place + 1] = [chunks[place]] * dice.choice([0, 2, 100])
    return data[:8] + b"".join(png_chunk(kind, content) for kind, content in chunks)


def png_chunk(kind: bytes, content: bytes) -> bytes:
    """A part of a PNG file, with the right length and checksum."""
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    start = 8
    while start < len(data):
        (length,) = struct.unpack_from(">I", data, start)
        yield data[start + 4 : start + 8], data[start + 8 : start + 8 + length]
        start += length + 12


def mutated_archive(
    dice: random.Random, data: bytes, mutate: Callable[[random.Random, bytes], bytes] = mutated_bytes
) -> bytes:
    """A zip archive with one of its files changed, renamed, left out or twice there; its checksums are right."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        files = [(info.filename, archive.read(info)) for info in archive.infolist()]
    place = next((i for i, (name, _) in enumerate(files) if name.endswith("data.pkl")), 0)
    if dice.random() < 0.4:
        place = dice.randrange(len(files))
    name, content = files[place]
    way = dice.randrange(8)
    if way == 0:
        del files[place]
    elif way == 1:
        files[place] = (dice.choice(["../../esc", "/abs", "", "x" * 300, name + "~"]), content)
    elif way == 2:
        files.append((f"{name}.more", content))
    else:
        files[place] = (name, mutate(dice, content))
    out = io.BytesIO()
    method = zipfile.ZIP_DEFLATED if dice.random() < 0.2 else zipfile.ZIP_STORED
    with zipfile.ZipFile(out, "w", method) as archive:
        for each, body in files:
            archive.writestr(each or "empty", body)
    return out.getvalue()
