"""Channels as users write them, on the published package's own classes."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any
from uuid import UUID

import pytest

from unity_bridge import mlagents_alias
from unity_bridge.side_channels import (
    FLOAT_PROPERTIES,
    FloatProperty,
    SideChannelRecord,
    parse_property,
    property_record,
)
from unity_bridge.side_channels.channel_hub import ChannelHub

mlagents_alias.install()  # before anything of the published package

from mlagents_envs.side_channel import IncomingMessage, OutgoingMessage, SideChannel  # noqa: E402
from mlagents_envs.side_channel.float_properties_channel import FloatPropertiesChannel  # noqa: E402

CHAT = UUID("621f0a70-4f87-11ea-a6bf-784f4387d1f7")
RAW = UUID("00112233-4455-6677-8899-aabbccddeeff")


class Chat(SideChannel):  # type: ignore[misc]  # the package has no types
    """Answers what it hears."""

    def __init__(self) -> None:
        super().__init__(CHAT)
        self.received: list[str] = []

    def on_message_received(self, msg: IncomingMessage) -> None:
        self.received.append(msg.read_string())
        self.say(f"{self.received[-1]} to you")

    def say(self, text: str) -> None:
        message = OutgoingMessage()
        message.write_string(text)
        self.queue_message_to_send(message)


@dataclass
class Plain:
    """A channel that owes nothing to the package."""

    channel_id: UUID = RAW
    message_queue: list[bytes] = field(default_factory=list)

    def on_message_received(self, msg: Any) -> None:
        raise RuntimeError(f"no idea what {bytes(msg.get_raw_bytes())!r} means")


def text_record(text: str) -> SideChannelRecord:
    message = OutgoingMessage()
    message.write_string(text)
    return SideChannelRecord(CHAT, bytes(message.buffer))


def test_earlier_properties_reach_every_later_simulator() -> None:
    channel = FloatPropertiesChannel()
    channel.set_property("gravity", -9.5)
    hub = ChannelHub([channel])
    for simulator in (0, 1, 0):
        (record,) = hub.greeting(simulator)
        assert record.channel == FLOAT_PROPERTIES
        assert parse_property(record.body) == FloatProperty("gravity", -9.5)
        assert hub.outgoing(simulator) == []


def test_later_messages_reach_present_simulators_once() -> None:
    channel = FloatPropertiesChannel()
    hub = ChannelHub([channel])
    assert (hub.greeting(0), hub.greeting(1)) == ([], [])
    channel.set_property("gravity", -1.0)
    assert hub.greeting(2) == []
    assert [len(hub.outgoing(simulator)) for simulator in (0, 1, 2)] == [1, 1, 0]
    assert [len(hub.outgoing(simulator)) for simulator in (0, 1, 2)] == [0, 0, 0]


def test_channels_get_their_messages_and_may_answer() -> None:
    chat, properties = Chat(), FloatPropertiesChannel()
    hub = ChannelHub([chat, properties])
    hub.greeting(0)
    assert hub.deliver(0, text_record("peace"))
    assert hub.deliver(0, property_record(FloatProperty("size", 3.0)))
    assert chat.received == ["peace"]
    assert properties.get_property("size") == 3.0
    assert hub.outgoing(0) == [text_record("peace to you")]


def test_a_channel_that_raises_is_logged_and_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    chat = Chat()
    hub = ChannelHub([Plain(), chat])
    hub.greeting(3)
    with caplog.at_level(logging.ERROR):
        assert hub.deliver(3, SideChannelRecord(RAW, b"this"))
    assert f"Side channel {RAW} failed on a message of simulator 3." in caplog.text
    assert "RuntimeError: no idea what b'this' means" in caplog.text
    assert hub.deliver(3, text_record("peace"))
    assert chat.received == ["peace"]


@pytest.mark.parametrize("give", [ChannelHub, lambda channels: ChannelHub(lambda _: channels).greeting(0)])
def test_two_channels_with_one_id_are_refused(give: Callable[[Any], object]) -> None:
    with pytest.raises(ValueError, match=f"two side channels have the id {CHAT}"):
        give([Chat(), FloatPropertiesChannel(), Chat()])


@pytest.mark.parametrize("given", [7, [7], Chat()])
def test_channels_that_are_none_are_named(given: Any) -> None:
    with pytest.raises(TypeError, match=r"^side_channels: expected .*, got (7|<.*Chat)"):
        ChannelHub(given)


def test_a_function_makes_channels_for_each_simulator_alone() -> None:
    made: list[tuple[int, Chat]] = []

    def make(simulator: int) -> list[Chat]:
        made.append((simulator, Chat()))
        made[-1][1].say(f"hello {simulator}")
        return [made[-1][1]]

    hub = ChannelHub(make)
    assert hub.greeting(0) == [text_record("hello 0")]
    assert hub.greeting(5) == [text_record("hello 5")]
    hub.deliver(5, text_record("peace"))
    assert [(number, chat.received) for number, chat in made] == [(0, []), (5, ["peace"])]
    assert (hub.outgoing(0), hub.outgoing(5)) == ([], [text_record("peace to you")])


@pytest.mark.parametrize("shared", [True, False])
def test_a_simulator_that_departed_is_spoken_to_no_longer(shared: bool) -> None:
    chat = Chat()
    hub = ChannelHub([chat] if shared else lambda _: [chat])
    hub.greeting(0)
    hub.drop(0)
    hub.drop(0)
    chat.say("anybody?")
    assert hub.outgoing(0) == []
    assert not hub.deliver(0, text_record("me"))


def test_messages_that_were_imported_before_are_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    module = "mlagents_envs.communicator_objects.header_pb2"
    monkeypatch.setitem(sys.modules, module, ModuleType("header_pb2"))
    with pytest.raises(ImportError, match=f"{module} was imported before install"):
        mlagents_alias.install()


def test_another_thread_may_fill_a_channel_anytime() -> None:
    """A message that arrives while the queue is read is sent exactly once."""

    class Busy(list[bytes]):
        def __iter__(self) -> Any:
            yield from list(super().__iter__())
            if len(self) < 3:
                self.append(b"meanwhile")

    channel = Plain(message_queue=Busy([b"first"]))
    hub = ChannelHub([channel])
    assert [record.body for record in hub.greeting(0)] == [b"first"]
    assert [record.body for record in hub.outgoing(0)] == [b"meanwhile"]
