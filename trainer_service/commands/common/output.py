"""Output of commands: results on standard output, everything on the way to them on standard error."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from trainer_service.running.runs.files import with_short_paths
from unity_bridge.untrusted_text import harmless

_PROGRESS_INTERVAL_S = 30.0
"""Seconds between lines on an evaluation's progress outside a terminal."""


def say(text: object) -> None:
    """Prints a result. Text of files, simulators and other machines cannot move the cursor or forge a line of ours."""
    print(harmless(str(text)), flush=True)


def note(text: object) -> None:
    """Prints text besides the result, as ``say`` does."""
    print(harmless(str(text)), file=sys.stderr, flush=True)


def say_json(value: object, *, indent: int | None = None) -> None:
    """Prints a result for programs. JSON itself escapes non-ASCII characters."""
    print(json.dumps(value, indent=indent), flush=True)


class CommandResult(NamedTuple):
    """The result of a command, as one object for programs and as lines for people."""

    value: object
    words: Iterable[object]
    exit_code: int = 0

    def to_json(self) -> object:
        """The result for programs."""
        return self.value

    def lines(self) -> Iterable[object]:
        """The result in words."""
        return self.words


def progress_printer(what: str = "episodes") -> Callable[[int, int], None]:
    """A function that prints how many episodes are done: all the time on a terminal, elsewhere now and then."""
    if sys.stderr.isatty():
        return lambda done, wanted: print(
            f"{done} of {wanted} {what}", end="\n" if done >= wanted else "\r", file=sys.stderr, flush=True
        )
    printed_s = time.monotonic()

    def print_progress(done: int, wanted: int) -> None:
        nonlocal printed_s
        if time.monotonic() - printed_s >= _PROGRESS_INTERVAL_S:
            printed_s = time.monotonic()
            note(f"{done} of {wanted} {what}")

    return print_progress


@contextmanager
def ignoring_closed_output() -> Iterator[None]:
    """A context in which printing is no error where the terminal or the pipe is gone."""
    try:
        yield
    except OSError:
        silence_output()


def silence_output() -> None:
    """Sends the rest of the output nowhere, so that not even the ending interpreter fails to write it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())


def print_error(message: str) -> None:
    with ignoring_closed_output():
        note(f"mlagents-style: error: {with_short_paths(message)}")


def print_warning(message: str) -> None:
    note(f"[WARNING] {message}")
