"""Standard output and standard error whose reader never blocks the process that writes."""

from __future__ import annotations

import io
import os
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

CAPACITY = 2**20
"""Bytes that wait for a reader at most: several thousand lines."""

_PORTION = 2**16
"""Bytes of one write, about the capacity of a pipe."""

_ROOM_TIMEOUT_S = 0.1
"""Seconds that a writer gives a reader to make room, once until it has caught up. One that reads does within these."""

FLUSH_TIMEOUT_S = 2.0
"""Seconds without any progress after which the end of a process no longer waits for its reader."""

_LONGEST_FLUSH_S = 20.0
"""Seconds that the end of a process waits for a reader that is slow but reads."""

_IDLE_S = 10.0
"""Seconds without output after which the thread ends; the next output starts another one."""

_RETRY_S = 0.05
"""Seconds between two tries to write where the system would not wait itself (``O_NONBLOCK``)."""


class OutputQueue(io.RawIOBase):
    """A bounded queue of output and the thread that writes it.

    A writer waits at most a moment for a reader that has stopped. Output beyond the capacity is dropped until the
    reader has caught up; a line then says how much is missing. A reader that is gone for good, such as a closed
    terminal, gets nothing any more and makes no write fail.
    """

    def __init__(self, target: io.RawIOBase, *, capacity: int = CAPACITY) -> None:
        """target: where the thread writes, past every buffer and its lock."""
        self._target = target
        self._capacity = capacity
        self._waiting: deque[bytes] = deque()
        self._size = 0
        """Waiting bytes, including the bytes that the thread is writing."""
        self._dropped_lines = 0
        self._dropping_since_s: float | None = None
        self._progress_s = 0.0
        """When the reader last took something."""
        self._is_gone = False
        # Reentrant, as a signal's handler may print while the main thread does.
        self._changed = threading.Condition(threading.RLock())
        self._thread: threading.Thread | None = None

    def writable(self) -> bool:
        """Whether output is taken, which it always is."""
        return True

    def isatty(self) -> bool:
        """Whether the reader is a terminal."""
        return self._target.isatty()

    def fileno(self) -> int:
        """The descriptor that the thread writes to."""
        return self._target.fileno()

    def write(self, data: Any, /) -> int:
        """Queues output, or drops it where too much waits already. Returns the number of bytes in any case."""
        chunk = bytes(data)
        with self._changed:
            if self._is_gone:
                return len(chunk)
            if self._dropping_since_s is None and not self._has_room(len(chunk)):
                self._dropping_since_s = time.monotonic()
            if self._dropping_since_s is not None:
                self._dropped_lines += chunk.count(b"\n")
            else:
                self._put(chunk)
        return len(chunk)

    def drain(self, *, patience_s: float = FLUSH_TIMEOUT_S, limit_s: float = _LONGEST_FLUSH_S) -> bool:
        """Waits until everything is written, for as long as the reader continues taking it. Returns whether it is."""
        began_s = time.monotonic()
        with self._changed:
            while self._size and not self._is_gone:
                now_s = time.monotonic()
                left_s = min(max(began_s, self._progress_s) + patience_s - now_s, began_s + limit_s - now_s)
                if left_s <= 0:
                    return False
                self._changed.wait(left_s)
            return True

    def _has_room(self, size: int) -> bool:
        """Whether so much may wait besides; a reader that is merely slower than a burst gets a moment."""

        def fits() -> bool:
            return self._is_gone or not self._size or self._size + size <= self._capacity

        return fits() or self._changed.wait_for(fits, _ROOM_TIMEOUT_S)

    def _put(self, chunk: bytes) -> None:
        self._waiting.append(chunk)
        self._size += len(chunk)
        self._changed.notify_all()
        if self._thread is None or not self._thread.is_alive():  # a fork of this process has no thread
            # A daemon: a reader that never comes back must not keep the process alive.
            self._thread = threading.Thread(target=self._work, name="output", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._waiting and not self._changed.wait_for(lambda: self._waiting, _IDLE_S):
                    self._thread = None
                    return
                portion = self._portion()
            try:
                self._write(portion)
            except (OSError, ValueError):  # ValueError: it was closed
                with self._changed:
                    self._is_gone = True
                    self._waiting.clear()
                    self._changed.notify_all()
                return

    def _portion(self) -> bytes:
        """Takes what waits, up to a limit: beside a busy main thread this one gets few turns."""
        chunks: list[bytes] = []
        size = 0
        while self._waiting and size < _PORTION:
            chunks.append(self._waiting.popleft())
            size += len(chunks[-1])
        return b"".join(chunks)

    def _write(self, portion: bytes) -> None:
        """Writes all of a portion, however long the reader takes."""
        rest = memoryview(portion)
        while rest:
            written = self._target.write(rest)
            if written is None:
                time.sleep(_RETRY_S)
                continue
            rest = rest[written:]
            with self._changed:
                self._progress_s = time.monotonic()
                self._size -= written
                if not self._size:
                    self._tell_of_dropped()
                self._changed.notify_all()

    def _tell_of_dropped(self) -> None:
        if self._dropping_since_s is None:
            return
        seconds = time.monotonic() - self._dropping_since_s
        self._put(
            f"[WARNING] {self._dropped_lines} lines are missing here: nothing read this output for {seconds:.0f} s, "
            "and the run continued.\n".encode()
        )
        self._dropping_since_s, self._dropped_lines = None, 0


def unblocked(*streams: TextIO) -> list[TextIO]:
    """Returns replacements of streams that never block a writer.

    Two of one file, such as a terminal, share a queue, so that their lines keep their order. A stream that cannot keep
    anybody waiting is its own replacement: a file on disk, text in memory, and what came from here.
    """
    queues: dict[tuple[int, int], OutputQueue] = {}
    return [_unblocked(stream, queues) for stream in streams]


def _unblocked(stream: TextIO, queues: dict[tuple[int, int], OutputQueue]) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    target: Any = getattr(stream.buffer, "raw", stream.buffer)
    try:
        stream.flush()
        status = os.fstat(target.fileno())
    except (OSError, ValueError):  # it is closed, or no file
        return stream
    if isinstance(target, OutputQueue) or not _may_block(status.st_mode, target):
        return stream
    queue = queues.setdefault((status.st_dev, status.st_ino), OutputQueue(target))
    file: Any = queue
    return io.TextIOWrapper(file, stream.encoding, "backslashreplace", line_buffering=True)


def _may_block(mode: int, target: io.RawIOBase) -> bool:
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or target.isatty()


def drain(*streams: TextIO) -> bool:
    """Waits for the readers of streams from ``unblocked``, for as long as they read. Returns whether they got all."""
    for stream in streams:
        with suppress(OSError, ValueError):
            stream.flush()
    queues = {getattr(stream, "buffer", None) for stream in streams}
    drained = [queue.drain() for queue in queues if isinstance(queue, OutputQueue)]
    return all(drained)


@contextmanager
def unblocked_standard_streams() -> Iterator[None]:
    """A context in which no write waits for the readers of standard output and standard error.

    If a reader has stopped before the end of the context, later output does not wait either.
    """
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = unblocked(*before)
    try:
        yield
    finally:
        if drain(sys.stdout, sys.stderr):
            sys.stdout, sys.stderr = before


def open_standard_streams() -> None:
    """Discards output to closed standard streams, and escapes characters that they cannot encode."""
    sys.stdout, sys.stderr = _opened(sys.stdout), _opened(sys.stderr)


def _opened(stream: TextIO | None) -> TextIO:
    if stream is None:
        return Path(os.devnull).open("w", encoding="utf-8")
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    return stream
