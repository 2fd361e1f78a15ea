"""Changes to Ray that its public interface does not offer. Each is undone, and left out where Ray has no such place."""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

_NODE_ON_THIS_MACHINE_S = 10
"""Seconds that Ray looks for a node of a cluster on this machine; its own default is a minute."""

GPUS_AS_THEY_ARE = {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
"""Lets workers see the GPUs that they do not use, as Ray does by now; earlier versions warn until it is decided."""

_logger = logging.getLogger(__name__)


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Sets environment variables, and puts all of them back at the end, those too that Ray sets."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


@contextmanager
def own_signal_handlers() -> Iterator[None]:
    """Keeps this process's signal handlers: ``ray.init`` makes SIGTERM end it at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def quiet() -> Iterator[None]:
    """Shows warnings of Ray as lines of our log instead of on stderr, where they would tear a live table apart.

    What Ray prints about workers that died goes to the log of a debug run: the trainer says so itself, in one line.
    """
    logger = logging.getLogger("ray")
    handlers, level = list(logger.handlers), logger.level
    logger.handlers = [_Forwarded()]
    try:
        with _replaced("ray._private.worker", "print_to_stdstream", _log_for_debugging):
            yield
    finally:
        logger.handlers = handlers
        logger.setLevel(level)


class _Forwarded(logging.Handler):
    """Records of Ray's logger, passed on to ours."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            _logger.log(record.levelno, "Ray: %s", record.getMessage())


def _log_for_debugging(data: Mapping[str, Any], *_arguments: Any, **_keywords: Any) -> None:
    _logger.debug("Ray: %s", " ".join(data.get("lines", ())))


@contextmanager
def loopback_addresses() -> Iterator[None]:
    """Lets Ray's nodes live at 127.0.0.1, where its servers then listen, instead of at an address of the network.

    Ray does so by itself where it supports no clusters (macOS), and everywhere with the variable
    RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0, which processes of Ray must have from their start.
    """
    with _replaced("ray._private.ray_constants", "ENABLE_RAY_CLUSTER", False):
        yield


@contextmanager
def processes_out_of_reach() -> Iterator[None]:
    """Starts Ray's processes in process groups of their own, so that signals for the trainer's group miss them.

    Ctrl-C they never get, for Ray blocks it; but ``timeout``, a batch system or a closing terminal send SIGTERM and
    SIGHUP to the whole group. On macOS Ray's own reaper needs them in the group of the trainer.
    """
    if sys.platform != "linux":
        yield
        return
    with _replaced("ray._private.services", "ConsolePopen", _PopenInGroupOfItsOwn):
        yield


class _PopenInGroupOfItsOwn(subprocess.Popen[bytes]):
    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords, process_group=0)


@contextmanager
def impatient() -> Iterator[None]:
    """Ends Ray's search for a node of the cluster on this machine after some seconds, not after a minute."""
    name = "get_node_to_connect_for_driver"
    services = importlib.import_module("ray._private.services")
    found = getattr(services, name, None)
    with ExitStack() as stack:
        if found is not None:
            shorter = functools.partial(found, timeout_seconds=_NODE_ON_THIS_MACHINE_S)
            stack.enter_context(_replaced("ray._private.services", name, shorter))
        yield


def read_authentication_again() -> None:
    """Makes this process's Ray read RAY_AUTH_MODE and the token again: it remembers what it found at its import."""
    internals = importlib.import_module("ray._raylet")
    with contextlib.suppress(AttributeError):
        internals.Config.initialize("")
        internals.AuthenticationTokenLoader.instance().reset_cache()


def address_of_running_cluster() -> str:
    """The address that ``auto`` means: HOST:PORT of a cluster that was started on this machine.

    Raises:
        ConnectionError: there is none.
    """
    from ray._private.services import canonicalize_bootstrap_address_or_die

    return str(canonicalize_bootstrap_address_or_die("auto"))


@contextmanager
def _replaced(module: str, name: str, value: object) -> Iterator[None]:
    """Replaces an attribute of a module, if the module has it."""
    owner = importlib.import_module(module)
    if not hasattr(owner, name):
        yield
        return
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
