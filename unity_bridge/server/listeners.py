"""Ports to which simulators attach by themselves, and how long they may be without any."""

from __future__ import annotations

import logging

from unity_bridge.errors import BridgeError, LaunchError, SimulatorLost
from unity_bridge.throttled_logger import ThrottledLogger
from unity_bridge.transport.endpoint import Endpoint
from unity_bridge.transport.inbox import ReadingClock

LOGGER = logging.getLogger(__name__)

MAX_LOGGED = 100
"""How often it is logged that no simulator is attached: enough for a day of Play and Stop, too few for a loop of
connections to fill the log."""


class Listeners:
    """Open ports. The timeout begins when one is opened, and again whenever the last simulator left."""

    def __init__(self, timeout_wait_s: float, clock: ReadingClock | None = None) -> None:
        """clock: the clock of the timeout."""
        self._clock = clock or ReadingClock()
        self._timeout_wait_s = timeout_wait_s
        self._endpoints: list[Endpoint] = []
        self._throttled = ThrottledLogger(LOGGER)
        self.deadline: float | None = None
        """When a simulator must have attached, by the clock; None while none need to."""

    def __contains__(self, endpoint: object) -> bool:
        return endpoint in self._endpoints

    def add(self, endpoint: Endpoint) -> None:
        """Adds an open port, to which a simulator must attach in time."""
        self._endpoints.append(endpoint)
        self.deadline = self._clock.now() + self._timeout_wait_s

    def wait_for_next(self) -> None:
        """Waits for another simulator after the last one left, and logs what the user can do."""
        self.deadline = self._clock.now() + self._timeout_wait_s
        self._throttled.log(
            "no simulator",
            f"No simulator is attached to {self._addresses()}. Press Play in the Unity Editor within "
            f"{self._timeout_wait_s:g} s to continue, or attach another simulator.",
            most=MAX_LOGGED,
            level=logging.INFO,
        )

    def stop_waiting(self) -> None:
        """Stops the timeout, because a simulator is there."""
        self.deadline = None

    def check_timeout(self, now: float, last_departure: str) -> None:
        """Raises when the time is up: SimulatorLost with the last departure, LaunchError if there was none."""
        if self.deadline is None or now < self.deadline:
            return
        self.deadline = None
        raise self._no_simulator_error(last_departure)

    def stop(self) -> None:
        """Frees the ports."""
        for endpoint in self._endpoints:
            endpoint.stop()

    def _no_simulator_error(self, last_departure: str) -> BridgeError:
        nobody = f"no simulator attached to {self._addresses()} within {self._timeout_wait_s:g} s"
        if last_departure:
            return SimulatorLost(f"{nobody} after the last one left; that was {last_departure}")
        return LaunchError(f"{nobody} (timeout_wait): start a simulator, or press Play in the Unity Editor")

    def _addresses(self) -> str:
        return ", ".join(endpoint.address for endpoint in self._endpoints)
