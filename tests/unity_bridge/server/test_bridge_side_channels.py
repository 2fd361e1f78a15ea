"""Side channels of the bridge: records that come with ticks, and records that ride on replies."""

from __future__ import annotations

from typing import Any

import pytest
from bridge_replies import numbered, records_in

from unity_bridge.server.bridge import SimulatorInfo
from unity_bridge.side_channels import (
    EngineConfiguration,
    engine_records,
)

LONG_S = 60.0


def test_the_first_reset_orders_engine_greeting_and_sent_records(
    make_bridge: Any, connect: Any, messages: Any
) -> None:
    bridge = make_bridge(engine=EngineConfiguration(), greeting=lambda simulator: [numbered(simulator + 10)])
    simulator = connect(bridge.listen(port=0))
    bridge.answered(simulator.later(simulator.exchange, messages.introduction()))
    bridge.send([numbered(1)], 0)
    bridge.send([numbered(2)])  # to those who are greeted already: nobody
    reset = bridge.answered(simulator.later(simulator.exchange, messages.confirmation()))
    assert records_in(reset) == [*engine_records(EngineConfiguration()), numbered(10), numbered(1)]


def test_a_greeting_may_depend_on_what_the_simulator_can_do(
    make_bridge: Any, connect: Any, messages: Any
) -> None:
    known: list[SimulatorInfo] = []
    bridge = make_bridge(greeting=lambda number: [known.append(bridge.simulators[number])][:0])
    simulator = connect(bridge.listen(port=0))
    assert bridge.simulators == {}
    introduction = messages.introduction(version="1.2.0", package="2.0.1")
    introduction.unity_output.rl_initialization_output.capabilities.trainingAnalytics = True
    bridge.answered(simulator.later(simulator.exchange, introduction))
    assert known == []
    bridge.answered(simulator.later(simulator.exchange, messages.confirmation()))
    assert known == [SimulatorInfo("2.0.1", "1.2.0", frozenset({"trainingAnalytics"}))]
    assert dict(bridge.simulators) == {0: known[0]}
    simulator.later(simulator.exchange, messages.goodbye())
    bridge.next_departure()
    assert bridge.simulators == {}


def test_sent_records_ride_in_order_on_the_next_reply(make_bridge: Any, connect: Any, messages: Any) -> None:
    bridge = make_bridge()
    port = bridge.listen(port=0)
    replies, ticks = [], []
    for simulator in (connect(port), connect(port)):
        replies.append(simulator.later(simulator.start, messages.first_step()))
        ticks.append(bridge.next_tick())
    bridge.send([numbered(1)], 0)
    bridge.send(numbered(number) for number in (2, 3))
    bridge.send([numbered(4)], 1)
    for tick in ticks:
        bridge.act(tick)
    assert records_in(replies[0].result(LONG_S)) == [numbered(1), numbered(2), numbered(3)]
    assert records_in(replies[1].result(LONG_S)) == [numbered(2), numbered(3), numbered(4)]


def test_sending_to_departed_is_allowed_and_to_unknown_an_error(
    make_bridge: Any, connect: Any, messages: Any
) -> None:
    bridge = make_bridge()
    simulator = connect(bridge.listen(port=0))
    bridge.begin(simulator)
    simulator.later(simulator.exchange, messages.goodbye())
    bridge.next_departure()
    bridge.send([numbered(1)], 0)
    bridge.send([numbered(1)])
    for number in (1, -1):
        with pytest.raises(ValueError, match=f"there is no simulator {number}"):
            bridge.send([numbered(1)], number)
