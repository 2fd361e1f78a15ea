"""Foreign summary writers in threads of their own: their failures cost a warning, not the run."""

from __future__ import annotations

import logging
import math
import queue
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from trainer_service.errors import UserError
from trainer_service.running.metrics.writers import RunEnd, SummaryWriter

PATIENCE_S = 120.0
"""Seconds that one call may take: to reach a service that does not answer, a library tries for a minute or two."""

SHUTDOWN_TIMEOUT_S = 60.0
"""Seconds that a writer gets at the end of a run to send what waits and to close."""

_QUIET_S = 2.0
"""Seconds of waiting at the end that need no explanation."""

_HANDED_ON = ("write", "write_settings", "write_evaluation", "write_film", "truncate_after", "forget")
"""Methods of a writer that wait for nothing: the calls are handed on as they are."""

_logger = logging.getLogger(__name__)


class IsolatedWriter(SummaryWriter):
    """A writer in a thread of its own, which does one thing after the other.

    Where it raises, or one call takes longer than ``patience_s``, it is left out from then on, with one warning that
    names it. No call here ever waits for it but ``join``, and that until ``shutdown_timeout_s`` after ``close``.
    """

    def __init__(
        self,
        name: str,
        writer: SummaryWriter,
        *,
        patience_s: float = PATIENCE_S,
        shutdown_timeout_s: float = SHUTDOWN_TIMEOUT_S,
    ) -> None:
        """name: of the writer in warnings."""
        self._name = name
        self._writer = writer
        self._patience_s = patience_s
        self._shutdown_timeout_s = shutdown_timeout_s
        self._calls: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self._busy_since_s: float | None = None
        self._deadline_s = math.inf
        self._is_out = False
        self._lock = threading.Lock()
        # A daemon: a call that never returns must not keep the process alive.
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        for method in _HANDED_ON:
            setattr(self, method, partial(self._hand_on, getattr(writer, method)))

    def open(self) -> None:
        """Starts the thread, and opens the writer in it."""
        self._thread.start()
        self._send(self._writer.open)

    def close(self, end: RunEnd = "finished") -> None:
        """Lets the writer finish what waits, and close."""
        self._send(partial(self._writer.close, end))
        self._calls.put(None)
        self._deadline_s = time.monotonic() + self._shutdown_timeout_s

    def join(self) -> None:
        """Waits for the writer to be closed."""
        if self._is_out:
            return
        self._thread.join(min(_QUIET_S, self._left_s()))
        if self._thread.is_alive() and self._left_s():
            _logger.info("Waiting for %s, at most %.0f s.", self._name, self._left_s())
            self._thread.join(self._left_s())
        if self._thread.is_alive():
            self._leave_out(
                f"it did not end within {self._shutdown_timeout_s:g} s; its last values may be missing there"
            )

    def _left_s(self) -> float:
        """Seconds that it still has."""
        return max(0.0, self._deadline_s - time.monotonic())

    def _hand_on(self, method: Callable[..., None], *arguments: Any) -> None:
        self._send(partial(method, *arguments))

    def _send(self, call: Callable[[], Any]) -> None:
        since = self._busy_since_s
        if since is not None and time.monotonic() - since > self._patience_s:
            self._leave_out(f"it has not answered for {self._patience_s:g} s")
        if not self._is_out:
            self._calls.put(call)

    def _work(self) -> None:
        while not self._is_out and (call := self._calls.get()) is not None:
            self._busy_since_s = time.monotonic()
            try:
                call()
            except BaseException as error:  # in code of others sys.exit() is a mistake like any other
                _logger.debug("%s failed:", self._name, exc_info=error)
                words = " ".join(str(error).split())
                self._leave_out(words if isinstance(error, UserError) else f"{type(error).__name__}: {words}")
            self._busy_since_s = None

    def _leave_out(self, reason: str) -> None:
        with self._lock:
            if self._is_out:
                return
            self._is_out = True
        _logger.warning("%s is left out from here on: %s. The run continues without it.", self._name, reason)
