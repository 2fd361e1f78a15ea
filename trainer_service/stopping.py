"""Ctrl-C and SIGTERM as a request: the run saves and ends by itself."""

from __future__ import annotations

import logging
import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

_logger = logging.getLogger(__name__)


class StopSignals:
    """A context in which the first signal only asks; the second ends the process as it always does.

    Outside the main thread signals cannot be caught, and nothing ever asks.
    """

    def __init__(self) -> None:
        self.requested = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._ask)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    def ask(self) -> None:
        """Asks as a signal does."""
        self.requested = True

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.ask()
        self._restore()

    def _restore(self) -> None:
        while self._previous:
            number, handler = self._previous.popitem()
            signal.signal(number, handler)
