"""Lines between a simulator and a trainer that a test can cut and break."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections import deque


class Proxy(contextlib.AbstractContextManager["Proxy"]):
    """A line to a port of this machine that stops carrying, or breaks."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.is_cut = False
        """Whether nothing arrives: all waits until the line carries again."""
        self.is_down = False
        """Whether connections are broken, and new ones are closed at once."""
        self._breaks = threading.Event()
        self._ends = False
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ends = True
        self._thread.join(10.0)
        self._listener.close()

    def break_lines(self) -> None:
        """Closes all connections, whatever is on its way; new ones are carried."""
        self._breaks.set()

    def _carry(self) -> None:
        ways: dict[socket.socket, socket.socket] = {}
        waiting: deque[tuple[socket.socket, bytes]] = deque()
        while not self._ends:
            if self._breaks.is_set() or self.is_down:
                self._breaks.clear()
                for line in ways:
                    line.close()
                ways.clear()
                waiting.clear()
            readable = select.select([self._listener, *([] if self.is_cut else ways)], [], [], 0.002)[0]
            for line in readable:
                if line.fileno() < 0:
                    continue
                if line is self._listener:
                    near = line.accept()[0]
                    if self.is_down:
                        near.close()
                        continue
                    try:
                        far = socket.create_connection(("127.0.0.1", self._target))
                    except OSError:  # nobody listens there now
                        near.close()
                        continue
                    for each in (near, far):
                        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    ways |= {near: far, far: near}
                    continue
                try:
                    data = line.recv(1 << 16)
                except OSError:
                    data = b""
                if data:
                    waiting.append((ways[line], data))
                else:  # its other half is closed when that is read
                    ways.pop(line)
                    line.close()
            while waiting and not self.is_cut:
                line, data = waiting.popleft()
                with contextlib.suppress(OSError):
                    line.sendall(data)
        for line in ways:
            line.close()
