"""What a relay keeps of a simulator's messages for the next trainer."""

from __future__ import annotations

from typing import Any

from unity_bridge.relay.handshake import Handshake
from unity_bridge.server.session import Reply, Session, Step
from unity_bridge.wire.unity_message_pb2 import UnityMessageProto


def noted(*messages: UnityMessageProto) -> Handshake:
    handshake = Handshake()
    for message in messages:
        handshake.note(message.SerializeToString())
    return handshake


def test_the_messages_introduce_the_simulator_with_all_behaviors_to_a_new_session(messages: Any) -> None:
    other = messages.describe(messages.step(behavior="Cube"), behavior="Cube", continuous=0, branches=[3])
    handshake = noted(messages.introduction(), messages.confirmation(), messages.first_step(), other)
    session = Session(seed=1, num_areas=1)
    for message in handshake.messages():
        assert isinstance(session.receive(message), Reply)
    step = session.receive(messages.step(((1.0, 2.0, 3.0),)).SerializeToString())
    assert isinstance(step, Step)
    assert step.new_specs["Ball?team=0"].action_spec.continuous_size == 2
    session.reply({})
    step = session.receive(messages.step(behavior="Cube").SerializeToString())
    assert isinstance(step, Step)
    assert step.new_specs["Cube"].action_spec.discrete_branches == (3,)


def test_a_handshake_is_repeated_as_far_as_it_went(messages: Any) -> None:
    introduction, confirmation = messages.introduction(), messages.confirmation()
    assert noted().messages() == []
    assert noted(introduction).messages() == [introduction.SerializeToString()]
    sent = [introduction.SerializeToString(), confirmation.SerializeToString()]
    assert noted(introduction, confirmation).messages() == sent


def test_another_introduction_replaces_everything(messages: Any) -> None:
    earlier = [messages.introduction(), messages.confirmation(), messages.first_step()]
    again = messages.introduction(package="4.0.0")
    assert noted(*earlier, again).messages() == [again.SerializeToString()]


def test_a_version_beside_agents_is_no_introduction(messages: Any) -> None:
    step = messages.first_step()
    step.unity_output.rl_initialization_output.communication_version = "1.5.0"
    introduction, described = noted(messages.introduction(), messages.confirmation(), step).messages()
    assert introduction == messages.introduction().SerializeToString()
    kept = UnityMessageProto.FromString(described).unity_output.rl_initialization_output
    assert [each.brain_name for each in kept.brain_parameters] == ["Ball?team=0"]
    assert not kept.communication_version


def test_bytes_that_are_no_message_change_nothing(messages: Any) -> None:
    handshake = noted(messages.introduction(), messages.confirmation())
    before = handshake.messages()
    for data in (b"\x12", b"\x12\xff", b"\x12\x02\x12\x07", b"\x0b", b"\xff" * 11):
        handshake.note(data)
    assert handshake.messages() == before
