from __future__ import annotations

import pytest
from ceilings import ExchangeParts, bounds_table, exchange_table, learning_table, plain_update_s, steps_per_s
from measuring import learning
from measuring.exchange import measure_exchange
from measuring.scenes import SCENES
from measuring.tick import TickCosts, measure_tick
from measuring.timing import median_us
from measuring.wire import measure_bridge, measure_ping_pong

PARTS = ExchangeParts(
    agents=12,
    ping_pong=300,
    bridge=500,
    decode=50,
    encode=10,
    simulator=200,
    plain_forward=40,
    our_forward=60,
    tick=TickCosts(140.2, 230.0),
    trainer_cpu=900.4,
)


def test_steps_per_second_by_hand() -> None:
    # 12000 steps of 12 agents are 1000 exchanges: one second, and one more for the update.
    assert steps_per_s(12, 1000.0, update_s=1.0) == pytest.approx(6000.0)


def test_an_update_is_its_gradient_steps() -> None:
    # 3 epochs of 188 minibatches, the last of which is half full.
    assert plain_update_s(1000.0) == pytest.approx(0.564)


def test_the_bounds_add_up_the_parts() -> None:
    table = bounds_table([PARTS], plain_s=0.46, update_s=0.24)
    numbers = [line.split()[-1] for line in table.strip().splitlines()[1:]]
    #   12 / 300 us, 12 / 500 us, 12000 / (0.54 + 0.46) s, 12000 / (0.76 + 0.24) s
    assert numbers == ["40,000", "24,000", "12,000", "12,000"]


def test_every_part_has_its_line() -> None:
    assert [line.split()[-1] for line in exchange_table([PARTS]).strip().splitlines()[1:]] == [
        "300", "500", "50", "10", "200", "40", "60", "140", "230", "900",
    ]  # fmt: skip
    assert learning_table([1000.0, 2000.0, 3000.0], 0.5).split()[-2:] == ["564", "500"]


def test_an_exchange_of_every_scene_can_be_measured() -> None:
    for scene, pictures in (("3dball", None), ("basic", None), ("hybrid", None), ("gridworld", "float")):
        costs = measure_exchange(f"sim:{scene}", agents=2, exchanges=4, pictures=pictures)
        assert min(costs.simulator_us, costs.decode_us, costs.encode_us) > 0
        assert len(costs.handshake) == 3


@pytest.mark.process
def test_the_wire_is_measured_with_and_without_our_bridge() -> None:
    costs = measure_exchange("sim:3dball", agents=2, exchanges=4)
    assert measure_ping_pong(costs.message, costs.reply, exchanges=3) > 0
    assert measure_bridge(costs.handshake, costs.message, exchanges=3) > 0


@pytest.mark.process
def test_a_tick_is_measured_where_episodes_end_and_where_none_does() -> None:
    costs = measure_exchange("sim:3dball", agents=12, exchanges=60)
    ticks = measure_tick(SCENES["3dball"], costs, ticks=60)
    assert min(ticks.usual_us, ticks.mixed_us) > 0


def test_learning_is_measured_on_the_shapes_of_3dball() -> None:
    assert learning.plain_forward_us(3, 2) > 0
    assert learning.our_forward_us(3, 2) > 0
    assert learning.plain_minibatch_us(4, 2) > 0


def test_the_median_is_that_of_the_counted_calls() -> None:
    calls: list[None] = []
    assert median_us(lambda: calls.append(None), repetitions=20) > 0
    assert len(calls) == 22
