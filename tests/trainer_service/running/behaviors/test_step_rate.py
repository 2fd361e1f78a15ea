"""The rate of steps that users see."""

from __future__ import annotations

import pytest
from clocks import Clock

from trainer_service.running.behaviors.step_rate import StepRate


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_resumed_behavior_counts_its_new_steps_only(clock: Clock) -> None:
    rate = StepRate(clock)
    rate.restart(5000)
    clock.now_s += 2
    assert rate.now(5100) == 50
    assert rate.summarize(5100) == 50


def test_what_a_summary_said_stands_until_the_next_second_is_over(clock: Clock) -> None:
    rate = StepRate(clock)
    clock.now_s += 10
    assert rate.summarize(1000) == 100
    clock.now_s += 0.5
    assert rate.now(1000) == 100, "an update goes on: that is not 0 steps a second"
    clock.now_s += 1.5
    assert rate.now(1100) == 50
    clock.now_s += 8
    assert rate.now(1100) == 10, "a simulator that stands still is seen to"


def test_a_finished_behavior_keeps_its_last_rate(clock: Clock) -> None:
    rate = StepRate(clock)
    clock.now_s += 10
    rate.summarize(1000)
    clock.now_s += 60
    assert rate.now(1000, finished=True) == 100
