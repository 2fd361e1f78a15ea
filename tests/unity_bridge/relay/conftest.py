"""Relays in threads of the test, which plays the trainer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from unity_bridge.programs.executables import Command
from unity_bridge.relay import conversation, relay
from unity_bridge.relay.relay import Relay
from unity_bridge.remote.dialing import PlainConnection
from unity_bridge.server.settings import BridgeSettings

LONG_S = 60.0


class RunningRelay:
    """A relay that runs in a thread until its trainer or the test ends it."""

    def __init__(
        self,
        connect: Callable[[], PlainConnection],
        command: Command | None,
        count: int,
        settings: BridgeSettings,
    ) -> None:
        self.relay = Relay(settings, connect)
        self.error: Exception | None = None
        self.port = 0
        if command is None:
            self.port = self.relay.listen(0)
        else:
            self.relay.launch(command, count)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.relay.run()
        except Exception as error:
            self.error = error

    def end(self) -> Exception | None:
        """Waits for its end. Returns the error that ended it; None for a trainer that had enough."""
        self._thread.join(LONG_S)
        assert not self._thread.is_alive()
        return self.error

    def close(self) -> None:
        endpoint = self.relay._endpoint
        self.relay._endpoint = None  # a relay without a port ends with its simulators
        if endpoint is not None:
            endpoint.stop()
        for each in list(self.relay._simulators.values()):
            each.is_over = True
        self.end()
        self.relay.close()


@pytest.fixture
def make_relay(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., RunningRelay]]:
    """Starts relays to a port, or by a function that connects: ``make_relay(port, command, count, **settings)``."""
    for module in (conversation, relay):
        monkeypatch.setattr(module, "GOODBYE_S", 0.3)  # at the end nobody plays the trainer any longer
    monkeypatch.setattr(relay, "_LOOK_S", 0.1)
    relays: list[RunningRelay] = []

    def make(
        trainer: int | Callable[[], PlainConnection],
        command: Command | None = None,
        count: int = 1,
        **settings: Any,
    ) -> RunningRelay:
        connect = trainer if callable(trainer) else lambda: PlainConnection(f"127.0.0.1:{trainer}")
        defaults = {"seed": 0, "timeout_wait_s": LONG_S, "shutdown_grace_s": 0.2}
        relays.append(RunningRelay(connect, command, count, BridgeSettings(**{**defaults, **settings})))
        return relays[-1]

    yield make
    for each in relays:
        each.close()
