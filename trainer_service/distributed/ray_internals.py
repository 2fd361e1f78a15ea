"""Changes to Ray's internals. Each is undone, and skipped if Ray lacks the changed attribute."""

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
"""Seconds that Ray searches for a cluster's node on this machine; Ray's default is a minute."""

GPUS_AS_THEY_ARE = {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
"""Lets workers see GPUs that they do not use. This is Ray's present default; earlier versions warn if it is not set."""

_logger = logging.getLogger(__name__)


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Sets environment variables, and restores all variables at the end, including variables of Ray."""
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
    """Keeps this process's signal handlers: ``ray.init`` would make SIGTERM end it at once."""
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
    """Shows Ray's warnings in the trainer's log instead of on stderr, where they would break a live table.

    Ray's output about lost workers is logged in debug runs only, since the trainer reports them in one line.
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
    """Forwards records of Ray's logger to the trainer's."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            _logger.log(record.levelno, "Ray: %s", record.getMessage())


def _log_for_debugging(data: Mapping[str, Any], *_arguments: Any, **_keywords: Any) -> None:
    _logger.debug("Ray: %s", " ".join(data.get("lines", ())))


@contextmanager
def loopback_addresses() -> Iterator[None]:
    """Gives Ray's nodes the address 127.0.0.1, so that its servers listen there instead of on the network.

    Ray does so by default on systems without cluster support (macOS). Elsewhere it does so with the variable
    RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0, which Ray's processes must have from their start.
    """
    with _replaced("ray._private.ray_constants", "ENABLE_RAY_CLUSTER", False):
        yield


@contextmanager
def processes_out_of_reach() -> Iterator[None]:
    """Starts Ray's processes in separate process groups, so that they do not get signals for the trainer's group.

    Ray blocks Ctrl-C. But ``timeout``, a batch system or a closing terminal send SIGTERM and SIGHUP to the whole
    group. On macOS, Ray's own reaper needs its processes in the trainer's group.
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
    """Ends Ray's search for a cluster's node on this machine after some seconds instead of a minute."""
    name = "get_node_to_connect_for_driver"
    services = importlib.import_module("ray._private.services")
    found = getattr(services, name, None)
    with ExitStack() as stack:
        if found is not None:
            shorter = functools.partial(found, timeout_seconds=_NODE_ON_THIS_MACHINE_S)
            stack.enter_context(_replaced("ray._private.services", name, shorter))
        yield


def read_authentication_again() -> None:
    """Makes this process's Ray read RAY_AUTH_MODE and the token again. By default it keeps the values of its import."""
    internals = importlib.import_module("ray._raylet")
    with contextlib.suppress(AttributeError):
        internals.Config.initialize("")
        internals.AuthenticationTokenLoader.instance().reset_cache()


def address_of_running_cluster() -> str:
    """Returns the address for ``auto``: HOST:PORT of a cluster that was started on this machine.

    Raises:
        ConnectionError: There is no such cluster.
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
