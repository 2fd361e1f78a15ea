"""A simulator that uses every oddity that the protocol allows.

It puts its messages together byte by byte: fields in any order and some of them twice, numbers packed, unpacked or
in pieces, submessages in two halves, unknown fields. Nothing that may be left out is there. Its agents:

Plain          (no team in its id) a new id for each episode, negative or huge; three sensors without names or
               properties, one of rank 2; described again in each message, actions in the fields of old. Return 5.
Späher?team=7  described long before its first agent; ends right after asking, twice in one message, asks and ends in
               any order; a mask of the wrong length; a sensor of rank 3 that is no picture. Return −2.
Chor?team=0/1  two teams of one name, groups that change without a word, group rewards. Group return 3.
Wide?team=0    one message of more than 4 MiB, then one agent at a time. Return 1.
Seer?team=0    one camera without properties, now as a file, now as floats, now as both in one message. Return 0.5.

One more is described, and never has an agent. Between them come messages without agents. It ends
with code 5 if a reply is not what it asked for. ``--only Plain Seer`` leaves the other behaviors out.
"""

from __future__ import annotations

import io
import itertools
import random
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from uuid import UUID

import grpc
import numpy as np
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from unity_bridge.wire.unity_message_pb2 import UnityMessageProto

EXCHANGE = "/communicator_objects.UnityToExternalProto/Exchange"
OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_send_message_length", -1),
]
WIDTH = 4000
CROWD = 300
DICE = random.Random(1)


def varint(number: int) -> bytes:
    number &= 2**64 - 1  # negative ones take ten bytes
    digits = []
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    return bytes([*digits, number])


def whole(field: int, number: int) -> bytes:
    return varint(field << 3) + varint(number)


def real(field: int, number: float) -> bytes:
    return varint(field << 3 | 5) + struct.pack("<f", number)


def block(field: int, data: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(data)) + data


def unknown() -> bytes:
    """A field of a number that no version has, of any kind."""
    return DICE.choice([whole(777, 5), block(778, b"\xff\x00later versions"), real(779, float("nan"))])


def shuffled(parts: Iterable[bytes]) -> bytes:
    parts = list(parts)
    DICE.shuffle(parts)
    return b"".join(parts)


def reals(field: int, numbers: Sequence[float]) -> bytes:
    """Packed, unpacked, or packed in two pieces."""
    way = DICE.randrange(3)
    if way == 0:
        return b"".join(real(field, number) for number in numbers)
    cut = len(numbers) if way == 1 else len(numbers) // 2
    return b"".join(
        block(field, struct.pack(f"<{len(part)}f", *part)) for part in (numbers[:cut], numbers[cut:])
    )


def wholes(field: int, numbers: Sequence[int]) -> bytes:
    """Packed or unpacked."""
    if DICE.random() < 0.5:
        return b"".join(whole(field, number) for number in numbers)
    return block(field, b"".join(map(varint, numbers)))


def sensor(shape: Sequence[int], numbers: Sequence[float], properties: Sequence[int] = ()) -> bytes:
    cut = DICE.randrange(len(numbers) + 1)
    halves = [block(4, reals(1, numbers[:cut])), block(4, reals(1, numbers[cut:]))]
    others = [wholes(1, shape), unknown(), *([wholes(6, properties)] if properties else [])]
    return shuffled(others[:-1]) + halves[0] + others[-1] + halves[1]


def agent(number: int, sensors: Sequence[bytes], *, reward: float = 0.0, **more: object) -> bytes:
    """An AgentInfoProto; the last of two rewards counts, and the sensors' order does."""
    parts = [whole(10, number), unknown(), real(7, 99.0) + real(7, reward)]
    parts += [whole(field, 1) for name, field in (("done", 8), ("interrupted", 9)) if more.get(name)]
    if more.get("group"):
        parts += [whole(14, int(str(more["group"]))), real(15, float(str(more.get("group_reward", 0.0))))]
    if more.get("mask"):
        parts.append(block(11, bytes(3)))
    parts.append(b"".join(block(13, each) + unknown() for each in sensors))
    return shuffled(parts)


class Plain:
    name = "Plain"
    sizes = (1, 3)

    def __init__(self) -> None:
        self._ids = itertools.cycle([-1, 2**31 - 1, 0, -(2**31), 12345])
        self._walk = self._episodes()

    def description(self) -> bytes:
        # What old simulators fill, and an action_spec that says nothing.
        return shuffled([block(7, b"Plain"), wholes(3, [2, 4, 3]), whole(6, 0), block(9, b""), unknown()])

    def rows(self, message: int) -> list[tuple[bytes, bool]]:
        return next(self._walk)

    def fits(self, action) -> bool:
        branches = zip(action.discrete_actions, (2, 4, 3), strict=True)
        return not action.continuous_actions and all(0 <= choice < size for choice, size in branches)

    def _episodes(self) -> Iterator[list[tuple[bytes, bool]]]:
        ended: list[tuple[bytes, bool]] = []
        while True:
            number = next(self._ids)
            for step in range(5):
                earned = 0.0 if step == 0 else 1.0
                yield [*ended, (agent(number, self._eyes(), reward=earned), True)]
                ended = []
            ended = [(agent(number, self._eyes(), reward=1.0, done=True), False)]

    def _eyes(self) -> list[bytes]:
        return [
            sensor([1], [DICE.random()]),
            sensor([2, 2], [1, 0, 0, DICE.random()]),
            sensor([3], [0, 0, 0]),
        ]


class Scout:
    name = "Späher?team=7"

    def __init__(self) -> None:
        self._stage = 0

    def description(self) -> bytes:
        spec = shuffled([whole(1, 1), whole(2, 1), wholes(3, [3]), unknown()])
        return shuffled([block(7, self.name.encode()), block(9, b""), block(9, spec)])

    def rows(self, message: int) -> list[tuple[bytes, bool]]:
        if message < 8:
            return []
        self._stage += 1
        if self._stage == 1:
            return [self._row()]
        if self._stage % 3 == 0:  # asks, and ends before its action counts
            return [self._row(reward=-0.5), self._row(reward=-1.5, done=True)]
        if self._stage % 3 == 1:  # the episode that began with that question ends in the usual way
            return [self._row(reward=-2.0, done=True, interrupted=True), self._row()]
        return [self._row(reward=0.0)]

    def fits(self, action) -> bool:
        return len(action.continuous_actions) == 1 and len(action.discrete_actions) == 1

    def _row(self, **more: object) -> tuple[bytes, bool]:
        eyes = [sensor([1, 2, 1], [0.5, -0.5], [1, 1, 1])]
        return agent(300, eyes, mask=True, **more), not more.get("done")  # type: ignore[arg-type]


class Choir:
    """Each member earns nothing; its group gets 1 for each of three decisions."""

    def __init__(self, team: int) -> None:
        self.name = f"Chor?team={team}"
        self._step = 0
        self._group = 10 + team

    def description(self) -> bytes:
        return shuffled([block(7, self.name.encode()), block(9, whole(1, 2))])

    def rows(self, message: int) -> list[tuple[bytes, bool]]:
        ended = []
        if self._step == 3:
            ended = [self._row(number, 1.0, done=True) for number in (1, 2)]
            self._step = 0
            self._group += 2
        self._step += 1
        # A guest sings along for a while, and is never heard of again.
        guests = [1000 + message] if message % 5 == 0 else []
        return [*ended, *(self._row(number, float(self._step > 1)) for number in (1, 2, *guests))]

    def fits(self, action) -> bool:
        return len(action.continuous_actions) == 2 and not action.discrete_actions

    def _row(self, number: int, group_reward: float, **more: object) -> tuple[bytes, bool]:
        eyes = [sensor([2], [1.0, float(self._step)], [1]), sensor([1], [0.0], [1])]
        row = agent(number, eyes, group=self._group, group_reward=group_reward, **more)  # type: ignore[arg-type]
        return row, not more.get("done")


class Wide:
    name = "Wide?team=0"

    def description(self) -> bytes:
        return shuffled([block(7, self.name.encode()), block(9, wholes(3, [2]) + whole(2, 1))])

    def rows(self, message: int) -> list[tuple[bytes, bool]]:
        everybody = range(CROWD) if message in (3, 4) else [message % 2]
        rows = []
        for number in everybody:
            if message > 3:
                rows.append((self._row(number, reward=1.0, done=True), False))
            rows.append((self._row(number), True))
        return rows if message >= 3 else []

    def fits(self, action) -> bool:
        return list(action.discrete_actions) in ([0], [1])

    def _row(self, number: int, **more: object) -> bytes:
        packed = block(4, block(1, struct.pack(f"<{WIDTH}f", *([0.25] * WIDTH))))
        return agent(number, [wholes(1, [WIDTH]) + packed], **more)  # type: ignore[arg-type]


class Seer:
    name = "Seer?team=0"

    def description(self) -> bytes:
        return shuffled([block(7, self.name.encode()), block(9, whole(1, 1))])

    def rows(self, message: int) -> list[tuple[bytes, bool]]:
        rows = []
        for number in range(2):
            if message:
                rows.append((agent(number, [self._look(), sensor([1], [0.0])], reward=0.5, done=True), False))
            rows.append((agent(number, [self._look(), sensor([1], [1.0])]), True))
        return rows

    def fits(self, action) -> bool:
        return len(action.continuous_actions) == 1 and not action.discrete_actions

    def _look(self) -> bytes:
        """(3, 20, 21), all of one colour."""
        pixels = np.stack([np.full((20, 21), DICE.randrange(256), np.uint8) for _ in range(3)])
        if DICE.random() < 0.5:
            return sensor([3, 20, 21], (pixels / 255).ravel().tolist())
        file, notes = io.BytesIO(), PngInfo()
        notes.add_text("Comment", "made by nobody")
        Image.fromarray(pixels.transpose(1, 2, 0)).save(
            file, "PNG", pnginfo=notes, compress_level=DICE.randrange(10)
        )
        mapping = DICE.choice([[], [0, 1, 2]])
        return shuffled([wholes(1, [3, 20, 21]), whole(2, 1), block(3, file.getvalue()), wholes(5, mapping)])


class Odd:
    def __init__(self, port: str, only: Sequence[str]) -> None:
        self._exchange = grpc.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS).unary_unary(EXCHANGE)
        everybody = [Plain(), Scout(), Choir(0), Choir(1), Wide(), Seer()]
        self._behaviors = [each for each in everybody if not only or each.name.partition("?")[0] in only]
        self._described: set[str] = set()

    def play(self) -> None:
        self._say(block(2, shuffled([block(2, block(2, b"1.5.0")), unknown()])))
        self._say(b"")
        for message in itertools.count():
            if message % 7 == 6:
                self._say(DICE.choice([b"", block(2, b""), block(2, block(1, b"")), self._silence()]))
            self._say_rows(message)

    def _say_rows(self, message: int) -> None:
        descriptions, entries, asked = [block(2, block(5, block(7, b"Nobody?team=0")))], [], {}
        for behavior in self._behaviors:
            rows = behavior.rows(message)
            asked[behavior.name] = (behavior, sum(asks for _, asks in rows))
            is_new = behavior.name not in self._described and (rows or isinstance(behavior, Scout))
            if is_new or isinstance(behavior, Plain):
                self._described.add(behavior.name)
                descriptions.append(block(2, block(5, behavior.description())))
            listed = b"".join(unknown() + block(1, row) for row, _ in rows)
            if rows or DICE.random() < 0.5:
                entries.append(block(2, shuffled([block(1, behavior.name.encode()), block(2, listed)])))
        # rl_output in two halves around the descriptions, with a side channel that nobody knows.
        channel = UUID(int=5).bytes_le + struct.pack("<i", 3) + b"odd"
        half = len(entries) // 2
        output = [block(1, b"".join(entries[:half])), *descriptions, block(1, block(3, channel))]
        reply = self._say(block(2, b"".join([*output, block(1, b"".join(entries[half:])), unknown()])))
        self._check(reply, asked)

    def _silence(self) -> bytes:
        """Every behavior is there, and none has anything to say."""
        entries = [block(2, block(1, behavior.name.encode())) for behavior in self._behaviors]
        return block(2, block(1, b"".join(entries)))

    def _check(self, reply: UnityMessageProto, asked) -> None:
        given = reply.unity_input.rl_input.agent_actions
        for name, (behavior, count) in asked.items():
            actions = list(given[name].value) if name in given else []
            if len(actions) != count or not all(map(behavior.fits, actions)):
                print(f"{name}: asked for {count} actions, got {actions}"[:500], flush=True)
                sys.exit(5)

    def _say(self, body: bytes) -> UnityMessageProto:
        # The status twice: the last one counts.
        data = shuffled([block(1, whole(1, 400) + whole(1, 200)), body, unknown()])
        try:
            reply = UnityMessageProto.FromString(self._exchange(data, wait_for_ready=True))
        except grpc.RpcError as error:
            print(f"refused: {error.details()}", flush=True)
            sys.exit(4)
        if reply.header.status == 400:
            sys.exit(0)
        return reply


if __name__ == "__main__":
    words = sys.argv[1:]
    place = words.index("--mlagents-port")
    Odd(words[place + 1], words[1:place] if words[0] == "--only" else ()).play()
