"""The conversation by hand: bytes in, bytes out, no channel."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import numpy as np
import pytest

from unity_bridge.codec.protocol import LARGEST_HANDSHAKE
from unity_bridge.errors import WireError
from unity_bridge.server import session as session_module
from unity_bridge.server.connections import Connections
from unity_bridge.server.origins import Attached
from unity_bridge.server.session import (
    HEAVY_MESSAGE,
    MOST_BEHAVIORS,
    STOP_MESSAGE,
    Awaited,
    Reply,
    Restarted,
    Session,
    Step,
    Stopped,
)
from unity_bridge.server.settings import BridgeSettings
from unity_bridge.side_channels import (
    EngineConfiguration,
    SideChannelRecord,
    engine_records,
    pack_records,
    unpack_records,
)
from unity_bridge.specs import ActionSpec
from unity_bridge.steps import ActionBatch
from unity_bridge.wire.command_pb2 import RESET, STEP
from unity_bridge.wire.row_view_pb2 import RowViewMessage
from unity_bridge.wire.unity_message_pb2 import UnityMessageProto

BALL = "Ball?team=0"
RECORDS = [
    SideChannelRecord(UUID("00112233-4455-6677-8899-aabbccddeeff"), b"\x00\xff"),
    SideChannelRecord(UUID("621f0a70-4f87-11ea-a6bf-784f4387d1f7"), b""),
]


@pytest.fixture
def session() -> Session:
    return Session(seed=7, num_areas=3)


def receive(session: Session, message: UnityMessageProto) -> Any:
    return session.receive(message.SerializeToString())


def answer(session: Session, message: UnityMessageProto) -> UnityMessageProto:
    reply = receive(session, message)
    assert isinstance(reply, Reply)
    return UnityMessageProto.FromString(reply.data)


def step(session: Session, message: UnityMessageProto) -> Step:
    outcome = receive(session, message)
    assert isinstance(outcome, Step)
    return outcome


def shake_hands(session: Session, messages: Any) -> None:
    answer(session, messages.introduction())
    answer(session, messages.confirmation())


def actions(*rows: tuple[float, float]) -> ActionBatch:
    return ActionBatch(np.array(rows, np.float32).reshape(-1, 2), np.zeros((len(rows), 0), np.int32))


def heavier(message: UnityMessageProto, size: int) -> bytes:
    """A message of at least this size: with a field that nobody knows."""
    return message.SerializeToString() + b"\x92\x03" + _varint(size) + bytes(size)  # field 50


def _varint(number: int) -> bytes:
    return bytes([number & 127]) if number < 128 else bytes([number & 127 | 128]) + _varint(number >> 7)


def test_a_heavy_message_weighs_no_more_than_its_agents_can(session: Session, messages: Any) -> None:
    shake_hands(session, messages)
    assert isinstance(session.receive(heavier(messages.first_step(), HEAVY_MESSAGE - 1000)), Step)
    session.reply({BALL: actions((0, 0))})
    with pytest.raises(WireError, match=r"expected at most \d+ bytes of agents with these sensors, got \d+"):
        session.receive(heavier(messages.step(), HEAVY_MESSAGE + 1000))
    assert session.awaited is Awaited.NOTHING


def test_many_agents_and_large_sensors_may_be_heavy(
    session: Session, messages: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agents that come and behaviors that are born later, too: whatever they declare counts."""
    monkeypatch.setattr(session_module, "HEAVY_MESSAGE", 0)
    shake_hands(session, messages)
    step(session, messages.first_step([(1, 2, 3)]))
    session.reply({BALL: actions((0, 0))})
    step(session, messages.step([(1, 2, 3)] * 1000))
    session.reply({BALL: actions(*[(0, 0)] * 1000)})
    born = messages.describe(messages.step([(0.1,) * 20_000] * 50, behavior="Eye"), behavior="Eye")
    assert set(step(session, born).new_specs) == {"Eye"}


def test_the_introduction_is_answered_with_seed_versions_capabilities_and_areas(
    session: Session, messages: Any
) -> None:
    reply = answer(session, messages.introduction())
    assert reply.header.status == 200
    initialization = reply.unity_input.rl_initialization_input
    assert (initialization.seed, initialization.num_areas) == (7, 3)
    assert initialization.communication_version == "1.5.0"
    assert initialization.package_version == "1.1.0"
    capabilities = initialization.capabilities
    assert [field.name for field, value in capabilities.ListFields() if value] == [
        field.name for field in capabilities.DESCRIPTOR.fields
    ]
    assert not reply.unity_input.HasField("rl_input")


@pytest.mark.parametrize(
    ("package", "ours"),
    [
        ("1.0.8", "0.20.0"),
        ("1.9.1-preview", "0.20.0"),
        ("2.0.1", "1.1.0"),
        ("10.0.0", "1.1.0"),
        ("", "1.1.0"),
    ],
)
def test_unity_packages_get_a_version_they_accept(
    session: Session, messages: Any, package: str, ours: str
) -> None:
    reply = answer(session, messages.introduction(version="1.0.0", package=package))
    assert reply.unity_input.rl_initialization_input.package_version == ours


def test_the_confirmation_is_answered_with_reset_and_the_side_channels(messages: Any) -> None:
    records = engine_records(EngineConfiguration())
    session = Session(seed=0, num_areas=1, greeting=lambda: records)
    answer(session, messages.introduction())
    reply = answer(session, messages.confirmation())
    assert reply.header.status == 200
    assert reply.unity_input.rl_input.command == RESET
    assert reply.unity_input.rl_input.side_channel == pack_records(records)


def test_a_step_gets_its_actions_in_row_order(session: Session, messages: Any) -> None:
    shake_hands(session, messages)
    first = step(session, messages.first_step([(1, 2, 3), (4, 5, 6)]))
    assert first.batches[BALL].observations[0].tolist() == [[1, 2, 3], [4, 5, 6]]
    reply = UnityMessageProto.FromString(session.reply({BALL: actions((0.5, -0.5), (1, 0))}))
    assert reply.header.status == 200
    assert reply.unity_input.rl_input.command == STEP
    rows = reply.unity_input.rl_input.agent_actions[BALL].value
    assert [list(row.continuous_actions) for row in rows] == [[0.5, -0.5], [1.0, 0.0]]


def test_behaviors_may_appear_later_and_come_in_alphabetical_order(session: Session, messages: Any) -> None:
    shake_hands(session, messages)
    step(session, messages.first_step())
    session.reply({})
    late = messages.describe(messages.step(behavior="Ant?team=1"), behavior="Ant?team=1", branches=(3, 2))
    late.MergeFrom(messages.step())
    outcome = step(session, late)
    assert list(outcome.batches) == ["Ant?team=1", BALL]
    assert outcome.new_specs["Ant?team=1"].action_spec == ActionSpec(2, (3, 2))


def test_no_actions_still_make_a_complete_answer(session: Session, messages: Any) -> None:
    shake_hands(session, messages)
    step(session, messages.first_step(done=True))
    reply = UnityMessageProto.FromString(session.reply({BALL: actions()}))
    assert reply.unity_input.HasField("rl_input")
    assert not reply.unity_input.rl_input.agent_actions


def test_actions_for_agents_that_did_not_ask_are_our_mistake(session: Session, messages: Any) -> None:
    shake_hands(session, messages)
    step(session, messages.first_step())
    with pytest.raises(ValueError, match=r"2 actions for 1 agents of 'Ball\?team=0'"):
        session.reply({BALL: actions((0, 0), (0, 0))})


def test_a_description_without_agents_is_kept_for_the_first_agent(session: Session, messages: Any) -> None:
    answer(session, messages.introduction())
    answer(session, messages.describe(messages.confirmation()))
    assert BALL in step(session, messages.step()).new_specs


@pytest.mark.parametrize(
    ("version", "complaint"),
    [
        ("2.0.0", r"this trainer speaks 1\.5\.0, the simulator speaks 2\.0\.0"),
        ("0.15.0", r"this trainer speaks 1\.5\.0, the simulator speaks 0\.15\.0"),
        ("latest", r"expected a version like 1\.5\.0, got 'latest'"),
        ("1", r"expected a version like 1\.5\.0, got '1'"),
        ("1" * 5000 + ".0", r"expected a version like 1\.5\.0, got '111"),
    ],
)
def test_other_versions_are_refused_naming_both(
    session: Session, messages: Any, version: str, complaint: str
) -> None:
    with pytest.raises(WireError, match=complaint):
        receive(session, messages.introduction(version))


@pytest.mark.parametrize("version", ["1.0.0", "1.5", "1.99.0a1"])
def test_versions_of_the_same_major_are_accepted(session: Session, messages: Any, version: str) -> None:
    answer(session, messages.introduction(version))
    assert session.communication_version == version


@pytest.mark.parametrize("heard", [0, 1])
def test_a_handshake_that_is_too_long_is_not_even_read(session: Session, messages: Any, heard: int) -> None:
    message = [messages.introduction(), messages.confirmation()][heard]
    for before in [messages.introduction()][:heard]:
        receive(session, before)
    message.unity_output.rl_output.side_channel = bytes(LARGEST_HANDSHAKE)
    with pytest.raises(
        WireError, match=rf"handshake.*: expected at most {LARGEST_HANDSHAKE} bytes, got 4194"
    ):
        receive(session, message)


def test_the_handshake_may_come_without_a_status(session: Session, messages: Any) -> None:
    introduction = messages.introduction()
    introduction.ClearField("header")
    answer(session, introduction)
    assert answer(session, UnityMessageProto()).unity_input.rl_input.command == RESET


def test_a_step_without_a_status_is_refused(session: Session, messages: Any) -> None:
    shake_hands(session, messages)
    with pytest.raises(WireError, match=r"header\.status: expected 200 or 400, got 0"):
        session.receive(b"")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\xff\xff\xff", "expected a UnityMessageProto, got 3 bytes"),
        (b"GET / HTTP/1.1\r\n\r\n", "expected a UnityMessageProto, got 18 bytes"),
        (b"\x0a\x03\x08\xc8\x01", "first message: expected an introduction"),
    ],
)
def test_a_first_message_that_is_no_introduction_is_refused(session: Session, data: bytes, why: str) -> None:
    with pytest.raises(WireError, match=why):
        session.receive(data)


@pytest.mark.parametrize("heard", [0, 1, 2])
def test_any_other_status_is_refused_at_any_time(session: Session, messages: Any, heard: int) -> None:
    conversation = (messages.introduction(), messages.confirmation(), messages.first_step())
    for message in conversation[:heard]:
        receive(session, message)
    wrong = conversation[heard]
    wrong.header.status = 500
    with pytest.raises(WireError, match=r"header\.status: expected 200 or 400, got 500"):
        receive(session, wrong)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"continuous": 3}, r"its actions changed from .*continuous_size=2.* to .*continuous_size=3"),
        (
            {"branches": (4,)},
            r"its actions changed from .*discrete_branches=\(\).* to .*discrete_branches=\(4,\)",
        ),
    ],
)
def test_a_behavior_whose_actions_change_is_refused(
    session: Session, messages: Any, change: dict[str, Any], complaint: str
) -> None:
    shake_hands(session, messages)
    step(session, messages.first_step())
    session.reply({})
    with pytest.raises(WireError, match=r"behavior 'Ball\?team=0': " + complaint):
        receive(session, messages.describe(messages.step(), **change))


def test_a_behavior_whose_sensor_changes_is_refused(session: Session, messages: Any) -> None:
    shake_hands(session, messages)
    step(session, messages.first_step([(1, 2, 3)]))
    session.reply({})
    with pytest.raises(WireError, match=r"a sensor changed from .*shape=\(3,\).* to .*shape=\(4,\)"):
        receive(session, messages.first_step([(1, 2, 3, 4)]))


def test_side_channel_messages_come_with_the_step_in_order(session: Session, messages: Any) -> None:
    shake_hands(session, messages)
    assert step(session, messages.first_step()).messages == ()
    session.reply({})
    message = messages.step()
    said = [*RECORDS, RECORDS[0]]
    message.unity_output.rl_output.side_channel = pack_records(said)
    outcome = step(session, message)
    assert list(outcome.batches) == [BALL]
    assert outcome.messages == tuple(said)


def test_a_step_may_be_answered_with_reset(session: Session, messages: Any) -> None:
    shake_hands(session, messages)
    step(session, messages.first_step())
    rl_input = UnityMessageProto.FromString(session.reset(RECORDS)).unity_input.rl_input
    assert (rl_input.command, dict(rl_input.agent_actions)) == (RESET, {})
    assert unpack_records(rl_input.side_channel) == RECORDS
    again = step(session, messages.step([(7, 8, 9)]))
    assert again.batches[BALL].observations[0].tolist() == [[7, 8, 9]]
    reply = UnityMessageProto.FromString(session.reply({BALL: actions((1, 1))}))
    assert reply.unity_input.rl_input.command == STEP


def test_status_400_is_a_goodbye_at_any_time(session: Session, messages: Any) -> None:
    shake_hands(session, messages)
    assert isinstance(receive(session, messages.goodbye()), Stopped)
    assert session.awaited is Awaited.NOTHING


def test_after_an_error_everything_is_answered_with_stop(session: Session, messages: Any) -> None:
    with pytest.raises(WireError):
        session.receive(b"")
    for data in (messages.step().SerializeToString(), messages.goodbye().SerializeToString(), b"", b"\xff"):
        assert session.receive(data) == Reply(STOP_MESSAGE)
    assert UnityMessageProto.FromString(STOP_MESSAGE).header.status == 400


def test_after_an_error_a_simulator_may_begin_anew(session: Session, messages: Any) -> None:
    with pytest.raises(WireError):
        session.receive(b"")
    assert isinstance(receive(session, messages.introduction()), Restarted)


def test_another_introduction_belongs_to_another_conversation(session: Session, messages: Any) -> None:
    shake_hands(session, messages)
    step(session, messages.first_step())
    assert isinstance(receive(session, messages.introduction()), Restarted)
    assert session.awaited is Awaited.NOTHING


def test_a_repeated_version_beside_agents_is_no_introduction(session: Session, messages: Any) -> None:
    shake_hands(session, messages)
    message = messages.first_step()
    message.unity_output.rl_initialization_output.communication_version = "1.5.0"
    assert list(step(session, message).new_specs) == [BALL]
    session.reply({})
    assert list(step(session, message).batches) == [BALL]


def test_a_stated_picture_layout_wins_over_the_package_version(messages: Any) -> None:
    """A package from git that calls itself 4.0.0 and writes what it declares."""
    picture = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    for picture_layout, sent in (("chw", picture), ("auto", picture.transpose(1, 2, 0))):
        settings = BridgeSettings(seed=0, picture_layout=picture_layout)
        session = Connections(settings).open(0, Attached("somebody")).session
        answer(session, messages.introduction(package="4.0.0"))
        answer(session, messages.confirmation())
        message = messages.first_step()
        camera = (
            message.unity_output.rl_output.agentInfos[BALL]
            .value[0]
            .observations.add(shape=(3, 4, 5), dimension_properties=[1, 2, 2])
        )
        camera.float_data.data.extend(sent.ravel().tolist())
        np.testing.assert_array_equal(step(session, message).batches[BALL].observations[1], picture[None])


def test_a_simulator_may_describe_so_many_behaviors_and_no_more(session: Session, messages: Any) -> None:
    """Descriptions with agents or without, sent once or again."""
    shake_hands(session, messages)
    for n in range(MOST_BEHAVIORS // 2):
        step(session, messages.describe(messages.step(behavior=f"B{n}"), behavior=f"B{n}"))
    message = messages.step(behavior="B0")
    for n in range(MOST_BEHAVIORS):
        messages.describe(message, behavior=f"B{n}")
    step(session, message)
    with pytest.raises(
        WireError, match=f"expected at most {MOST_BEHAVIORS} behaviors, got {MOST_BEHAVIORS + 1}"
    ):
        step(session, messages.describe(messages.step(behavior="B0"), behavior="one more"))


@pytest.mark.parametrize(("said", "areas"), [(0, 3), (12, 12), (-4, 3)])
def test_a_simulator_has_as_many_copies_as_it_says_or_was_asked_for(
    session: Session, messages: Any, said: int, areas: int
) -> None:
    introduction = RowViewMessage.FromString(messages.introduction().SerializeToString())
    introduction.unity_output.num_areas = said
    reply = answer(session, introduction)  # type: ignore[arg-type]
    assert reply.unity_input.rl_initialization_input.num_areas == 3
    assert session.num_areas == areas
