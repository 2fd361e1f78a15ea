"""HTTP/2 by hand, for calls that no gRPC library would make. Only to this machine."""

from __future__ import annotations

import select
import socket
import struct
from typing import Self

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 3, 4, 6, 8
INITIAL_WINDOW_SIZE = 4
END_STREAM, END_HEADERS, ACK = 1, 4, 1
EXCHANGE = "/communicator_objects.UnityToExternalProto/Exchange"


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def headers(stream: int, **more: str) -> bytes:
    """A call that begins."""
    fields = {
        ":method": "POST", ":scheme": "http", ":path": EXCHANGE, ":authority": "localhost", "te": "trailers",
        "content-type": "application/grpc", **{name.replace("_", "-"): value for name, value in more.items()},
    }  # fmt: skip
    block = b"".join(b"\0" + _text(name) + _text(value) for name, value in fields.items())
    return frame(HEADERS, END_HEADERS, stream, block)


def message(
    stream: int, data: bytes, *, compressed: bool = False, length: int | None = None, end: bool = True
) -> bytes:
    """The message of a call, in frames of 16 KiB; ``length`` is what its head says, right if None."""
    body = struct.pack(">BI", compressed, len(data) if length is None else length) + data
    parts = [body[start : start + 16384] for start in range(0, len(body), 16384)] or [b""]
    return b"".join(
        frame(DATA, END_STREAM if end and part is parts[-1] else 0, stream, part) for part in parts
    )


def reset(stream: int) -> bytes:
    return frame(RST_STREAM, 0, stream, struct.pack(">I", 8))


def _widen(windows: dict[int, int], stream: int, data: bytes) -> bytes:
    """Opens the windows as frames say, and takes away a stream that is over. Returns the frame that is incomplete."""
    while len(data) >= 9 and len(data) >= 9 + (size := int.from_bytes(data[:3], "big")):
        kind, flags, about, content = data[3], data[4], int.from_bytes(data[5:9], "big"), data[9 : 9 + size]
        data = data[9 + size :]
        if kind == WINDOW_UPDATE and about in windows:
            windows[about] += int.from_bytes(content, "big")
        elif kind == SETTINGS and not flags & ACK and stream in windows:
            for place in range(0, size, 6):
                name, value = struct.unpack_from(">HI", content, place)
                if name == INITIAL_WINDOW_SIZE:
                    windows[stream] += value - 65535
        elif about == stream and (kind == RST_STREAM or flags & END_STREAM):
            windows.pop(stream, None)
    return data


def _text(text: str) -> bytes:
    data = text.encode()
    assert len(data) < 127
    return bytes([len(data)]) + data


class Line:
    """A connection to a port of this machine, which reads answers only when asked to."""

    def __init__(self, port: int, *, greet: bool = True) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20.0)
        if greet:
            self.send(PREFACE + frame(SETTINGS, 0, 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, data: bytes) -> bool:
        """Whether the other side still takes it."""
        try:
            self.socket.sendall(data)
        except OSError:
            return False
        return True

    def pour(self, stream: int, data: bytes, *, compressed: bool = False, patience_s: float = 10.0) -> bool:
        """Sends a large message as fast as the other side's windows allow. Whether it took all of it."""
        body = memoryview(struct.pack(">BI", compressed, len(data)) + data)
        windows = {0: 65535, stream: 65535}
        unread = b""
        self.socket.settimeout(patience_s)
        try:
            while body:
                room = min(*windows.values(), 16384)
                if room > 0:
                    part, body = body[:room], body[room:]
                    self.socket.sendall(frame(DATA, 0 if body else END_STREAM, stream, bytes(part)))
                    windows = {each: left - len(part) for each, left in windows.items()}
                if room <= 0 or select.select([self.socket], [], [], 0.0)[0]:
                    if not (received := self.socket.recv(1 << 16)):
                        return False
                    unread = _widen(windows, stream, unread + received)
                    if stream not in windows:
                        return False
        except OSError:
            return False
        return True

    def drain(self) -> None:
        """Reads away what came, so that the other side may go on; waits for nothing."""
        self.socket.setblocking(False)
        try:
            while self.socket.recv(1 << 16):
                pass
        except OSError:
            pass
        finally:
            self.socket.settimeout(20.0)

    def close(self) -> None:
        self.socket.close()
