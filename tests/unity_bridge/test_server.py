"""The bridge over real channels on loopback, with simulators that are threads of the test or processes."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from uuid import UUID

import grpc
import numpy as np
import pytest

from unity_bridge.errors import BridgeError, LaunchError, PortInUse, SimulatorLost
from unity_bridge.launcher import Command
from unity_bridge.server import Bridge, BridgeSettings, Departure, SimulatorInfo, Tick
from unity_bridge.side_channels import (
    EngineSettings,
    SideChannelRecord,
    engine_records,
    pack_records,
    unpack_records,
)
from unity_bridge.steps import ActionBatch
from unity_bridge.wire.command_pb2 import RESET
from unity_bridge.wire.unity_message_pb2 import UnityMessageProto

BALL = "Ball?team=0"
LONG_S = 60.0
SHORT_S = 1.0  # long enough for an answer on loopback when both cores are busy

posix_only = pytest.mark.skipif(os.name != "posix", reason="scripts are programs, and signals have names")


@pytest.fixture
def make_bridge(tmp_path: Path) -> Iterator[Callable[..., Bridge]]:
    bridges: list[Bridge] = []

    def make(**settings: Any) -> Bridge:
        defaults = {
            "seed": 100,
            "run_logs": tmp_path / "run_logs",
            "timeout_wait_s": LONG_S,
            "shutdown_grace_s": 0.2,
        }
        bridges.append(Bridge(BridgeSettings(**{**defaults, **settings})))
        return bridges[-1]

    yield make
    for bridge in bridges:
        bridge.close()


def next_events(bridge: Bridge, count: int = 1) -> list[Any]:
    """At least that many events, however many receives they take."""
    events: list[Any] = []
    while len(events) < count:
        events += bridge.receive(LONG_S)
    return events


def next_tick(bridge: Bridge) -> Tick:
    (event,) = next_events(bridge)
    assert isinstance(event, Tick), event
    return event


def next_departure(bridge: Bridge) -> Departure:
    (event,) = next_events(bridge)
    assert isinstance(event, Departure), event
    return event


def act(bridge: Bridge, tick: Tick, value: float = 0.0) -> None:
    """Answers a tick with the same number everywhere."""
    answers = {}
    for behavior, batch in tick.steps.items():
        waiting = len(batch) - batch.num_terminal
        answers[behavior] = ActionBatch(
            np.full((waiting, 2), value, np.float32), np.zeros((waiting, 0), np.int32)
        )
    bridge.reply(tick.simulator, answers)


def actions_in(reply: UnityMessageProto) -> list[list[float]]:
    return [list(row.continuous_actions) for row in reply.unity_input.rl_input.agent_actions[BALL].value]


def answered(bridge: Bridge, future: Future[Any]) -> Any:
    """What a call that is no event gets, while the bridge serves."""
    while not future.done():
        assert bridge.receive(0.02) == []
    return future.result()


def pid_of(tick: Tick) -> int:
    """The test program's only observation."""
    return int(tick.steps[BALL].observations[0][0, 0])


def refusal(future: Future[Any]) -> str:
    """The text with which a call was refused."""
    error = future.exception(LONG_S)
    assert isinstance(error, grpc.RpcError)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    return str(error.details())


def test_an_attached_simulator_steps_and_gets_its_actions(
    make_bridge: Any, connect: Any, messages: Any
) -> None:
    bridge = make_bridge()
    simulator = connect(bridge.listen(port=0))
    reply = simulator.later(simulator.start, messages.first_step([(1, 2, 3), (4, 5, 6)]))
    tick = next_tick(bridge)
    assert list(tick.new_specs) == [BALL]
    assert tick.steps[BALL].observations[0].tolist() == [[1, 2, 3], [4, 5, 6]]
    act(bridge, tick, 0.25)
    assert actions_in(reply.result(LONG_S)) == [[0.25, 0.25], [0.25, 0.25]]


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
    ticks = next_events(bridge, 80)  # all of them parked at once: nobody is answered before
    assert {tick.simulator for tick in ticks} == set(range(80))
    for tick in ticks:
        act(bridge, tick, float(tick.steps[BALL].observations[0][0, 0]))
    assert [actions_in(reply.result(LONG_S)) for reply in replies] == [[[n, n]] for n in range(80)]


def test_messages_beyond_four_mebibytes_pass_both_ways(make_bridge: Any, connect: Any, messages: Any) -> None:
    bridge = make_bridge()
    simulator = connect(bridge.listen(port=0))
    picture = np.arange(1_500_000, dtype=np.float32)
    reply = simulator.later(simulator.start, messages.first_step([picture]))
    tick = next_tick(bridge)
    np.testing.assert_array_equal(tick.steps[BALL].observations[0][0], picture)
    act(bridge, tick, 1.0)
    assert actions_in(reply.result(LONG_S)) == [[1.0, 1.0]]


def test_a_message_without_waiting_agents_is_a_tick_all_the_same(
    make_bridge: Any, connect: Any, messages: Any
) -> None:
    bridge = make_bridge()
    simulator = connect(bridge.listen(port=0))
    reply = simulator.later(simulator.start, messages.first_step(done=True))
    tick = next_tick(bridge)
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
def test_a_bad_message_is_refused_by_name_and_the_others_go_on(
    make_bridge: Any, connect: Any, messages: Any, spoil: Callable[[UnityMessageProto], Any], complaint: str
) -> None:
    bridge = make_bridge()
    port = bridge.listen(port=0)
    good, bad = connect(port), connect(port)
    good_reply = good.later(good.start, messages.first_step())
    good_tick = next_tick(bridge)
    bad.later(bad.start, messages.first_step())
    act(bridge, next_tick(bridge))
    message = messages.step()
    spoil(message)
    bad_reply = bad.later(bad.exchange, message)
    departure = next_departure(bridge)
    assert departure.simulator == 1
    assert departure.reason.startswith("simulator 1 (127.0.0.1:")
    assert complaint in departure.reason
    assert refusal(bad_reply) == departure.reason
    act(bridge, good_tick)
    assert good_reply.result(LONG_S).header.status == 200


def test_bytes_that_are_no_message_are_refused_and_then_met_with_stop(
    make_bridge: Any, connect: Any, messages: Any
) -> None:
    bridge = make_bridge()
    simulator = connect(bridge.listen(port=0))
    first = simulator.later(simulator.exchange_bytes, b"\xff\xff")
    assert "expected a UnityMessageProto, got 2 bytes" in next_departure(bridge).reason
    assert "expected a UnityMessageProto" in refusal(first)
    for data in (b"\xff\xff", messages.step().SerializeToString()):
        later = simulator.later(simulator.exchange_bytes, data)
        assert UnityMessageProto.FromString(answered(bridge, later)).header.status == 400


def test_another_api_version_is_refused_naming_both(make_bridge: Any, connect: Any, messages: Any) -> None:
    bridge = make_bridge()
    simulator = connect(bridge.listen(port=0))
    reply = simulator.later(simulator.exchange, messages.introduction("2.0.0"))
    assert "this trainer speaks 1.5.0, the simulator speaks 2.0.0" in next_departure(bridge).reason
    assert "this trainer speaks 1.5.0, the simulator speaks 2.0.0" in refusal(reply)


def test_a_goodbye_is_a_departure(make_bridge: Any, connect: Any, messages: Any) -> None:
    bridge = make_bridge()
    simulator = connect(bridge.listen(port=0))
    simulator.later(simulator.start, messages.first_step())
    act(bridge, next_tick(bridge))
    reply = simulator.later(simulator.exchange, messages.goodbye())
    assert next_departure(bridge).reason.endswith("stopped by itself (status 400)")
    assert reply.result(LONG_S).header.status == 400


def test_a_simulator_that_hangs_up_while_it_waits_departs(
    make_bridge: Any, connect: Any, messages: Any
) -> None:
    bridge = make_bridge()
    simulator = connect(bridge.listen(port=0))
    simulator.later(simulator.start, messages.first_step())
    act(bridge, next_tick(bridge))
    call = simulator.raw_call(messages.step().SerializeToString())
    tick = next_tick(bridge)
    call.cancel()
    departure = next_departure(bridge)
    assert departure.simulator == tick.simulator
    assert departure.reason.endswith("closed its connection while it waited for a reply")
    act(bridge, tick)  # answered in vain, which is no error
    with pytest.raises(ValueError, match="simulator 0 has no tick to answer"):
        act(bridge, tick)


def test_silence_is_named_with_what_is_owed(make_bridge: Any, connect: Any, messages: Any) -> None:
    bridge = make_bridge(timeout_wait_s=SHORT_S)
    simulator = connect(bridge.listen(port=0))
    simulator.later(simulator.start, messages.first_step())
    act(bridge, next_tick(bridge))
    reason = next_departure(bridge).reason
    assert reason.endswith("silent for 1 s (timeout_wait); it owes its next step, after our reply")
    late = simulator.later(simulator.exchange, messages.step())
    assert answered(bridge, late).header.status == 400


def test_what_waited_during_a_long_update_is_not_silent(
    make_bridge: Any, connect: Any, messages: Any
) -> None:
    bridge = make_bridge(timeout_wait_s=SHORT_S)
    simulator = connect(bridge.listen(port=0))
    simulator.later(simulator.start, messages.first_step())
    act(bridge, next_tick(bridge))
    call = simulator.raw_call(messages.step().SerializeToString())
    with pytest.raises(grpc.FutureTimeoutError):
        call.result(timeout=1.5 * SHORT_S)  # the trainer learns, and does not look
    assert list(next_tick(bridge).steps) == [BALL]


def test_a_simulator_that_introduces_itself_anew_is_another_one(
    make_bridge: Any, connect: Any, messages: Any
) -> None:
    bridge = make_bridge()
    simulator = connect(bridge.listen(port=0))
    simulator.later(simulator.start, messages.first_step())
    act(bridge, next_tick(bridge))
    simulator.later(simulator.start, messages.first_step())
    departure, tick = next_events(bridge, 2)
    assert departure.reason.endswith("introduced itself anew")
    assert (departure.simulator, tick.simulator) == (0, 1)
    assert list(tick.new_specs) == [BALL]


def test_two_simulators_on_one_connection_are_told_to_open_their_own(
    make_bridge: Any, connect: Any, messages: Any
) -> None:
    bridge = make_bridge()
    simulator = connect(bridge.listen(port=0))
    first = simulator.later(simulator.start, messages.first_step())
    tick = next_tick(bridge)
    intruder = simulator.raw_call(messages.introduction().SerializeToString())
    while not intruder.done():
        assert bridge.receive(0.02) == []
    assert "grpc.use_local_subchannel_pool" in intruder.details()
    act(bridge, tick)
    assert first.result(LONG_S).header.status == 200


def test_the_trainer_may_reject_a_simulator_for_reasons_of_its_own(
    make_bridge: Any, connect: Any, messages: Any
) -> None:
    bridge = make_bridge()
    simulator = connect(bridge.listen(port=0))
    reply = simulator.later(simulator.start, messages.first_step())
    tick = next_tick(bridge)
    bridge.reject(tick.simulator, "its sensors differ from those of simulator 7")
    assert "its sensors differ from those of simulator 7" in next_departure(bridge).reason
    assert "its sensors differ from those of simulator 7" in refusal(reply)


def test_a_second_reply_is_our_mistake(make_bridge: Any, connect: Any, messages: Any) -> None:
    bridge = make_bridge()
    simulator = connect(bridge.listen(port=0))
    simulator.later(simulator.start, messages.first_step())
    tick = next_tick(bridge)
    act(bridge, tick)
    with pytest.raises(ValueError, match="has no tick to answer"):
        act(bridge, tick)


def said_to(reply: UnityMessageProto) -> list[SideChannelRecord]:
    """What a reply says on side channels."""
    return unpack_records(reply.unity_input.rl_input.side_channel)


def mark(number: int) -> SideChannelRecord:
    return SideChannelRecord(UUID(int=7), bytes([number]))


def test_what_a_simulator_says_on_side_channels_comes_with_its_tick(
    make_bridge: Any, connect: Any, messages: Any
) -> None:
    bridge = make_bridge()
    simulator = connect(bridge.listen(port=0))
    message = messages.first_step()
    message.unity_output.rl_output.side_channel = pack_records([mark(1), mark(2)])
    simulator.later(simulator.start, message)
    tick = next_tick(bridge)
    assert tick.messages == (mark(1), mark(2))
    act(bridge, tick)
    simulator.later(simulator.exchange, messages.step())
    assert next_tick(bridge).messages == ()


def test_garbage_on_side_channels_is_refused_by_name_and_the_others_go_on(
    make_bridge: Any, connect: Any, messages: Any
) -> None:
    bridge = make_bridge()
    port = bridge.listen(port=0)
    good, bad = connect(port), connect(port)
    reply = good.later(good.start, messages.first_step())
    tick = next_tick(bridge)
    message = messages.first_step()
    message.unity_output.rl_output.side_channel = b"\xff" * 24
    refused = bad.later(bad.start, message)
    assert "side channel record 0 (channel ffffffff-ffff-" in next_departure(bridge).reason
    assert "says it has -1 bytes" in refusal(refused)
    act(bridge, tick)
    assert reply.result(LONG_S).header.status == 200


def test_the_engine_comes_first_in_the_first_reset_then_the_greeting_then_what_was_sent(
    make_bridge: Any, connect: Any, messages: Any
) -> None:
    bridge = make_bridge(engine=EngineSettings(), greeting=lambda simulator: [mark(simulator + 10)])
    simulator = connect(bridge.listen(port=0))
    answered(bridge, simulator.later(simulator.exchange, messages.introduction()))
    bridge.send([mark(1)], 0)
    bridge.send([mark(2)])  # to those who are greeted already: nobody
    reset = answered(bridge, simulator.later(simulator.exchange, messages.confirmation()))
    assert said_to(reset) == [*engine_records(EngineSettings()), mark(10), mark(1)]


def test_a_greeting_may_depend_on_what_the_simulator_can_do(
    make_bridge: Any, connect: Any, messages: Any
) -> None:
    known: list[SimulatorInfo] = []
    bridge = make_bridge(greeting=lambda number: [known.append(bridge.simulators[number])][:0])
    simulator = connect(bridge.listen(port=0))
    assert bridge.simulators == {}
    introduction = messages.introduction(version="1.2.0", package="2.0.1")
    introduction.unity_output.rl_initialization_output.capabilities.trainingAnalytics = True
    answered(bridge, simulator.later(simulator.exchange, introduction))
    assert known == []
    answered(bridge, simulator.later(simulator.exchange, messages.confirmation()))
    assert known == [SimulatorInfo("2.0.1", "1.2.0", frozenset({"trainingAnalytics"}))]
    assert dict(bridge.simulators) == {0: known[0]}
    simulator.later(simulator.exchange, messages.goodbye())
    next_departure(bridge)
    assert bridge.simulators == {}


def test_what_is_sent_rides_on_the_next_reply_in_its_order(
    make_bridge: Any, connect: Any, messages: Any
) -> None:
    bridge = make_bridge()
    port = bridge.listen(port=0)
    replies = []
    for simulator in (connect(port), connect(port)):
        replies.append(simulator.later(simulator.start, messages.first_step()))
    ticks = next_events(bridge, 2)
    bridge.send([mark(1)], 0)
    bridge.send(mark(number) for number in (2, 3))
    bridge.send([mark(4)], 1)
    for tick in ticks:
        act(bridge, tick)
    by_number = dict(zip((0, 1), (reply.result(LONG_S) for reply in replies), strict=True))
    assert said_to(by_number[0]) == [mark(1), mark(2), mark(3)]
    assert said_to(by_number[1]) == [mark(2), mark(3), mark(4)]


def test_what_was_sent_is_not_said_again(make_bridge: Any, connect: Any, messages: Any) -> None:
    bridge = make_bridge()
    simulator = connect(bridge.listen(port=0))
    first = simulator.later(simulator.start, messages.first_step())
    tick = next_tick(bridge)
    bridge.send([mark(1)])
    act(bridge, tick)
    second = simulator.later(simulator.exchange, messages.step())
    act(bridge, next_tick(bridge))
    assert said_to(first.result(LONG_S)) == [mark(1)]
    assert said_to(second.result(LONG_S)) == []


def test_those_who_come_later_are_greeted_and_hear_nothing_that_was_sent_before(
    make_bridge: Any, connect: Any, messages: Any
) -> None:
    bridge = make_bridge(greeting=lambda simulator: [mark(100 + simulator)])
    port = bridge.listen(port=0)
    early = connect(port)
    early.later(early.start, messages.first_step())
    act(bridge, next_tick(bridge))
    late = connect(port)
    answered(bridge, late.later(late.exchange, messages.introduction()))
    bridge.send([mark(1)])
    assert said_to(answered(bridge, late.later(late.exchange, messages.confirmation()))) == [mark(101)]


def test_more_than_unity_takes_in_a_reply_is_spread_over_several(
    make_bridge: Any, connect: Any, messages: Any
) -> None:
    bridge = make_bridge()
    simulator = connect(bridge.listen(port=0))
    records = [SideChannelRecord(UUID(int=number), bytes(1_000_000)) for number in range(5)]
    first = simulator.later(simulator.start, messages.first_step())
    tick = next_tick(bridge)
    bridge.send(records)
    act(bridge, tick)
    second = simulator.later(simulator.exchange, messages.step())
    act(bridge, next_tick(bridge))
    assert said_to(first.result(LONG_S)) == records[:3]
    assert said_to(second.result(LONG_S)) == records[3:]


def test_who_departed_hears_nothing_and_who_never_was_is_our_mistake(
    make_bridge: Any, connect: Any, messages: Any
) -> None:
    bridge = make_bridge()
    simulator = connect(bridge.listen(port=0))
    simulator.later(simulator.start, messages.first_step())
    act(bridge, next_tick(bridge))
    simulator.later(simulator.exchange, messages.goodbye())
    next_departure(bridge)
    bridge.send([mark(1)], 0)
    bridge.send([mark(1)])
    for number in (1, -1):
        with pytest.raises(ValueError, match=f"there is no simulator {number}"):
            bridge.send([mark(1)], number)


def test_a_tick_may_be_answered_with_reset(make_bridge: Any, connect: Any, messages: Any) -> None:
    bridge = make_bridge()
    simulator = connect(bridge.listen(port=0))
    first = simulator.later(simulator.start, messages.first_step())
    tick = next_tick(bridge)
    bridge.send([mark(1)])
    bridge.reset(tick.simulator, [mark(2)])
    rl_input = first.result(LONG_S).unity_input.rl_input
    assert (rl_input.command, dict(rl_input.agent_actions)) == (RESET, {})
    assert said_to(first.result(LONG_S)) == [mark(1), mark(2)]
    with pytest.raises(ValueError, match=r"simulator 0 \(.*\) has no tick to answer"):
        bridge.reset(tick.simulator)
    second = simulator.later(simulator.exchange, messages.step([(7, 8, 9)]))
    tick = next_tick(bridge)
    assert tick.steps[BALL].observations[0].tolist() == [[7, 8, 9]]
    act(bridge, tick, 0.5)
    assert actions_in(second.result(LONG_S)) == [[0.5, 0.5]]


def test_silence_after_a_reset_is_named_too(make_bridge: Any, connect: Any, messages: Any) -> None:
    bridge = make_bridge(timeout_wait_s=SHORT_S)
    simulator = connect(bridge.listen(port=0))
    simulator.later(simulator.start, messages.first_step())
    bridge.reset(next_tick(bridge).simulator)
    assert "silent for 1 s (timeout_wait)" in next_departure(bridge).reason


def test_who_departed_is_reset_in_vain(make_bridge: Any, connect: Any, messages: Any) -> None:
    bridge = make_bridge()
    simulator = connect(bridge.listen(port=0))
    simulator.later(simulator.start, messages.first_step())
    act(bridge, next_tick(bridge))
    call = simulator.raw_call(messages.step().SerializeToString())
    tick = next_tick(bridge)
    call.cancel()
    next_departure(bridge)
    bridge.reset(tick.simulator, [mark(1)])
    with pytest.raises(ValueError, match="simulator 0 has no tick to answer"):
        bridge.reset(tick.simulator)


def test_the_editor_may_stop_and_play_on_one_connection_as_often_as_it_likes(
    make_bridge: Any, connect: Any, messages: Any, caplog: pytest.LogCaptureFixture
) -> None:
    bridge = make_bridge(greeting=lambda simulator: [mark(simulator)])
    port = bridge.listen(port=0)
    editor = connect(port)
    for number in range(3):
        answered(bridge, editor.later(editor.exchange, messages.introduction()))
        reset = answered(bridge, editor.later(editor.exchange, messages.confirmation()))
        assert said_to(reset) == [mark(number)]
        played = editor.later(editor.exchange, messages.first_step())
        tick = next_tick(bridge)
        assert (tick.simulator, list(tick.new_specs)) == (number, [BALL])
        act(bridge, tick)
        played.result(LONG_S)
        caplog.clear()
        with caplog.at_level("INFO"):
            editor.later(editor.exchange, messages.goodbye())
            assert next_departure(bridge).simulator == number
        assert f"Nobody is attached to 127.0.0.1:{port}. Press Play in the Unity Editor within 60 s" in (
            caplog.text
        )


def test_an_editor_that_was_killed_may_come_back_beside_its_own_silence(
    make_bridge: Any, connect: Any, messages: Any
) -> None:
    bridge = make_bridge(timeout_wait_s=2 * SHORT_S)
    port = bridge.listen(port=0)
    killed = connect(port)
    killed.later(killed.start, messages.first_step())
    act(bridge, next_tick(bridge))
    killed.close()
    again = connect(port)
    reply = again.later(again.start, messages.first_step())
    tick = next_tick(bridge)
    assert tick.simulator == 1
    departure = next_departure(bridge)
    assert (departure.simulator, "it owes its next step" in departure.reason) == (0, True)
    act(bridge, tick)
    assert reply.result(LONG_S).header.status == 200


def test_a_simulator_that_misses_what_every_one_can_do_is_pointed_out(
    make_bridge: Any, connect: Any, messages: Any, caplog: pytest.LogCaptureFixture
) -> None:
    bridge = make_bridge()
    port = bridge.listen(port=0)
    for able in (True, False):
        simulator = connect(port)
        introduction = messages.introduction()
        introduction.unity_output.rl_initialization_output.capabilities.baseRLCapabilities = able
        with caplog.at_level("WARNING"):
            answered(bridge, simulator.later(simulator.exchange, introduction))
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
    next_tick(first)
    first.close()
    assert make_bridge().listen(port=port) == port


def test_an_address_of_another_machine_is_refused(make_bridge: Any) -> None:
    with pytest.raises(BridgeError, match=r"192\.0\.2\.1:5999: cannot listen: "):
        make_bridge().listen("192.0.2.1", 5999)


def test_nobody_attaching_is_an_error_that_says_what_to_do(make_bridge: Any) -> None:
    bridge = make_bridge(timeout_wait_s=0.05)
    port = bridge.listen(port=0)
    with pytest.raises(LaunchError, match=f"nobody attached to 127.0.0.1:{port} within 0.05 s .*press Play"):
        bridge.receive(LONG_S)


def test_nobody_coming_back_is_an_error_that_says_who_left(
    make_bridge: Any, connect: Any, messages: Any
) -> None:
    bridge = make_bridge(timeout_wait_s=SHORT_S)
    simulator = connect(bridge.listen(port=0))
    simulator.later(simulator.start, messages.first_step())
    act(bridge, next_tick(bridge))
    simulator.later(simulator.exchange, messages.goodbye())
    next_departure(bridge)
    with pytest.raises(SimulatorLost, match=r"that was simulator 0 \(.*\): stopped by itself"):
        bridge.receive(LONG_S)


def test_closing_answers_those_who_wait_with_stop(make_bridge: Any, connect: Any, messages: Any) -> None:
    bridge = make_bridge()
    port = bridge.listen(port=0)
    replies = []
    for simulator in (connect(port), connect(port)):
        replies.append(simulator.later(simulator.start, messages.first_step()))
    next_events(bridge, 2)
    bridge.close()
    bridge.close()
    assert [reply.result(LONG_S).header.status for reply in replies] == [400, 400]


def test_closing_waits_for_those_whose_turn_it_is(make_bridge: Any, connect: Any, messages: Any) -> None:
    bridge = make_bridge(shutdown_grace_s=LONG_S)
    simulator = connect(bridge.listen(port=0))
    first = simulator.later(simulator.start, messages.first_step())
    act(bridge, next_tick(bridge))
    first.result(LONG_S)
    reply = simulator.later(simulator.exchange, messages.step())
    bridge.close()
    assert reply.result(LONG_S).header.status == 400
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("exchange")]


@posix_only
def test_launched_simulators_get_a_port_a_seed_and_a_log_each(
    make_bridge: Any, simulator_program: Callable[[str], Command], tmp_path: Path
) -> None:
    bridge = make_bridge()
    assert bridge.launch(simulator_program("print introduce confirm first forever"), 2) == [0, 1]
    ticks = next_events(bridge, 2)
    assert {tick.simulator for tick in ticks} == {0, 1}
    for tick in ticks:
        act(bridge, tick)
    assert {tick.simulator for tick in next_events(bridge, 2)} == {0, 1}
    for number in (0, 1):
        assert (tmp_path / f"run_logs/Player-{number}.log").read_text() == "the ball is lost\n"


@posix_only
def test_closing_ends_launched_processes(
    make_bridge: Any, simulator_program: Callable[[str], Command]
) -> None:
    bridge = make_bridge(shutdown_grace_s=LONG_S)
    bridge.launch(simulator_program("introduce confirm first forever"))
    tick = next_tick(bridge)
    act(bridge, tick)
    bridge.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid_of(tick), 0)


@posix_only
def test_a_program_that_exits_at_once_is_quoted(
    make_bridge: Any, simulator_program: Callable[[str], Command], tmp_path: Path
) -> None:
    bridge = make_bridge()
    bridge.launch(simulator_program("print exit"))
    with pytest.raises(LaunchError) as failure:
        bridge.receive(LONG_S)
    first, last = str(failure.value).splitlines()
    assert re.fullmatch(
        r"simulator 0 \(test, pid \d+\): exited with code 3, before its first step; "
        rf"its last lines \({tmp_path}/run_logs/Player-0\.log\):",
        first,
    )
    assert last == "  the ball is lost"


@posix_only
def test_a_program_that_cannot_be_started_leaves_nothing_behind(make_bridge: Any, tmp_path: Path) -> None:
    bridge = make_bridge()
    with pytest.raises(LaunchError, match="cannot be started"):
        bridge.launch(Command(env="gone", executable=(str(tmp_path / "gone"),)))
    assert bridge.receive(0.0) == []


@pytest.fixture
def idle_program(make_program: Callable[[str, str], Path]) -> Command:
    """A process that runs and never connects: the test may speak in its place."""
    path = make_program("idle.py", "import threading\nthreading.Event().wait()\n")
    return Command(env="idle", executable=(str(path),))


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    return port


@posix_only
@pytest.mark.parametrize(
    ("said", "owed"),
    [
        ([], r"its introduction \(the first message of the handshake\)"),
        (["introduction"], "the second message of the handshake"),
        (["introduction", "confirmation"], "its first step, after the reset"),
    ],
)
def test_a_program_that_goes_silent_in_the_handshake_is_named_with_what_it_owes(
    make_bridge: Any,
    connect: Any,
    messages: Any,
    idle_program: Command,
    free_port: int,
    said: list[str],
    owed: str,
) -> None:
    bridge = make_bridge(timeout_wait_s=SHORT_S, base_port=free_port)
    bridge.launch(idle_program)
    simulator = connect(free_port)
    for message in said:
        simulator.later(simulator.exchange, getattr(messages, message)())
    with pytest.raises(
        LaunchError, match=rf"simulator 0 \(idle, pid \d+\): silent for 1 s \(timeout_wait\); it owes {owed}"
    ):
        bridge.receive(LONG_S)


@posix_only
def test_a_bad_introduction_of_a_launched_program_ends_the_run(
    make_bridge: Any, connect: Any, messages: Any, idle_program: Command, free_port: int
) -> None:
    bridge = make_bridge(base_port=free_port)
    bridge.launch(idle_program)
    simulator = connect(free_port)
    reply = simulator.later(simulator.exchange, messages.introduction("2.0.0"))
    with pytest.raises(LaunchError, match=r"the simulator speaks 2\.0\.0.*, before its first step"):
        bridge.receive(LONG_S)
    assert "the simulator speaks 2.0.0" in refusal(reply)


@posix_only
@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ("exit", "exited with code 3; starting it again"),
        ("die", "was killed by SIGKILL; starting it again"),
        ("goodbye", "stopped by itself (status 400), then exited with code 0; starting it again"),
    ],
)
def test_a_launched_simulator_that_ends_is_started_again_and_the_others_go_on(
    make_bridge: Any, simulator_program: Callable[[str], Command], end: str, reason: str
) -> None:
    bridge = make_bridge()
    bridge.launch(simulator_program("introduce confirm first forever"))
    survivor = next_tick(bridge)
    bridge.launch(simulator_program(f"introduce confirm first {end}"))
    lost = next_tick(bridge)
    act(bridge, lost)
    departure = next_departure(bridge)
    assert departure.simulator == lost.simulator == 1
    assert departure.reason == f"simulator 1 (test, pid {pid_of(lost)}): {reason}"
    again = next_tick(bridge)
    assert again.simulator == 1
    assert list(again.new_specs) == [BALL]
    assert pid_of(again) != pid_of(lost)
    act(bridge, survivor)
    assert pid_of(next_tick(bridge)) == pid_of(survivor)


@posix_only
def test_a_launched_simulator_that_was_started_again_is_greeted_again_with_what_holds_then(
    make_bridge: Any, connect: Any, messages: Any, idle_program: Command, free_port: int
) -> None:
    lesson = 1
    bridge = make_bridge(base_port=free_port, greeting=lambda simulator: [mark(lesson)])
    bridge.launch(idle_program)
    first = connect(free_port)
    first.later(first.exchange, messages.introduction())
    reset = first.later(first.exchange, messages.confirmation())
    first.later(first.exchange, messages.first_step())
    tick = next_tick(bridge)
    assert said_to(reset.result(LONG_S)) == [mark(1)]
    bridge.send([mark(50)])
    (info,) = bridge.simulators.values()
    assert info.package_version == "3.0.0"
    bridge.reject(tick.simulator, "for a reason")
    assert next_departure(bridge).reason.endswith("starting it again")
    lesson = 2
    again = connect(free_port)
    again.later(again.exchange, messages.introduction())
    reset = again.later(again.exchange, messages.confirmation())
    reply = again.later(again.exchange, messages.first_step())
    tick = next_tick(bridge)
    assert said_to(reset.result(LONG_S)) == [mark(2)]  # and nothing that was meant for its predecessor
    act(bridge, tick)
    assert said_to(reply.result(LONG_S)) == []


@posix_only
def test_a_launched_simulator_killed_while_it_waits_for_actions_is_started_again(
    make_bridge: Any, simulator_program: Callable[[str], Command]
) -> None:
    bridge = make_bridge()
    bridge.launch(simulator_program("introduce confirm first forever"))
    tick = next_tick(bridge)
    os.kill(pid_of(tick), signal.SIGKILL)
    assert next_departure(bridge).reason.endswith("was killed by SIGKILL; starting it again")
    act(bridge, tick)  # answered in vain, and not in the place of its successor
    assert pid_of(next_tick(bridge)) != pid_of(tick)


@posix_only
def test_a_launched_simulator_that_falls_silent_is_killed_and_started_again(
    make_bridge: Any, connect: Any, messages: Any, idle_program: Command, free_port: int
) -> None:
    bridge = make_bridge(timeout_wait_s=SHORT_S, base_port=free_port)
    bridge.launch(idle_program)
    simulator = connect(free_port)
    simulator.later(simulator.start, messages.first_step())
    act(bridge, next_tick(bridge))
    reason = next_departure(bridge).reason
    assert "silent for 1 s (timeout_wait); it owes its next step" in reason
    assert reason.endswith("while its process still runs; starting it again")
    with pytest.raises(ProcessLookupError):
        os.kill(int(re.search(r"pid (\d+)", reason)[1]), 0)  # type: ignore[index]  # it is there


@posix_only
def test_a_launched_simulator_that_says_goodbye_and_stays_is_killed_and_started_again(
    make_bridge: Any, connect: Any, messages: Any, idle_program: Command, free_port: int
) -> None:
    bridge = make_bridge(base_port=free_port)
    bridge.launch(idle_program)
    simulator = connect(free_port)
    simulator.later(simulator.start, messages.first_step())
    act(bridge, next_tick(bridge))
    simulator.later(simulator.exchange, messages.goodbye())
    simulator.later(simulator.exchange, messages.step())  # met with stop, and no excuse
    assert next_departure(bridge).reason.endswith(
        "stopped by itself (status 400), while its process still runs; starting it again"
    )


@posix_only
def test_restarts_that_are_used_up_end_the_run(
    make_bridge: Any, simulator_program: Callable[[str], Command]
) -> None:
    bridge = make_bridge(max_lifetime_restarts=1, restarts_rate_limit_n=-1)
    bridge.launch(simulator_program("introduce confirm first print exit"))
    act(bridge, next_tick(bridge))
    assert "starting it again" in next_departure(bridge).reason
    act(bridge, next_tick(bridge))
    with pytest.raises(SimulatorLost) as failure:
        bridge.receive(LONG_S)
    assert "exited with code 3; it was already started again 1 of at most 1 times" in str(failure.value)
    assert str(failure.value).endswith("  the ball is lost")


@posix_only
def test_an_attached_process_that_is_killed_while_it_waits_departs(
    make_bridge: Any, simulator_program: Callable[[str], Command]
) -> None:
    bridge = make_bridge()
    port = bridge.listen(port=0)
    plan = simulator_program("introduce confirm first forever")
    process = subprocess.Popen([*plan.executable, "--mlagents-port", str(port), *plan.arguments])
    tick = next_tick(bridge)
    process.kill()
    process.wait()
    departure = next_departure(bridge)
    assert departure.simulator == tick.simulator
    assert departure.reason.endswith("closed its connection while it waited for a reply")


@posix_only
def test_a_base_port_that_is_taken_is_named(make_bridge: Any, idle_program: Command) -> None:
    with socket.create_server(("127.0.0.1", 0)) as owner:
        port = owner.getsockname()[1]
        bridge = make_bridge(base_port=port)
        with pytest.raises(PortInUse, match=f"127.0.0.1:{port} is in use"):
            bridge.launch(idle_program)
