"""NaN, infinities and numbers out of all proportion become 0 and are counted; where they do not stop, it ends."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from unity_bridge.codec import unusable_values
from unity_bridge.codec.step_decoder import StepDecoder
from unity_bridge.codec.unusable_values import LARGEST_OBSERVED, LARGEST_REWARD, MOST_ROWS_IN_A_ROW
from unity_bridge.errors import WireError
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec
from unity_bridge.steps import StepBatch
from unity_bridge.throttled_logger import ThrottledLogger
from unity_bridge.wire.agent_info_pb2 import AgentInfoProto
from unity_bridge.wire.observation_pb2 import ObservationProto

BALL = "Ball?team=0"
SENSORS = (ObservationSpec("state", (3,)), ObservationSpec("list", (2, 2)), ObservationSpec("eye", (1, 2, 3)))
SPEC = BehaviorSpec(SENSORS, ActionSpec(1))
IN_A_ROW = 2 + sum(sensor.size for sensor in SENSORS)
"""Values of one agent's row, both rewards included."""

UNUSABLE = [np.nan, np.inf, -np.inf, 3e38, -2e15]


@pytest.fixture(autouse=True)
def _throttled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unusable_values, "_throttled", ThrottledLogger(logging.getLogger()))


def row(values: Sequence[float] | NDArray[np.float32], agent: int = 1, **fields: Any) -> bytes:
    """One agent's row: reward, group reward, then what its sensors saw, [IN_A_ROW]."""
    reward, group_reward, *seen = map(float, values)
    observations = []
    for sensor in SENSORS:
        floats, seen = seen[: sensor.size], seen[sensor.size :]
        data = ObservationProto.FloatData(data=floats)
        observations.append(ObservationProto(name=sensor.name, shape=sensor.shape, float_data=data))
    return AgentInfoProto(
        id=agent, reward=reward, group_reward=group_reward, observations=observations, **fields
    ).SerializeToString()


def good(agent: int = 1, **fields: Any) -> bytes:
    return row(np.arange(1, IN_A_ROW + 1), agent, **fields)


def bad(agent: int = 1, *places: int) -> bytes:
    values = np.arange(1, IN_A_ROW + 1, dtype=np.float32)
    values[list(places) or slice(None)] = np.nan
    return row(values, agent)


def table(batch: StepBatch) -> NDArray[np.float32]:
    """All values, as row() takes them."""
    n = len(batch)
    parts = [batch.rewards, batch.group_rewards, *batch.observations]
    return np.concatenate([part.reshape(n, -1) for part in parts], axis=1)


@pytest.mark.parametrize("value", UNUSABLE)
@pytest.mark.parametrize("place", range(IN_A_ROW))
def test_each_becomes_zero_wherever_it_stands_and_nothing_else_changes(value: float, place: int) -> None:
    expected = np.arange(1, IN_A_ROW + 1, dtype=np.float32)
    sent = expected.copy()
    sent[place], expected[place] = value, 0
    decoder = StepDecoder(BALL, SPEC)
    for _ in range(2):  # an unknown layout, then a known one
        batch = decoder.decode([good(3), row(sent, 4), good(5)])
        np.testing.assert_array_equal(table(batch)[1], expected)
        np.testing.assert_array_equal(table(batch)[[0, 2]], [range(1, IN_A_ROW + 1)] * 2)
        assert decoder.replaced == 1
    decoder.decode([good(3)])
    assert decoder.replaced == 0


def test_numbers_up_to_the_limits_are_used() -> None:
    largest = [LARGEST_REWARD, -LARGEST_REWARD, *(LARGEST_OBSERVED, -LARGEST_OBSERVED) * 6, 0][:IN_A_ROW]
    decoder = StepDecoder(BALL, SPEC)
    for agents in (range(1), range(1000)):
        batch = decoder.decode([row(largest, agent) for agent in agents])
        np.testing.assert_array_equal(table(batch), np.float32([largest] * len(agents)))
        assert decoder.replaced == 0
    decoder.decode([row([1.01 * LARGEST_REWARD, 0, *[0] * 13])])
    assert decoder.replaced == 1


def test_the_log_names_the_place_ten_times_and_then_counts(caplog: pytest.LogCaptureFixture) -> None:
    decoder = StepDecoder(BALL, SPEC)
    for _ in range(20):
        decoder.decode([*(good(agent) for agent in range(10, 40)), bad(7, 0), bad(8, 6, 7)])
    where = "behavior 'Ball?team=0', agent"
    assert caplog.messages[:2] == [
        f"{where} 7, reward: expected a finite number, got nan: it was replaced by 0",
        f"{where} 8, sensor 1 'list', float 1: expected a finite number, got nan: it was replaced by 0 "
        "(1 more in this message)",
    ]
    assert len(caplog.messages) == 20


def test_few_unusable_values_are_counted_and_end_no_conversation() -> None:
    rng = np.random.default_rng(0)
    decoder = StepDecoder(BALL, SPEC)
    injected = counted = 0
    for _ in range(150):
        values = rng.normal(size=(64, IN_A_ROW)).astype(np.float32)
        spoiled = rng.random(values.shape) < 1e-4
        values[spoiled] = rng.choice(UNUSABLE, np.count_nonzero(spoiled))
        injected += np.count_nonzero(spoiled)
        batch = decoder.decode([row(each, agent) for agent, each in enumerate(values)])
        counted += decoder.replaced
        assert np.isfinite(table(batch)).all()
    assert counted == injected > 0


class TestASimulationThatCameApart:
    """It must not be trained on zeros for ever."""

    def messages_until_refused(self, rows: list[bytes]) -> int:
        decoder = StepDecoder(BALL, SPEC)
        decoder.decode([good(agent) for agent in range(len(rows))])
        said: list[int] = []

        def say() -> None:
            while len(said) < 1000:
                said.append(1)
                decoder.decode(rows)

        with pytest.raises(WireError) as refusal:
            say()
        assert str(refusal.value).startswith("behavior 'Ball?team=0', agent 1, ")
        assert "expected a finite number, got nan; " in str(refusal.value)
        assert " values could not be used" in str(refusal.value)
        return len(said)

    def test_ends_at_once_where_everything_is_nan(self) -> None:
        assert self.messages_until_refused([bad(agent) for agent in range(1, 100)]) == 1

    def test_ends_for_one_of_many_agents_with_a_small_share(self) -> None:
        rows = [*(good(agent) for agent in range(2, 400)), bad(1)]
        assert self.messages_until_refused(rows) == MOST_ROWS_IN_A_ROW + 1

    def test_goes_on_where_the_agent_is_well_again_in_between(self) -> None:
        decoder = StepDecoder(BALL, SPEC)
        others = [good(agent) for agent in range(2, 40)]
        for n in range(3 * MOST_ROWS_IN_A_ROW):
            decoder.decode([*others, bad(1, 5) if n % 50 else good(1)])

    def test_is_excused_by_what_comes_after_a_bad_moment(self) -> None:
        decoder = StepDecoder(BALL, SPEC)
        bad_moment = [bad(agent) for agent in range(6)]
        for _ in range(10):
            decoder.decode(bad_moment)
            for _ in range(10):
                decoder.decode([good(agent) for agent in range(70)])
        decoder.decode(bad_moment)
        with pytest.raises(WireError):
            decoder.decode(bad_moment)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_refusal_is_optional_for_messages_and_fixed_for_recordings(value: float) -> None:
    sent = np.ones(IN_A_ROW, np.float32)
    sent[-1] = value
    rows = [good(3), row(sent, 4)]
    for read in (
        StepDecoder(BALL, SPEC).decode_in_order,
        StepDecoder(BALL, SPEC, refuse_unusable=True).decode,
    ):
        with pytest.raises(
            WireError, match=f"agent 4, sensor 2 'eye', float 0, 1, 2: expected a finite number, got {value}"
        ):
            read(rows)
