"""The inbox, in which everything that happens around the bridge arrives for one reader.

``grpc._cython.cygrpc``, with which grpcio's public server is written, offers the queue that wakes the reader itself.
It is not a promised interface, so ``can_serve_directly`` is asked before anything is built on it; there is a server on
the public interface besides.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from unity_bridge.throttled_logger import ThrottledLogger
from unity_bridge.transport.spinner import Spinner

try:
    from grpc._cython import cygrpc  # type: ignore[attr-defined]  # compiled, without types
except ImportError:  # another grpcio than those we know
    cygrpc = None

_NEEDED = (
    "CompletionQueue", "CompletionType", "Server", "StatusCode", "ReceiveCloseOnServerOperation",
    "ReceiveMessageOperation", "SendInitialMetadataOperation", "SendMessageOperation",
    "SendStatusFromServerOperation",
)  # fmt: skip

__all__ = ["Inbox", "ReadingClock", "can_serve_directly", "cygrpc"]

_SLICE_S = 0.1
"""How long the reader may sleep in gRPC's queue before it looks for events of other threads."""

_MAX_POLLS = 256
"""Events of gRPC that a reader without time left may still act on: a flood of calls must not hold it."""

_WATCH_S = 1.0
_BUSY_GRACE_S = 5.0
"""How long reading may continue without an end before watchers are called all the same."""

LONGEST_GAP_S = 1.0
"""Maximum seconds between two readings, for the work between two messages, before the clock stops."""


def can_serve_directly() -> bool:
    """Whether the core of the installed grpcio has everything that is needed to serve without threads."""
    return cygrpc is not None and all(hasattr(cygrpc, name) for name in _NEEDED)


class ReadingClock:
    """A clock that stops while the reader is busy: during an update, a save, a large message, a stopped process.

    Messages sent in such a time could not be read, so that time does not count against their senders. ``now`` may be
    called from any thread.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """clock: in seconds, never backwards."""
        self._clock = clock
        self._read_at = clock()
        self._missed_s = 0.0

    def now(self) -> float:
        """Returns the time in seconds; while the reader is busy, the time of its last reading."""
        now, read_at = self._clock(), self._read_at
        return (now if now - read_at <= LONGEST_GAP_S else read_at) - self._missed_s

    def read(self) -> float:
        """Records a reading, and returns the time."""
        now = self._clock()
        if now - self._read_at > LONGEST_GAP_S:
            self._missed_s += now - self._read_at
        self._read_at = now
        return now - self._missed_s


class Inbox:
    """A queue of events from any thread, which also reads gRPC's completion queue.

    The reader itself waits in gRPC's queue: a message then wakes the thread that will act on it, and no
    other in between. Where the installed grpcio does not offer that, it is a plain queue.
    """

    def __init__(self, *, direct: bool | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """Reads a completion queue unless ``direct`` is False; where None, if the installed grpcio offers one.

        clock: what limits are measured by, in seconds.
        """
        self.clock = ReadingClock(clock)
        """The time in which the inbox is read."""
        self._put: SimpleQueue[Any] = SimpleQueue()
        self._when_handled: deque[Callable[[], None]] = deque()
        self._watchers: list[Callable[[float], None]] = []
        self._watched_at = self.clock.now()
        self._throttled = ThrottledLogger(logging.getLogger(__name__))
        self.serves_directly = can_serve_directly() if direct is None else direct
        """Whether ports are served by gRPC's completion queue."""
        self._completion_queue: Any = None
        self.spinner = Spinner()
        """How long the reader looks into gRPC's queue again and again before it sleeps in it."""

    @property
    def completion_queue(self) -> Any:
        """gRPC's queue, read as soon as a port asks for it. Each event carries, as its tag, what to do about it."""
        if self._completion_queue is None:
            self._completion_queue = cygrpc.CompletionQueue()
        return self._completion_queue

    def put(self, event: Any) -> None:
        """Adds an event, from any thread. A sleeping reader notices it within a tenth of a second."""
        self._put.put(event)

    def get(self, timeout: float) -> Any:
        """The next event. Raises Empty when none came within ``timeout`` seconds."""
        if (event := self.get_ready()) is not None:
            return event
        until = time.monotonic() + timeout
        if self._completion_queue is None:
            return self._get_of_threads(until)
        polls = 0
        while self._put.empty():
            self.clock.read()
            left = until - time.monotonic()
            came = self.poll(min(left, _SLICE_S))
            if not came:
                self._watch(_WATCH_S)
            if left <= 0:
                polls += 1
                if not came or polls > _MAX_POLLS:
                    raise Empty
        self._watch(_BUSY_GRACE_S)
        return self._put.get_nowait()

    def get_ready(self) -> Any:
        """Returns the next event that is here, after the functions of ``when_handled``; None where there is none."""
        while self._when_handled:
            self._when_handled.popleft()()
        is_empty = self.empty()
        self._watch(_WATCH_S if is_empty else _BUSY_GRACE_S)
        # A flood of calls, too many to read, may leave no event either.
        return None if is_empty or self._put.empty() else self._put.get_nowait()

    def _get_of_threads(self, until: float) -> Any:
        """The next event of a plain queue."""
        while (left := until - time.monotonic()) > 0:
            with contextlib.suppress(Empty):
                event = self._put.get(timeout=min(left, _SLICE_S))
                self._watch(_BUSY_GRACE_S)
                return event
            self._watch(_WATCH_S)
        raise Empty

    def empty(self) -> bool:
        """Whether nothing waits to be read at this moment; False where gRPC has too many events to tell."""
        for _ in range(_MAX_POLLS):
            if not self._put.empty():
                return False
            if not self.poll(0.0):
                return self._put.empty()
        return False

    def poll(self, timeout: float) -> bool:
        """Acts on one event of gRPC's queue. Returns False if there was none in time."""
        if self._completion_queue is None:
            return False
        event = self.spinner.spin(self._look, timeout) if timeout > 0 else self._look()
        if event is None and timeout > 0:
            event = self._look(time.time() + timeout)
        if event is None:
            return False
        self._do_beside(event.tag, event)
        return True

    def _look(self, deadline: float = 0.0) -> Any:
        """The next event of gRPC's queue, None where there is none until ``deadline``.

        A deadline of now would sleep a millisecond, the grain of gRPC's clock; one long past does not sleep.
        """
        event = self._completion_queue.poll(deadline=deadline)
        return None if event.completion_type == cygrpc.CompletionType.queue_timeout else event

    def when_handled(self, work: Callable[[], None]) -> None:
        """Has the reader call a function when it comes for its next event, done with those before. From any thread."""
        self._when_handled.append(work)

    def watch(self, watcher: Callable[[float], None]) -> None:
        """Has the reader call a function about once a second, with the time by ``clock``.

        It is called when all that had come is read, so that no connection is called late whose message is here.
        """
        self._watchers.append(watcher)

    def unwatch(self, watcher: Callable[[float], None]) -> None:
        """Stops calling a function; one that was never watched is no error."""
        if watcher in self._watchers:
            self._watchers.remove(watcher)

    def _watch(self, interval_s: float) -> None:
        """Calls the watchers, unless they were called within that time."""
        now = self.clock.read()
        if now >= self._watched_at + interval_s:
            self._watched_at = now
            for watcher in list(self._watchers):
                self._do_beside(watcher, now)

    def _do_beside(self, task: Callable[[Any], object], argument: Any) -> None:
        """Does a task of a port. One that fails is logged once: the reader's own work continues."""
        try:
            task(argument)
        except Exception as error:
            what = f"A task beside the simulators failed: {type(error).__name__}: {error}"
            self._throttled.log(what, what, most=1, error=error)
