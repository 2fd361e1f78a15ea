"""Signals as requests: Ctrl-C, SIGTERM and a closed terminal end a saved run, twice at once; SIGUSR1 only saves it."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from types import FrameType
from typing import Any, Self

from unity_bridge.programs.program import kill_programs


def _numbers(*names: str) -> tuple[int, ...]:
    """The signals of these names that this system has."""
    return tuple(getattr(signal, name) for name in names if hasattr(signal, name))


_NUMBERS = _numbers("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
"""Signals that ask a run to end: SIGHUP is a terminal that closed (tmux, ssh); Windows has SIGBREAK instead."""
_OF_SCHEDULERS = _numbers("SIGUSR2", "SIGXCPU", "SIGALRM")
"""Signals by which a scheduler such as Slurm, or a limit of CPU time, says that the time is nearly over."""
_SAVING = _numbers("SIGUSR1")
"""Signals that ask a run to save and continue."""
_FORCING = frozenset(_numbers("SIGINT", "SIGTERM", "SIGBREAK"))
"""Signals that end a process at once, as the second one: those of persons. A limit of CPU time repeats its own every
second."""
_SAME_REQUEST_S = 0.05
"""Seconds within which several signals count as one request. A terminal, systemd or a shell sends a signal to every
process, and programs that forward signals send a second copy."""
_MANY = 4096
"""A number of signals that never come in that time."""
_NO_SIGNAL = b"\0"
"""The byte that ends the thread."""
_UPDATE_GRACE_S = 1.0
"""Seconds after a signal that an update may continue. Shorter ones end by themselves: then a resumed run is exact."""
_PRINT_TIMEOUT_S = 0.2
"""Seconds that the last message may take, where the terminal is stopped."""

_logger = logging.getLogger(__name__)


class UpdateInterrupted(Exception):
    """Raised where the run is to end and an update takes too long to be waited for."""


class StopSignals:
    """A context in which the first signal only asks, and the second ends the process at once.

    The second one does so whatever the main thread is busy with, also inside a library's C code, for a thread
    of our own waits for it. It takes the launched simulators along; the exit code is 128 + the signal's number
    (130 after Ctrl-C), as shells have it. Nothing is saved then, and no file is left half written. SIGHUP never is
    the second one: a terminal that closes sends it, and the shell in it once more. Nor is a scheduler's.

    In a process where a person continues working, a notebook's kernel, the second one raises KeyboardInterrupt instead.

    A SIGHUP that is ignored (``nohup``) stays so, and a scheduler's signal that is ignored or that has a handler.
    Outside the main thread signals cannot be caught, and nothing ever asks.
    """

    def __init__(self, *, ends_process: bool = True, owns_process: bool = False, saves: bool = True) -> None:
        """Prepares to listen.

        Args:
            ends_process: whether the second signal does; else it raises KeyboardInterrupt in the main thread.
            owns_process: whether signals of schedulers are the run's too: SIGUSR1 to save at once, and SIGUSR2,
                SIGXCPU and SIGALRM to save and end.
            saves: whether a run is saved before the end, which the messages tell.
        """
        self.requested = False
        self._save_requested = False
        self.first_signal = ""
        """The name of the signal that asked; empty where none did."""
        self._ends_process = ends_process
        self._owns_process = owns_process
        self._saves = saves
        self._signalled_s: float | None = None
        """Time of the first signal."""
        self._previous: dict[int, Any] = {}
        self._previous_wakeup = -1
        self._wakeup_writer, self._wakeup_reader = socket.socketpair()
        self._listener = threading.Thread(target=self._listen, name="signals", daemon=True)

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            return self
        self._wakeup_writer.setblocking(False)
        self._previous_wakeup = signal.set_wakeup_fd(self._wakeup_writer.fileno(), warn_on_full_buffer=False)
        for number in _NUMBERS:
            if signal.getsignal(number) is not signal.SIG_IGN or number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._on_signal)
        for number in (*_OF_SCHEDULERS, *_SAVING) if self._owns_process else ():
            if signal.getsignal(number) is signal.SIG_DFL:
                handler = self._on_save_signal if number in _SAVING else self._on_signal
                self._previous[number] = signal.signal(number, handler)
        self._listener.start()
        return self

    def __exit__(self, *raised: object) -> None:
        if self._listener.ident is not None:
            while self._previous:
                number, handler = self._previous.popitem()
                signal.signal(number, handler)
            signal.set_wakeup_fd(self._previous_wakeup)
            self._wakeup_writer.setblocking(True)
            self._wakeup_writer.send(_NO_SIGNAL)
            self._listener.join()
        self._wakeup_writer.close()
        self._wakeup_reader.close()

    @property
    def signalled(self) -> bool:
        """Whether it was a signal that asked."""
        return self._signalled_s is not None

    def request(self) -> None:
        """Requests a stop, as a signal does."""
        self.requested = True

    def take_save_request(self) -> bool:
        """Whether a signal asked for a save since the last call."""
        requested, self._save_requested = self._save_requested, False
        return requested

    def raise_if_overdue(self) -> None:
        """Raises UpdateInterrupted if a signal has waited for a while. Call it where something long may end early."""
        if self._signalled_s is not None and time.monotonic() - self._signalled_s > _UPDATE_GRACE_S:
            raise UpdateInterrupted

    def _on_save_signal(self, number: int, frame: FrameType | None) -> None:
        self._save_requested = True

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.request()
        ours = self._wakeup_writer.fileno()
        if signal.set_wakeup_fd(ours, warn_on_full_buffer=False) != ours:
            self._wakeup_writer.send(bytes([number]))  # a library took it, and our thread heard nothing
        now = time.monotonic()
        if self._signalled_s is None:
            self._signalled_s, self.first_signal = now, signal.Signals(number).name
        elif not self._ends_process and now - self._signalled_s > _SAME_REQUEST_S:
            raise KeyboardInterrupt

    def _listen(self) -> None:
        """Waits for the first signal and the second. Nothing here may wait for the main thread, or for a lock of
        the log's."""
        if self._wait_for(self._previous.keys() - set(_SAVING)) is None:
            return
        words = "Stopping: saving. Press Ctrl-C again to quit without saving."
        if not self._saves:
            words = "Stopping. Press Ctrl-C again to quit at once."
        _in_thread(lambda: _logger.info("%s", words))
        if not self._ends_process:
            self._wait_for(())  # the handler does the rest
            return
        time.sleep(_SAME_REQUEST_S)
        self._wakeup_reader.setblocking(False)
        with suppress(BlockingIOError):
            if _NO_SIGNAL in self._wakeup_reader.recv(_MANY):
                return
        self._wakeup_reader.setblocking(True)
        number = self._wait_for(_FORCING)
        if number is not None:
            _exit_now(number, saves=self._saves)

    def _wait_for(self, numbers: Collection[int]) -> int | None:
        """Waits for one of these signals, whatever others come. None if there will be no more."""
        while (received := self._wakeup_reader.recv(1)) != _NO_SIGNAL:
            if received[0] in numbers:
                return received[0]
        return None


def _exit_now(number: int, *, saves: bool) -> None:
    kill_programs()
    lost = (
        " What was learned since the last checkpoint is lost; --resume continues from there." if saves else ""
    )
    _in_thread(lambda: _print_exit_message(f"\nEnded at once.{lost}\n")).join(_PRINT_TIMEOUT_S)
    os._exit(128 + number)


def _print_exit_message(words: str) -> None:
    with suppress(OSError, ValueError, AttributeError):
        if sys.stdout.isatty():
            words = "\x1b[?25h" + words  # the cursor, which a live table hides
        os.write(sys.stderr.fileno(), words.encode())


def _in_thread(words: Callable[[], None]) -> threading.Thread:
    """Prints in a thread of its own: a terminal that is stopped would keep this one waiting."""
    thread = threading.Thread(target=words, name="last words", daemon=True)
    thread.start()
    return thread
