"""Output to pipes whose readers are slow, stop, come back or go away."""

from __future__ import annotations

import io
import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import TextIO

import pytest

from unity_bridge import unblocked_output
from unity_bridge.unblocked_output import OutputQueue, drain, open_standard_streams, unblocked

LINES = [f"line {number} {'x' * 60}\n" for number in range(5_000)]
"""More than a pipe holds, and less than the queue does."""


@pytest.fixture
def pipe() -> Iterator[tuple[io.BufferedReader, TextIO]]:
    """Both ends of a pipe."""
    reading, writing = os.pipe()
    with open(reading, "rb", closefd=False) as reader, open(writing, "w", closefd=False) as writer:
        yield reader, writer
    for descriptor in (reading, writing):
        with suppress(OSError):  # a test may have closed it
            os.close(descriptor)


def read_until(reader: io.BufferedReader, words: bytes) -> str:
    """Reads in small pieces until these words came."""
    read = b""
    while words not in read:
        read += os.read(reader.fileno(), 1000)
    return read.decode()


def test_writers_wait_for_nobody_and_no_line_is_lost(pipe) -> None:
    reader, writer = pipe
    (stream,) = unblocked(writer)
    for line in LINES:
        stream.write(line)
    assert read_until(reader, LINES[-1].encode()) == "".join(LINES)
    assert drain(stream)


def test_a_burst_waits_for_a_reader_that_reads(pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = pipe
    monkeypatch.setattr(unblocked_output, "_ROOM_TIMEOUT_S", 60.0)  # however busy the machine is
    queue = OutputQueue(writer.buffer.raw, capacity=10_000)
    read: list[str] = []
    reading = threading.Thread(target=lambda: read.append(read_until(reader, LINES[-1].encode())))
    reading.start()
    for line in LINES:
        queue.write(line.encode())
    reading.join()
    assert read == ["".join(LINES)]


def test_what_a_stopped_reader_missed_is_counted(pipe) -> None:
    reader, writer = pipe
    queue = OutputQueue(writer.buffer.raw, capacity=200_000)
    queue.write(b"." * 100_000 + b"\n")  # the pipe is full from here on
    for line in LINES:
        queue.write(line.encode())
    read = read_until(reader, b"the run continued.\n").lstrip(".\n")
    *seen, told = read.splitlines(keepends=True)
    assert seen == LINES[: len(seen)]
    (missed,) = re.findall(r"^\[WARNING\] (\d+) lines are missing here: nothing read", told)
    assert len(seen) + int(missed) == len(LINES)
    queue.write(b"the next line\n")
    assert read_until(reader, b"next line\n") == "the next line\n"


def test_the_end_does_not_wait_for_a_stopped_reader(pipe) -> None:
    _, writer = pipe
    queue = OutputQueue(writer.buffer.raw)
    for line in LINES:
        queue.write(line.encode())
    assert not queue.drain(patience_s=0.01)


def test_a_reader_that_is_gone_fails_nobody(pipe) -> None:
    reader, writer = pipe
    (stream,) = unblocked(writer)
    os.close(reader.fileno())
    for line in LINES:
        print(line, file=stream, flush=True)
    assert drain(stream)


def test_files_and_text_in_memory_are_written_directly(tmp_path) -> None:
    memory = io.StringIO()
    with (tmp_path / "log").open("w") as file:
        assert unblocked(file, memory) == [file, memory]


def test_closed_standard_streams_lead_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    open_standard_streams()
    with sys.stdout as out, sys.stderr as err:
        assert (out.write("a result"), err.write("an error")) == (8, 8)
