"""The bridge over real channels on loopback, with simulators that attach: threads of the test, or processes."""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import grpc
import numpy as np
import pytest
from bridge_replies import BALL, actions_in

from unity_bridge.errors import BridgeError, LaunchError, PortInUse, SimulatorLost
from unity_bridge.programs.executables import Command
from unity_bridge.server.connection import Connection
from unity_bridge.side_channels import SideChannelRecord, unpack_records
from unity_bridge.transport.endpoint import Call
from unity_bridge.wire.unity_message_pb2 import UnityMessageProto

LONG_S = 60.0
SHORT_S = 1.0  # long enough for an answer on loopback when both cores are busy


def test_an_attached_simulator_steps_and_gets_its_actions(
    make_bridge: Any, connect: Any, messages: Any
) -> None:
    bridge = make_bridge()
    simulator = connect(bridge.listen(port=0))
    reply = simulator.later(simulator.start, messages.first_step([(1, 2, 3), (4, 5, 6)]))
    tick = bridge.next_tick()
    assert list(tick.new_specs) == [BALL]
    assert tick.steps[BALL].observations[0].tolist() == [[1, 2, 3], [4, 5, 6]]
    bridge.act(tick, 0.25)
    assert actions_in(reply.result(LONG_S)) == [[0.25, 0.25], [0.25, 0.25]]


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


def test_nothing_in_time_is_an_empty_list(make_bridge: Any) -> None:
    bridge = make_bridge()
    bridge.listen(port=0)
    assert bridge.receive(0.01) == []


def test_everyone_of_many_attached_simulators_gets_their_own_actions(
    make_bridge: Any, connect: Any, messages: Any
) -> None:
    bridge = make_bridge()
    port = bridge.listen(port=0)
    replies = []
    for number in range(80):
        simulator = connect(port)
        replies.append(simulator.later(simulator.start, messages.first_step([(number, 0, 0)])))
    ticks = bridge.next_events(80)  # all of them parked at once: nobody is answered before
    assert {tick.simulator for tick in ticks} == set(range(80))
    for tick in ticks:
        bridge.act(tick, float(tick.steps[BALL].observations[0][0, 0]))
    assert [actions_in(reply.result(LONG_S)) for reply in replies] == [[[n, n]] for n in range(80)]


def test_messages_beyond_four_mebibytes_pass_both_ways(make_bridge: Any, connect: Any, messages: Any) -> None:
    bridge = make_bridge()
    simulator = connect(bridge.listen(port=0))
    picture = np.arange(1_500_000, dtype=np.float32)
    reply = simulator.later(simulator.start, messages.first_step([picture]))
    tick = bridge.next_tick()
    np.testing.assert_array_equal(tick.steps[BALL].observations[0][0], picture)
    bridge.act(tick, 1.0)
    assert actions_in(reply.result(LONG_S)) == [[1.0, 1.0]]


def test_a_message_without_waiting_agents_is_a_tick(make_bridge: Any, connect: Any, messages: Any) -> None:
    bridge = make_bridge()
    simulator = connect(bridge.listen(port=0))
    reply = simulator.later(simulator.start, messages.first_step(done=True))
    tick = bridge.next_tick()
    assert tick.steps[BALL].num_terminal == 1
    bridge.reply(tick.simulator, {})
    assert reply.result(LONG_S).header.status == 200


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (
            lambda message: message.unity_output.rl_output.agentInfos[BALL].value[0].observations.pop(),
            "sensors",
        ),
        (lambda message: message.unity_output.rl_output.agentInfos["Other"].value.add(), "brain_parameters"),
        (
            lambda message: (
                message.unity_output.rl_output.ClearField("agentInfos") or message.ClearField("header")
            ),
            "status",
        ),
    ],
)
def test_a_bad_message_ends_only_its_own_simulator(
    make_bridge: Any, connect: Any, messages: Any, spoil: Callable[[UnityMessageProto], Any], complaint: str
) -> None:
    bridge = make_bridge()
    port = bridge.listen(port=0)
    good, bad = connect(port), connect(port)
    good_reply = good.later(good.start, messages.first_step())
    good_tick = bridge.next_tick()
    bad.later(bad.start, messages.first_step())
    bridge.act(bridge.next_tick())
    message = messages.step()
    spoil(message)
    bad_reply = bad.later(bad.exchange, message)
    departure = bridge.next_departure()
    assert departure.simulator == 1
    assert departure.reason.startswith("simulator 1 (127.0.0.1:")
    assert complaint in departure.reason
    assert bad.refusal(bad_reply) == departure.reason
    bridge.act(good_tick)
    assert good_reply.result(LONG_S).header.status == 200


@pytest.mark.parametrize("broken", ["_parse", "_rows"])
def test_an_internal_error_while_reading_ends_only_its_simulator(
    make_bridge: Any,
    connect: Any,
    messages: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    broken: str,
) -> None:
    bridge = make_bridge()
    port = bridge.listen(port=0)
    good, bad = connect(port), connect(port)
    good_reply = good.later(good.start, messages.first_step())
    good_tick = bridge.next_tick()
    bad.later(bad.start, messages.first_step())
    bridge.act(bridge.next_tick())
    with monkeypatch.context() as patch:
        patch.setattr(f"unity_bridge.server.session.{broken}", lambda _: [].pop())
        bad_reply = bad.later(bad.exchange, messages.step())
        departure = bridge.next_departure()
    assert departure.simulator == 1
    assert departure.reason.endswith(
        "reading its message failed in the trainer: IndexError: 'pop from empty list'"
    )
    assert bad.refusal(bad_reply) == departure.reason
    assert "Traceback" in caplog.text
    later = bad.later(bad.exchange, messages.step())
    assert bridge.answered(later).header.status == 400
    bridge.act(good_tick)
    assert good_reply.result(LONG_S).header.status == 200


def test_a_failing_greeting_ends_only_its_simulator(make_bridge: Any, connect: Any, messages: Any) -> None:
    def greeting(simulator: int) -> list[SideChannelRecord]:
        return [] if simulator == 0 else [][simulator]

    bridge = make_bridge(greeting=greeting)
    port = bridge.listen(port=0)
    first, second = connect(port), connect(port)
    reply = first.later(first.start, messages.first_step())
    tick = bridge.next_tick()
    second.later(second.start, messages.first_step())
    assert "IndexError" in bridge.next_departure().reason
    bridge.act(tick)
    assert reply.result(LONG_S).header.status == 200


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


def test_bytes_that_are_no_message_are_refused_then_stopped(
    make_bridge: Any, connect: Any, messages: Any
) -> None:
    bridge = make_bridge()
    simulator = connect(bridge.listen(port=0))
    first = simulator.later(simulator.exchange_bytes, b"\xff\xff")
    assert "expected a UnityMessageProto, got 2 bytes" in bridge.next_departure().reason
    assert "expected a UnityMessageProto" in simulator.refusal(first)
    for data in (b"\xff\xff", messages.step().SerializeToString()):
        later = simulator.later(simulator.exchange_bytes, data)
        assert UnityMessageProto.FromString(bridge.answered(later)).header.status == 400


def test_another_api_version_is_refused_naming_both(make_bridge: Any, connect: Any, messages: Any) -> None:
    bridge = make_bridge()
    simulator = connect(bridge.listen(port=0))
    reply = simulator.later(simulator.exchange, messages.introduction("2.0.0"))
    assert "this trainer speaks 1.5.0, the simulator speaks 2.0.0" in bridge.next_departure().reason
    assert "this trainer speaks 1.5.0, the simulator speaks 2.0.0" in simulator.refusal(reply)


def test_a_goodbye_is_a_departure(make_bridge: Any, connect: Any, messages: Any) -> None:
    bridge = make_bridge()
    simulator = connect(bridge.listen(port=0))
    simulator.later(simulator.start, messages.first_step())
    bridge.act(bridge.next_tick())
    reply = simulator.later(simulator.exchange, messages.goodbye())
    assert bridge.next_departure().reason.endswith("stopped by itself (status 400)")
    assert reply.result(LONG_S).header.status == 400


def test_a_simulator_that_hangs_up_while_it_waits_departs(
    make_bridge: Any, connect: Any, messages: Any
) -> None:
    bridge = make_bridge()
    simulator = connect(bridge.listen(port=0))
    simulator.later(simulator.start, messages.first_step())
    bridge.act(bridge.next_tick())
    call = simulator.raw_call(messages.step().SerializeToString())
    tick = bridge.next_tick()
    call.cancel()
    departure = bridge.next_departure()
    assert departure.simulator == tick.simulator
    assert departure.reason.endswith("closed its connection while it waited for a reply")
    bridge.act(tick)  # answered in vain, which is no error
    with pytest.raises(ValueError, match="simulator 0 has no tick to answer"):
        bridge.act(tick)


def test_a_timeout_names_the_message_owed(make_bridge: Any, connect: Any, messages: Any) -> None:
    bridge = make_bridge(timeout_wait_s=SHORT_S)
    simulator = connect(bridge.listen(port=0))
    simulator.later(simulator.start, messages.first_step())
    bridge.act(bridge.next_tick())
    reason = bridge.next_departure().reason
    assert reason.endswith("silent for 1 s (timeout_wait); it owes its next step, after our reply")
    late = simulator.later(simulator.exchange, messages.step())
    assert bridge.answered(late).header.status == 400


def test_what_waited_during_a_long_update_is_not_silent(
    make_bridge: Any, connect: Any, messages: Any
) -> None:
    bridge = make_bridge(timeout_wait_s=SHORT_S)
    simulator = connect(bridge.listen(port=0))
    simulator.later(simulator.start, messages.first_step())
    bridge.act(bridge.next_tick())
    call = simulator.raw_call(messages.step().SerializeToString())
    with pytest.raises(grpc.FutureTimeoutError):
        call.result(timeout=1.5 * SHORT_S)  # the trainer learns, and does not look
    assert list(bridge.next_tick().steps) == [BALL]


def test_a_simulator_that_introduces_itself_anew_is_another_one(
    make_bridge: Any, connect: Any, messages: Any
) -> None:
    bridge = make_bridge()
    simulator = connect(bridge.listen(port=0))
    simulator.later(simulator.start, messages.first_step())
    bridge.act(bridge.next_tick())
    simulator.later(simulator.start, messages.first_step())
    departure, tick = bridge.next_events(2)
    assert departure.reason.endswith("introduced itself anew")
    assert (departure.simulator, tick.simulator) == (0, 1)
    assert list(tick.new_specs) == [BALL]


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


def test_a_second_reply_is_our_mistake(make_bridge: Any, connect: Any, messages: Any) -> None:
    bridge = make_bridge()
    simulator = connect(bridge.listen(port=0))
    simulator.later(simulator.start, messages.first_step())
    tick = bridge.next_tick()
    bridge.act(tick)
    with pytest.raises(ValueError, match="has no tick to answer"):
        bridge.act(tick)


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
        assert f"Nobody is attached to 127.0.0.1:{port}. Press Play in the Unity Editor within 60 s" in (
            caplog.text
        )


def test_a_killed_editor_may_return_before_its_timeout(
    make_bridge: Any, connect: Any, messages: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "unity_bridge.transport.peers.read_sockets", list
    )  # as on a system that tells nothing
    bridge = make_bridge(timeout_wait_s=2 * SHORT_S)
    port = bridge.listen(port=0)
    killed = connect(port)
    killed.later(killed.start, messages.first_step())
    bridge.act(bridge.next_tick())
    killed.close()
    again = connect(port)
    reply = again.later(again.start, messages.first_step())
    tick = bridge.next_tick()
    assert tick.simulator == 1
    departure = bridge.next_departure()
    assert (departure.simulator, "it owes its next step" in departure.reason) == (0, True)
    bridge.act(tick)
    assert reply.result(LONG_S).header.status == 200


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="the system does not tell")
def test_a_death_is_noticed_long_before_the_timeout(
    make_bridge: Any, connect: Any, messages: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unity_bridge.server.timeouts.CHECK_INTERVAL_S", 0.02)
    bridge = make_bridge(timeout_wait_s=1000 * LONG_S)
    port = bridge.listen(port=0)
    killed, slow = connect(port), connect(port)
    for simulator in (slow, killed):
        first = simulator.later(simulator.start, messages.first_step())
        bridge.act(bridge.next_tick())
        first.result(LONG_S)
    killed.close()
    departure = bridge.next_departure()
    assert departure.simulator == 1
    assert departure.reason.endswith("closed its connection; it owed its next step, after our reply")
    slow.later(slow.exchange, messages.step())  # whose connection stands
    assert bridge.next_tick().simulator == 0


def test_a_long_wait_is_logged_once(
    make_bridge: Any,
    connect: Any,
    messages: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for name in ("CHECK_INTERVAL_S", "LOG_WAIT_AFTER_S"):
        monkeypatch.setattr(f"unity_bridge.server.timeouts.{name}", 0.0)
    bridge = make_bridge()
    simulator = connect(bridge.listen(port=0))
    simulator.later(simulator.start, messages.first_step())
    bridge.act(bridge.next_tick())
    caplog.clear()
    for _ in range(5):
        bridge.receive(0.01)
    assert [line for line in caplog.messages if line.startswith("waiting for simulator 0 (127")] == [
        *caplog.messages
    ]
    assert len(caplog.messages) == 1
    assert caplog.messages[0].endswith("s: it owes its next step, after our reply")
    simulator.later(simulator.exchange, messages.step())
    bridge.next_tick()


def test_nothing_is_kept_of_those_that_left(make_bridge: Any, connect: Any, messages: Any) -> None:
    bridge = make_bridge()
    port = bridge.listen(port=0)
    gc.collect()
    gc.disable()
    try:
        for number in range(3):
            simulator = connect(port)
            simulator.later(simulator.start, messages.first_step())
            bridge.act(bridge.next_tick())
            garbage = simulator.later(simulator.exchange_bytes, b"\xff" * 10_000)
            assert bridge.next_departure().simulator == number
            assert "10000 bytes" in simulator.refusal(garbage)
        alive = gc.get_objects()
        assert len([call for call in alive if type(call) is Call and len(call.data) == 10_000]) <= 1
        assert len([each for each in alive if type(each) is Connection and each.last_call]) <= 1
    finally:
        gc.enable()


def test_a_simulator_without_base_capabilities_is_logged(
    make_bridge: Any, connect: Any, messages: Any, caplog: pytest.LogCaptureFixture
) -> None:
    bridge = make_bridge()
    port = bridge.listen(port=0)
    for able in (True, False):
        simulator = connect(port)
        introduction = messages.introduction()
        introduction.unity_output.rl_initialization_output.capabilities.baseRLCapabilities = able
        with caplog.at_level("WARNING"):
            bridge.answered(simulator.later(simulator.exchange, introduction))
        assert ("its package may be too old for this trainer" in caplog.text) == (not able)


def test_a_port_in_use_is_named(make_bridge: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as owner:
        port = owner.getsockname()[1]
        with pytest.raises(PortInUse, match=f"127.0.0.1:{port} is in use by another process"):
            make_bridge().listen(port=port)


def test_two_bridges_never_share_a_port(make_bridge: Any) -> None:
    port = make_bridge().listen(port=0)
    with pytest.raises(PortInUse):
        make_bridge().listen(port=port)


def test_a_port_is_free_again_after_closing(make_bridge: Any, connect: Any, messages: Any) -> None:
    first = make_bridge()
    port = first.listen(port=0)
    simulator = connect(port)
    simulator.later(simulator.start, messages.first_step())
    first.next_tick()
    first.close()
    assert make_bridge().listen(port=port) == port


def test_an_address_of_another_machine_is_refused(make_bridge: Any) -> None:
    with pytest.raises(BridgeError, match=r"192\.0\.2\.1:5999: cannot listen: "):
        make_bridge().listen("192.0.2.1", 5999)


def test_no_simulator_is_an_error_with_advice(make_bridge: Any) -> None:
    bridge = make_bridge(timeout_wait_s=0.05)
    port = bridge.listen(port=0)
    with pytest.raises(LaunchError, match=f"nobody attached to 127.0.0.1:{port} within 0.05 s .*press Play"):
        bridge.receive(LONG_S)


def test_no_simulator_returning_is_an_error_naming_the_last(
    make_bridge: Any, connect: Any, messages: Any
) -> None:
    bridge = make_bridge(timeout_wait_s=SHORT_S)
    simulator = connect(bridge.listen(port=0))
    simulator.later(simulator.start, messages.first_step())
    bridge.act(bridge.next_tick())
    simulator.later(simulator.exchange, messages.goodbye())
    bridge.next_departure()
    with pytest.raises(SimulatorLost, match=r"that was simulator 0 \(.*\): stopped by itself"):
        bridge.receive(LONG_S)


def test_closing_answers_waiting_simulators_with_stop(make_bridge: Any, connect: Any, messages: Any) -> None:
    bridge = make_bridge()
    port = bridge.listen(port=0)
    replies = []
    for simulator in (connect(port), connect(port)):
        replies.append(simulator.later(simulator.start, messages.first_step()))
    bridge.next_events(2)
    bridge.close()
    bridge.close()
    assert [reply.result(LONG_S).header.status for reply in replies] == [400, 400]


def test_closing_waits_for_simulators_that_owe_a_message(
    make_bridge: Any, connect: Any, messages: Any
) -> None:
    bridge = make_bridge(shutdown_grace_s=LONG_S)
    simulator = connect(bridge.listen(port=0))
    first = simulator.later(simulator.start, messages.first_step())
    bridge.act(bridge.next_tick())
    first.result(LONG_S)
    reply = simulator.later(simulator.exchange, messages.step())
    bridge.close()
    assert reply.result(LONG_S).header.status == 400
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("exchange")]


@pytest.mark.skipif(os.name != "posix", reason="scripts are programs")
def test_an_attached_process_that_is_killed_while_it_waits_departs(
    make_bridge: Any, simulator_program: Callable[[str], Command]
) -> None:
    bridge = make_bridge()
    port = bridge.listen(port=0)
    plan = simulator_program("introduce confirm first forever")
    process = subprocess.Popen([*plan.executable, "--mlagents-port", str(port), *plan.arguments])
    tick = bridge.next_tick()
    process.kill()
    process.wait()
    departure = bridge.next_departure()
    assert departure.simulator == tick.simulator
    assert departure.reason.endswith("closed its connection while it waited for a reply")


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
