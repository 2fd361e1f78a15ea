"""Spinning: where it is worth it, and where it ends."""

from __future__ import annotations

import pytest

from unity_bridge.fast_paths import SLOW
from unity_bridge.transport import spinner
from unity_bridge.transport.spinner import Spinner


class Clock:
    """The time, how much of it this thread has while it spins, and whether something comes after 100 µs of that."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.share = 1.0
        self.had = 0.0
        self.comes = False
        self.looks = 0
        monkeypatch.setattr(spinner.time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(spinner.time, "thread_time", lambda: self.had)

    def look(self) -> str | None:
        """Takes 10 µs."""
        self.now += 1e-5
        self.had += 1e-5 * self.share
        self.looks += 1
        return "event" if self.comes and self.looks % 10 == 0 else None


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.delenv(SLOW, raising=False)
    return Clock(monkeypatch)


def quick(cores: int = 2) -> Spinner:
    """One whose simulators think for half a millisecond."""
    made = Spinner(cores)
    for _ in range(200):
        made.thought(5e-4)
    return made


def spin_for(made: Spinner, seconds: float, clock: Clock) -> None:
    until = clock.now + seconds
    while clock.now < until and made.span() > 0.0:
        assert made.spin(clock.look, 0.1) == ("event" if clock.comes else None)


def test_it_spins_twice_the_time_that_simulators_think(clock: Clock) -> None:
    made = quick()
    assert made.span() == pytest.approx(1e-3, rel=1e-3)
    began = clock.now
    assert made.spin(clock.look, 0.1) is None
    assert clock.now - began == pytest.approx(1e-3, abs=2e-5)


def test_it_spins_no_longer_than_it_may_wait(clock: Clock) -> None:
    began = clock.now
    assert quick().spin(clock.look, 2e-4) is None
    assert clock.now - began == pytest.approx(2e-4, abs=2e-5)


@pytest.mark.parametrize(("think", "spins"), [(1.4e-3, True), (1.6e-3, False), (5e-3, False), (30.0, False)])
def test_simulators_that_think_long_are_slept_for(clock: Clock, think: float, spins: bool) -> None:
    made = quick()
    for _ in range(300):
        made.thought(think)
    assert (made.span() > 0.0) is spins


def test_the_slow_way_has_none(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SLOW, "1")
    assert quick().span() == 0.0


@pytest.mark.parametrize(("share", "comes"), [(0.5, True), (1.0, False)], ids=["core is lost", "in vain"])
def test_where_others_want_the_core_it_pauses_ever_longer_and_tries_again(
    clock: Clock, share: float, comes: bool
) -> None:
    made, pauses = quick(), []
    clock.share, clock.comes = share, comes
    for _ in range(8):
        spin_for(made, 1.0, clock)
        began = clock.now
        while made.span() == 0.0:
            clock.now += 0.5
        pauses.append(clock.now - began)
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    clock.share, clock.comes = 1.0, True
    spin_for(made, 0.2, clock)
    assert made.span() > 0.0
    clock.share = 0.5
    spin_for(made, 1.0, clock)
    clock.now += 1.0
    assert made.span() > 0.0, "once there was room the first pause is a short one again"
