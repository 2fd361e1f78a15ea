"""Whatever a simulator says: it is understood, or refused in a few printable words, and nothing else happens."""

from __future__ import annotations

import random

import numpy as np
from fuzzing import DICE, MIB, examples, peak_memory
from hypothesis import given
from hypothesis import strategies as st
from mutations import (
    conversation,
    mutated_bytes,
    mutated_message,
    mutated_png,
    pictures,
    require_fit_to_print,
)

from unity_bridge.errors import WireError
from unity_bridge.server.session import Session, Step
from unity_bridge.steps import ActionBatch
from unity_bridge.wire.unity_message_pb2 import UnityMessageProto

BEHAVIOR = "3DBall?team=0"


def hear_all(messages: list[bytes]) -> str:
    """Lets a session hear messages until it refuses one. Returns the refusal; empty if all were understood."""
    session = Session(seed=0, num_areas=1)
    for message in messages:
        try:
            heard = session.receive(message)
        except WireError as error:
            require_fit_to_print(str(error))
            return str(error)
        if isinstance(heard, Step):
            session.reply({name: idle(heard, session, name) for name in heard.batches})
    return ""


def idle(heard: Step, session: Session, name: str) -> ActionBatch:
    batch = heard.batches[name]
    actions = session._specs[name].action_spec
    waiting = len(batch) - batch.num_terminal
    # As many as asked; their width is the trainer's business.
    width = min(actions.continuous_size, 10), min(actions.discrete_size, 10)
    return ActionBatch(np.zeros((waiting, width[0]), np.float32), np.zeros((waiting, width[1]), np.int32))


@examples(1)
@given(DICE)
def test_conversations_that_nobody_touched_are_understood(dice: random.Random) -> None:
    for _ in range(200):
        assert not hear_all(conversation(dice, BEHAVIOR))
        assert not hear_all(pictures(dice, BEHAVIOR))


@examples(1000)
@given(DICE)
def test_a_conversation_with_one_message_changed(dice: random.Random) -> None:
    messages = (pictures if dice.random() < 0.3 else conversation)(dice, BEHAVIOR)
    place = dice.randrange(len(messages))
    messages[place] = mutated_message(dice, messages[place])
    hear_all(messages)


@examples(300)
@given(DICE)
def test_a_conversation_with_its_messages_in_another_order(dice: random.Random) -> None:
    messages = conversation(dice, BEHAVIOR) + pictures(dice, dice.choice([BEHAVIOR, "Other"]))
    dice.shuffle(messages)
    hear_all(messages)


@examples(300)
@given(st.lists(st.binary(max_size=200), min_size=1, max_size=4))
def test_bytes_that_are_no_conversation(messages: list[bytes]) -> None:
    hear_all(messages)


@examples(300)
@given(DICE)
def test_a_picture_whose_file_was_changed(dice: random.Random) -> None:
    messages = pictures(dice, BEHAVIOR)
    place = dice.choice([2, 3])
    message = UnityMessageProto.FromString(messages[place])
    (seen,) = message.unity_output.rl_output.agentInfos[BEHAVIOR].value[0].observations
    seen.compressed_data = mutated_png(dice, seen.compressed_data)
    if dice.random() < 0.3:
        seen.compressed_channel_mapping[:] = [dice.randint(-2, 7) for _ in range(dice.choice([1, 3, 6, 600]))]
    messages[place] = message.SerializeToString()
    hear_all(messages)


def test_what_was_heard_takes_no_memory() -> None:
    dice = random.Random(3)
    messages = [mutated_bytes(dice, message) for _ in range(50) for message in conversation(dice, BEHAVIOR)]
    for message in messages:
        hear_all([message])
    before = peak_memory()
    for _ in range(10):
        for message in messages:
            hear_all([message])
    assert peak_memory() - before < 16 * MIB
