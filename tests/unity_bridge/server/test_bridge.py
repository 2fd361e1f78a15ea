"""The bridge over real channels on loopback, with simulators that attach: threads of the test, or processes."""

from __future__ import annotations

import gc
import threading
from typing import Any
from uuid import UUID

import pytest
from bridge_replies import BALL, actions_in

from unity_bridge.server.connections import Connection
from unity_bridge.side_channels import SideChannelRecord, unpack_records
from unity_bridge.transport.endpoint import Call
from unity_bridge.wire.unity_message_pb2 import UnityMessageProto

LONG_S = 60.0


def test_simulators_get_seeds_of_their_own_and_equal_areas(
    make_bridge: Any, connect: Any, messages: Any
) -> None:
    bridge = make_bridge(seed=2**31 - 2, num_areas=3)
    port = bridge.listen(port=0)
    given = []
    for _ in range(3):
        simulator = connect(port)
        reply = bridge.answered(simulator.later(simulator.exchange, messages.introduction()))
        initialization = reply.unity_input.rl_initialization_input
        given.append((initialization.seed, initialization.num_areas))
    assert given == [(2**31 - 2, 3), (2**31 - 1, 3), (0, 3)]


def test_everyone_of_many_attached_simulators_gets_their_own_actions(
    make_bridge: Any, connect: Any, messages: Any
) -> None:
    bridge = make_bridge()
    port = bridge.listen(port=0)
    replies = []
    for number in range(20):
        simulator = connect(port)
        replies.append(simulator.later(simulator.start, messages.first_step([(number, 0, 0)])))
    ticks = bridge.next_events(20)  # all of them parked at once: nobody is answered before
    assert {tick.simulator for tick in ticks} == set(range(20))
    for tick in ticks:
        bridge.act(tick, float(tick.steps[BALL].observations[0][0, 0]))
    assert [actions_in(reply.result(LONG_S)) for reply in replies] == [[[n, n]] for n in range(20)]


@pytest.mark.parametrize(
    ("is_our_fault", "said"),
    [
        (False, "expected 1 sensors, got 0"),
        (True, "reading its message failed in the trainer: IndexError: 'pop from empty list'"),
    ],
)
def test_a_message_that_cannot_be_read_ends_only_its_simulator(
    make_bridge: Any,
    connect: Any,
    messages: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    is_our_fault: bool,
    said: str,
) -> None:
    bridge = make_bridge()
    port = bridge.listen(port=0)
    good, bad = connect(port), connect(port)
    good_reply = good.later(good.start, messages.first_step())
    good_tick = bridge.next_tick()
    bridge.begin(bad)
    message = messages.step()
    with monkeypatch.context() as patch:
        if is_our_fault:
            patch.setattr("unity_bridge.server.session.open_envelope", lambda _: [].pop())
        else:
            message.unity_output.rl_output.agentInfos[BALL].value[0].observations.pop()
        bad_reply = bad.later(bad.exchange, message)
        departure = bridge.next_departure()
    assert departure.simulator == 1
    assert departure.reason.startswith("simulator 1 (127.0.0.1:")
    assert said in departure.reason
    assert bad.refusal(bad_reply) == departure.reason
    assert ("Traceback" in caplog.text) == is_our_fault
    later = bad.later(bad.exchange, messages.step())
    assert bridge.answered(later).header.status == 400
    bridge.act(good_tick)
    assert good_reply.result(LONG_S).header.status == 200


def test_an_answer_that_cannot_be_written_ends_only_its_simulator(
    make_bridge: Any, connect: Any, messages: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bridge = make_bridge()
    port = bridge.listen(port=0)
    first, second = connect(port), connect(port)
    first_reply = first.later(first.start, messages.first_step())
    first_tick = bridge.next_tick()
    second_reply = second.later(second.start, messages.first_step())
    second_tick = bridge.next_tick()
    with monkeypatch.context() as patch:
        patch.setattr("unity_bridge.server.session.encode_actions", lambda _: 1 // 0)
        bridge.act(second_tick)
    assert "answering it failed in the trainer: ZeroDivisionError" in bridge.next_departure().reason
    assert "ZeroDivisionError" in second.refusal(second_reply)
    bridge.act(first_tick)
    assert first_reply.result(LONG_S).header.status == 200


def test_a_goodbye_beside_a_step_that_was_not_read_yet_is_a_departure(
    make_bridge: Any, connect: Any, messages: Any
) -> None:
    """A simulator is told to stop while it waits, and the trainer, busy with an update, reads both at once."""
    bridge = make_bridge()
    simulator = connect(bridge.listen(port=0))
    bridge.begin(simulator)
    step = simulator.raw_call(messages.step().SerializeToString())
    tick = bridge.next_tick()
    goodbye = simulator.raw_call(messages.goodbye().SerializeToString())
    departure = bridge.next_departure()
    assert departure.simulator == tick.simulator
    assert departure.reason.endswith("stopped by itself (status 400)")
    bridge.act(tick)  # answered in vain, which is no error
    for call in (step, goodbye):
        while not call.done():
            assert bridge.receive(0.02) == []
        assert UnityMessageProto.FromString(call.result()).header.status == 400


def test_a_simulator_that_hangs_up_while_it_waits_departs(
    make_bridge: Any, connect: Any, messages: Any
) -> None:
    bridge = make_bridge()
    simulator = connect(bridge.listen(port=0))
    bridge.begin(simulator)
    call = simulator.raw_call(messages.step().SerializeToString())
    tick = bridge.next_tick()
    call.cancel()
    departure = bridge.next_departure()
    assert departure.simulator == tick.simulator
    assert departure.reason.endswith("closed its connection while it waited for a reply")
    bridge.act(tick)  # answered in vain, which is no error
    with pytest.raises(ValueError, match="simulator 0 has no tick to answer"):
        bridge.act(tick)


def test_two_simulators_on_one_connection_are_refused(make_bridge: Any, connect: Any, messages: Any) -> None:
    bridge = make_bridge()
    simulator = connect(bridge.listen(port=0))
    first = simulator.later(simulator.start, messages.first_step())
    tick = bridge.next_tick()
    intruder = simulator.raw_call(messages.introduction().SerializeToString())
    while not intruder.done():
        assert bridge.receive(0.02) == []
    assert "grpc.use_local_subchannel_pool" in intruder.details()
    bridge.act(tick)
    assert first.result(LONG_S).header.status == 200


def test_the_trainer_may_reject_a_simulator(make_bridge: Any, connect: Any, messages: Any) -> None:
    bridge = make_bridge()
    simulator = connect(bridge.listen(port=0))
    reply = simulator.later(simulator.start, messages.first_step())
    tick = bridge.next_tick()
    bridge.reject(tick.simulator, "its sensors differ from those of simulator 7")
    assert "its sensors differ from those of simulator 7" in bridge.next_departure().reason
    assert "its sensors differ from those of simulator 7" in simulator.refusal(reply)


def test_the_editor_may_stop_and_play_on_one_connection(
    make_bridge: Any, connect: Any, messages: Any, caplog: pytest.LogCaptureFixture
) -> None:
    bridge = make_bridge(greeting=lambda simulator: [SideChannelRecord(UUID(int=7), bytes([simulator]))])
    port = bridge.listen(port=0)
    editor = connect(port)
    for number in range(3):
        bridge.answered(editor.later(editor.exchange, messages.introduction()))
        reset = bridge.answered(editor.later(editor.exchange, messages.confirmation()))
        (greeting,) = unpack_records(reset.unity_input.rl_input.side_channel)
        assert greeting.body == bytes([number])
        played = editor.later(editor.exchange, messages.first_step())
        tick = bridge.next_tick()
        assert (tick.simulator, list(tick.new_specs)) == (number, [BALL])
        bridge.act(tick)
        played.result(LONG_S)
        caplog.clear()
        with caplog.at_level("INFO"):
            editor.later(editor.exchange, messages.goodbye())
            assert bridge.next_departure().simulator == number
        assert (
            f"No simulator is attached to 127.0.0.1:{port}. Press Play in the Unity Editor within 60 s"
            in (caplog.text)
        )


def test_nothing_is_kept_of_those_that_left(make_bridge: Any, connect: Any, messages: Any) -> None:
    bridge = make_bridge()
    port = bridge.listen(port=0)
    gc.collect()
    of_other_tests = {id(each) for each in gc.get_objects() if type(each) is Connection}
    gc.disable()
    try:
        for number in range(3):
            simulator = connect(port)
            bridge.begin(simulator)
            garbage = simulator.later(simulator.exchange_bytes, b"\xff" * 10_000)
            assert bridge.next_departure().simulator == number
            assert "10000 bytes" in simulator.refusal(garbage)
        alive = gc.get_objects()
        assert len([call for call in alive if type(call) is Call and len(call.data) == 10_000]) <= 1
        left = [each for each in alive if type(each) is Connection and id(each) not in of_other_tests]
        assert len([each for each in left if each.last_call]) <= 1
    finally:
        gc.enable()


def test_closing_answers_waiting_simulators_with_stop_once(
    make_bridge: Any, connect: Any, messages: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bridge = make_bridge()
    port = bridge.listen(port=0)
    replies = []
    for simulator in (connect(port), connect(port)):
        replies.append(simulator.later(simulator.start, messages.first_step()))
    bridge.next_events(2)
    assert [connection.last_call.data for connection in bridge._connections] == [
        b"",
        b"",
    ]  # what was read is dropped
    bridge.close()
    monkeypatch.delattr("unity_bridge.server.bridge._shut_down")  # nobody is waited for again
    bridge.close()
    assert [reply.result(LONG_S).header.status for reply in replies] == [400, 400]


def test_closing_waits_for_simulators_that_owe_a_message(
    make_bridge: Any, connect: Any, messages: Any
) -> None:
    bridge = make_bridge(shutdown_grace_s=LONG_S)
    simulator = connect(bridge.listen(port=0))
    first = bridge.begin(simulator)
    first.result(LONG_S)
    reply = simulator.later(simulator.exchange, messages.step())
    bridge.close()
    assert reply.result(LONG_S).header.status == 400
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("exchange")]


def test_a_loop_of_introductions_does_not_fill_the_log(
    make_bridge: Any,
    connect: Any,
    messages: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("unity_bridge.server.event_handler.MAX_LOGGED_INTRODUCTIONS", 3)
    monkeypatch.setattr("unity_bridge.server.listeners.MAX_LOGGED", 3)
    caplog.set_level("INFO")
    bridge = make_bridge()
    simulator = connect(bridge.listen(port=0))
    for _ in range(30):
        introduced = simulator.later(simulator.exchange, messages.introduction(package="\x1b[31m\nforged"))
        while not introduced.done():
            bridge.receive(0.02)
        simulator.later(simulator.exchange, messages.goodbye())
        bridge.next_departure()
    assert len(caplog.messages) <= 3 + 3 + 10
    assert r"package version '\x1b[31m\nforged' and communication version 1.5.0" in caplog.messages[0]


def test_long_messages_are_read_one_between_two_answers(
    make_bridge: Any, connect: Any, messages: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long ones that wait are read one by one, each with all short ones that came meanwhile before it."""
    monkeypatch.setattr("unity_bridge.server.bridge.HANDLING_S", 0.0)
    monkeypatch.setattr("unity_bridge.server.bridge.LONG_MESSAGE", 1000)
    bridge = make_bridge()
    port = bridge.listen(port=0)
    simulators = [connect(port) for _ in range(4)]
    for simulator in simulators:
        bridge.begin(simulator)
    *visitors, healthy = simulators
    long = messages.step([(1.0, 2.0, 3.0)] * 100).SerializeToString()
    calls = [visitor.raw_call(long) for visitor in visitors]
    read: list[int] = []
    while read.count(0) + read.count(1) + read.count(2) < len(visitors):
        sent = healthy.later(healthy.exchange, messages.step())
        while not sent.done():
            ticks = bridge.receive(60.0)
            assert len(ticks) == 1  # no long one delays the answer to a short one that was read with it
            read += [tick.simulator for tick in ticks]
            for tick in ticks:
                bridge.act(tick)
            if 3 in [tick.simulator for tick in ticks]:
                sent.result(60.0)
    assert sorted(set(read)) == [0, 1, 2, 3]
    for call in calls:
        call.result(60.0)


def test_memory_is_given_back_when_a_sender_of_long_messages_leaves(
    make_bridge: Any, connect: Any, messages: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[None] = []
    monkeypatch.setattr("unity_bridge.server.freed_memory.give_back", lambda: given.append(None))
    monkeypatch.setattr("unity_bridge.server.bridge.LONG_MESSAGE", 1000)
    monkeypatch.setattr("unity_bridge.server.bridge.GIVE_BACK_AFTER_S", 0.0)
    bridge = make_bridge()
    port = bridge.listen(port=0)
    many = [(1.0, 2.0, 3.0)] * 100
    for observations, expected in (([(1.0, 2.0, 3.0)], 0), (many, 1), (many, 2)):
        simulator = connect(port)
        simulator.later(simulator.start, messages.first_step(observations))
        tick = bridge.next_tick()
        bridge.act(tick)
        simulator.later(simulator.exchange, messages.goodbye())
        bridge.next_departure()
        bridge.receive(0.0)
        assert len(given) == expected
