"""Where everything that happens around the bridge arrives, for one reader."""

from __future__ import annotations

import time
from queue import Empty, SimpleQueue
from typing import Any

from unity_bridge.grpc_core import cygrpc, usable

_SLICE_S = 0.1
"""How long the reader may sleep in gRPC's queue before it looks for what others have put in."""


class Inbox:
    """A queue that anybody may put into, and that also reads what gRPC's core has to tell.

    The reader itself waits in the core's queue: a message then wakes the thread that will act on it, and no
    other in between. Where the installed grpcio does not offer that, it is a plain queue.
    """

    def __init__(self, *, direct: bool | None = None) -> None:
        """``direct`` False reads no core queue; None does where it can."""
        self._put: SimpleQueue[Any] = SimpleQueue()
        self.core = cygrpc.CompletionQueue() if (usable() if direct is None else direct) else None
        """gRPC's queue. Each of its events carries, as its tag, what to do about it."""

    def put(self, event: Any) -> None:
        """From any thread. A sleeping reader notices within a tenth of a second."""
        self._put.put(event)

    def get(self, timeout: float) -> Any:
        """The next event. Raises Empty when none came within ``timeout`` seconds."""
        if self.core is None:
            return self._put.get(timeout=timeout) if timeout > 0 else self._put.get_nowait()
        until = time.monotonic() + timeout
        while self._put.empty():
            left = until - time.monotonic()
            if not self.turn(min(left, _SLICE_S)) and left <= 0:
                raise Empty
        return self._put.get_nowait()

    def empty(self) -> bool:
        """Whether nothing waits to be read at this moment."""
        while self._put.empty() and self.turn(0.0):
            pass
        return self._put.empty()

    def turn(self, timeout: float) -> bool:
        """Lets the core do one thing that it waits to do. False if there was none in time."""
        if self.core is None:
            return False
        # A deadline of now would sleep a millisecond, the core's grain; one long past only looks.
        event = self.core.poll(deadline=time.time() + timeout if timeout > 0 else 0.0)
        if event.completion_type == cygrpc.CompletionType.queue_timeout:
            return False
        event.tag(event)
        return True
