"""A guard around hosted code in this process: neither it nor the trainer finds what the other has changed there.

Hosted code is an environment, a scene, or a module that is imported for a plugin. Between its calls the process is as
the trainer left it, and at its next call as it left it itself. No global random generator is part of this, because the
trainer draws from none.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # getsignal of signal makes an enum, which takes 100 times as long
import contextvars
import gc
import logging
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, NoReturn, TextIO, TypeVar, cast

from unity_bridge.errors import BridgeError

_T = TypeVar("_T")

_INT, _TERM, _HUP, _USR1, _USR2, _CHLD = _SIGNALS = tuple(
    int(getattr(signal, f"SIG{name}", signal.SIGTERM))
    for name in ("INT", "TERM", "HUP", "USR1", "USR2", "CHLD")
)
"""Signals whose handlers are the trainer's after each call. An alarm of hosted code has to find its own handler."""

_is_hosted = contextvars.ContextVar("_is_hosted", default=False)
"""Whether the code that asks is hosted."""

_os_exit = os._exit


class HostedExit(BridgeError):
    """Hosted code that asked for the end of the process."""


class OsExit(SystemExit):
    """Raised in place of ``os._exit``."""


class ProcessGuard:
    """A guard around the calls of one environment, which holds the settings of the process that it has made.

    They are the working folder, the standard streams, ``logging.disable``, the recursion limit, NumPy's error state,
    and torch's default type, default device, gradients and threads. The file mode mask, the filters of warnings and the
    handlers of signals are the trainer's again after each call. What hosted code prints goes to standard error.
    """

    def __init__(self, name: str = "it") -> None:
        """name: that messages call the hosted code by."""
        self._name = name
        context = contextvars.copy_context()  # NumPy's error state is a variable there
        context.run(_is_hosted.set, True)
        self._run = context.run
        gc.set_threshold(*(_process.thresholds or gc.get_threshold()))
        self._home = self._folder = _folder()
        self._mask = os.umask(0o077)
        os.umask(self._mask)
        self._own: Mapping[int, Any] = _process.of_program
        """Other settings that differ from the trainer's, by their place in ``_WRITERS``."""

    def call(self, function: Callable[..., _T], *arguments: Any) -> _T:
        """Calls hosted code. If it forks this process, the child ends where the call returns.

        Raises:
            HostedExit: it raised SystemExit or called ``os._exit``.
        """
        process, filters = _process, cast("Any", warnings.filters)
        process.begin()
        forks, ours, our_filters = process.forks, process.read(), filters[:]
        try:
            if self._own or self._folder != self._home:
                _change_folder(self._folder)
                _write(self._own)
            return self._run(function, *arguments)
        except SystemExit as error:
            called = "called os._exit" if isinstance(error, OsExit) else "raised SystemExit"
            raise HostedExit(f"{self._name} {called}({error.code!r}), which would end the trainer") from error
        finally:
            if process.forks != forks:
                _end_child(sys.exception())
            os.umask(self._mask)
            self._folder = _folder()
            if self._folder != self._home:
                _change_folder(self._home)
            # Changes begin or end the list. In place: a thread that saves may have another one just now.
            if len(filters) != len(our_filters) or (filters and filters[0] is not our_filters[0]):
                filters[:] = our_filters
            if not process.has_torch:
                process.look_for_torch()
            if (theirs := process.read()) != ours or self._own:
                self._own = _put_back(ours, theirs)
            process.end()

    def around(self, target: object, *methods: str) -> None:
        """Has methods of an object called behind this guard from now on."""
        for name in methods:
            setattr(target, name, partial(self.call, getattr(target, name)))


def call_guarded(function: Callable[..., _T], *arguments: Any) -> _T:
    """Calls hosted code that is called once, such as the import of a module. Raises HostedExit, as its guard does."""
    return ProcessGuard().call(function, *arguments)


def collect_garbage_seldom() -> None:
    """Has Python look for garbage seldom until it hosts code: a tenth of the time that the trainer's modules take."""
    _process.thresholds = _process.thresholds or gc.get_threshold()
    gc.set_threshold(50_000, *_process.thresholds[1:])


@contextmanager
def plain_torch(torch: Any) -> Iterator[None]:
    """A context in which torch's default type is float32 and its default device the CPU, whatever the program has set.

    At its end these are as before, and so is the number of threads. Code that is hosted meanwhile finds the program's.

    torch: the module, which the bridge does not import.
    """
    _process.look_for_torch()
    before, of_program = _process.read(), _process.of_program
    needed = (*before[:_DTYPE], torch.float32, *before[_DTYPE + 1 : -1], None)
    programs = _differing(before, needed)
    _write({place: needed[place] for place in programs})
    _process.of_program = {**of_program, **programs}
    try:
        with (
            torch.device("cpu") if torch._C._len_torch_function_stack() else nullcontext()
        ):  # a context of the program cannot be left
            yield
    finally:
        _process.of_program = of_program
        _write({place: before[place] for place in _differing(before, _process.read()) if place >= _DTYPE})


class _Process:
    """This process while it hosts code, in one call or in several of several threads."""

    def __init__(self) -> None:
        self.forks = 0
        self.thresholds: tuple[int, ...] = ()
        """Those of Python's garbage collector, where they are to come back."""
        self.of_program: Mapping[int, Any] = {}
        """Settings of the program that differ from the trainer's, by their place in ``_WRITERS``."""
        self._calls = 0
        self._stdout: Any = _Stdout(sys.stdout)
        self._lock = threading.RLock()
        self.has_torch, self.read = False, _reader(None)
        """Reads the settings in the order of ``_WRITERS``."""

    def begin(self) -> None:
        """Begins a call of hosted code, in any thread."""
        with self._lock:
            self._calls += 1
            if self._calls == 1:
                os._exit = _exit
                self._stdout.of_trainer = sys.stdout
                sys.stdout = self._stdout

    def look_for_torch(self) -> None:
        """Reads torch's settings, too, from when something has loaded it."""
        torch = sys.modules.get("torch")
        self.has_torch = hasattr(torch, "get_default_device")  # and not half loaded by another thread
        if self.has_torch:
            self.read = _reader(torch)

    def end(self) -> None:
        """Ends a call. After the last one standard output and ``os._exit`` are the program's."""
        with self._lock:
            self._calls -= 1
            if not self._calls:
                os._exit = _os_exit
                sys.stdout = getattr(sys.stdout, "of_trainer", sys.stdout)

    def after_fork(self) -> None:
        """Makes this the process of a child, in which no other thread continues."""
        self.forks += 1
        self._lock, os._exit = threading.RLock(), _os_exit


class _Stdout:
    """Standard output of a process that hosts code: for that code standard error, for all other code as ever."""

    def __init__(self, of_trainer: TextIO) -> None:
        self.of_trainer = of_trainer

    def __getattr__(self, name: str) -> Any:
        return getattr((sys.stderr if _is_hosted.get() else None) or self.of_trainer, name)


def _exit(status: int) -> NoReturn:
    """Replaces ``os._exit`` in a process that hosts code."""
    if _is_hosted.get() and os._exit is _exit:  # which it is not in a child
        raise OsExit(status)
    _os_exit(status)


def _end_child(error: BaseException | None) -> NoReturn:
    """Ends a process that hosted code has forked, as if its call there were the whole program."""
    cause = error.__cause__ if isinstance(error, HostedExit) else error
    code = getattr(cause, "code", cause and 1)
    if cause is not None and not isinstance(cause, SystemExit):
        traceback.print_exception(cause)
    _os_exit(code if isinstance(code, int) else int(code is not None))


def _folder() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return ""


def _change_folder(path: str) -> None:
    with suppress(OSError):  # what is gone cannot be gone to
        os.chdir(path)


def _reader(torch: Any) -> Callable[[], tuple[Any, ...]]:
    """A function that reads the settings in the order of ``_WRITERS``; it does not look for others, for it is timed."""
    names = ("get_default_dtype", "is_grad_enabled", "get_num_threads", "get_default_device")
    dtype, grad, threads, device = (getattr(torch, name, lambda: None) for name in names)
    modes = torch._C._len_torch_function_stack if torch else dtype  # to ask for the device takes 5 µs
    handler, limit, loggers = _signal.getsignal, sys.getrecursionlimit, logging.root.manager
    return lambda: (
        sys.stdout, sys.stderr, limit(), loggers.disable,
        handler(_INT), handler(_TERM), handler(_HUP), handler(_USR1), handler(_USR2), handler(_CHLD),
        dtype(), grad(), threads(), device() if modes() else None,
    )  # fmt: skip


def _handle(number: int, handler: Any) -> None:
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(number, handler)


_WRITERS: tuple[Callable[[Any], object], ...] = (
    partial(setattr, sys, "stdout"), partial(setattr, sys, "stderr"), sys.setrecursionlimit, logging.disable,
    *(partial(_handle, number) for number in _SIGNALS),
    *(
        lambda value, setter=f"set_{name}": getattr(sys.modules["torch"], setter)(value)
        for name in ("default_dtype", "grad_enabled", "num_threads", "default_device")
    ),
)  # fmt: skip
_DTYPE = 4 + len(_SIGNALS)


def _put_back(ours: tuple[Any, ...], theirs: tuple[Any, ...]) -> Mapping[int, Any]:
    """Makes our settings where theirs differ. Returns theirs but for handlers."""
    if ours[_DTYPE] is None and theirs[_DTYPE] is not None:  # hosted code has loaded torch
        ours = (*ours[:_DTYPE], sys.modules["torch"].float32, True, theirs[-2], None)
    changed = _differing(theirs, ours)
    _write({place: ours[place] for place in changed})
    return {place: value for place, value in changed.items() if not 4 <= place < _DTYPE}


def _differing(settings: tuple[Any, ...], others: tuple[Any, ...]) -> dict[int, Any]:
    """The settings that differ from others, by their places."""
    return {place: value for place, value in enumerate(settings) if value != others[place]}


def _write(settings: Mapping[int, Any]) -> None:
    for place, value in settings.items():
        _WRITERS[place](value)


_process = _Process()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_process.after_fork)
