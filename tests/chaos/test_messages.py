"""Messages that break the protocol, or keep to it and mean harm, while a run trains."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import grpc
import pytest
from fault_counts import fault_counts
from mutations import (
    conversation,
    mutated_message,
    pictures,
    require_fit_to_print,
)
from raw_clients import RawClient, Refused, first_refusal

from unity_bridge.wire.unity_message_pb2 import UnityMessageProto

MIB = 1 << 20
LONGEST_WAIT_S = 10.0
"""The healthy simulator's for one answer: a bound against a standstill, not a measure of speed."""
LONGEST_LINE = 4000
BEHAVIOR = "3DBall?team=0"


def hostile_conversation(dice: random.Random) -> list[bytes]:
    messages = (pictures if dice.random() < 0.2 else conversation)(
        dice, dice.choice([BEHAVIOR, BEHAVIOR, "3DBall?team=1", "Other"])
    )
    if dice.random() < 0.1:
        return [dice.randbytes(dice.randrange(200)) for _ in range(3)]
    place = dice.randrange(len(messages))
    messages[place] = mutated_message(dice, messages[place])
    if dice.random() < 0.1:
        dice.shuffle(messages)
    return messages


@fault_counts(200, 10_000)
def test_changed_messages(arena, note, count: int) -> None:
    dice = random.Random(count)
    answers: Counter[str] = Counter()
    for messages in [hostile_conversation(dice) for _ in range(min(count, 200))]:
        first_refusal(arena.port, messages)  # whatever is loaded at the first picture, the first refusal …
    spoke, output, memory = 0, len(arena.trainer.output), arena.trainer.memory()
    began = time.monotonic()
    while spoke < count:
        messages = hostile_conversation(dice)
        with RawClient(arena.port) as caller:
            for message in messages:
                spoke += 1
                try:
                    caller.say(message)
                except Refused as refused:
                    answers[refused.code.name] += 1
                    require_fit_to_print(str(refused))
                    break
    lasted = time.monotonic() - began
    arena.witness.go_on()
    waited, grown = arena.witness.longest_wait(began), (arena.trainer.memory() - memory) / MIB
    log = arena.trainer.output[output:]
    note(
        "messages with one place changed",
        f"{spoke} in {lasted:.0f} s",
        f"{sum(answers.values())} refused ({', '.join(f'{n} {name}' for name, n in sorted(answers.items()))}); "
        f"{log.count('Traceback')} tracebacks; the healthy one waited {waited:.2f} s at most; {grown:+.0f} MB",
    )
    arena.require_peace()
    require_clean(log)
    assert set(answers) <= {"INVALID_ARGUMENT"}
    assert "Traceback" not in log
    assert waited < LONGEST_WAIT_S
    assert grown < 50 + count / 1000


def require_clean(log: str) -> None:
    """Asserts that the log is fit to print: no endless line, no control character."""
    for line in log.splitlines():
        require_fit_to_print(line.replace("\t", " "), LONGEST_LINE)


def handshake() -> list[bytes]:
    return conversation(random.Random(1), BEHAVIOR)[:2]


def first_step(behavior: str = BEHAVIOR) -> UnityMessageProto:
    return UnityMessageProto.FromString(conversation(random.Random(2), behavior)[2])


def as_behavior(name: str) -> Callable[[], Iterable[bytes]]:
    return lambda: [*handshake(), first_step(name).SerializeToString()]


def many_branches() -> Iterator[bytes]:
    yield from handshake()
    message = first_step()
    (parameters,) = message.unity_output.rl_initialization_output.brain_parameters
    parameters.action_spec.discrete_branch_sizes.extend([1] * 1_000_000)
    yield message.SerializeToString()


def forged_introduction() -> Iterator[bytes]:
    message = UnityMessageProto.FromString(handshake()[0])
    message.unity_output.rl_initialization_output.package_version = "\x1b[31mPWN\n[INFO] forged line"
    yield message.SerializeToString()
    yield handshake()[1]


HOSTILE: dict[str, Callable[[], Iterable[bytes]]] = {
    "a behavior's name of 5 MB": as_behavior("b" * 5 * MIB),
    "a name that is a path": as_behavior("../../esc/pwn"),
    "a version with escape codes": forged_introduction,
    "a million branches": many_branches,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_message(arena, note, name: str) -> None:
    output, memory, began = len(arena.trainer.output), arena.trainer.memory(), time.monotonic()
    heard = first_refusal(arena.port, HOSTILE[name]())
    arena.witness.go_on()
    waited, grown = arena.witness.longest_wait(began), (arena.trainer.memory() - memory) / MIB
    log = arena.trainer.output[output:]
    answer = "understood" if heard is None else "refused in words"
    note(
        name,
        "1",
        f"{answer}; the healthy one waited {waited:.2f} s at most; {grown:+.0f} MB; {len(log)} bytes of log",
    )
    arena.require_peace()
    if heard is not None:
        assert heard.code is grpc.StatusCode.INVALID_ARGUMENT
        require_fit_to_print(str(heard))
    require_clean(log)
    assert "forged line" not in [line.strip() for line in log.replace("[INFO]", "\n").splitlines()]
    assert "Traceback" not in log
    assert len(log) < 200_000
    assert waited < LONGEST_WAIT_S
    assert grown < 250
