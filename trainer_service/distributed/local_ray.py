"""Ray on this machine for one run: on loopback, protected by its own token, and ended with the run."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil

from trainer_service.distributed import ray_internals
from trainer_service.distributed.ray_authentication import asks_for_token
from trainer_service.errors import UserError

LOOPBACK = "127.0.0.1"
_SHARE_OF_MEMORY = 0.3
"""Largest share of this machine's memory for objects in transfer between processes."""
_SHARE_OF_SHARED_MEMORY = 0.9
_LEAST_OBJECT_MEMORY = 80 * 2**20
"""Bytes, a little more than Ray's minimum."""
_MOST_OBJECT_MEMORY_ON_MACOS = 2 * 2**30
_SHARED_MEMORY = Path("/dev/shm")
_LONGEST_PARENT = 18
"""Characters. Socket names below it have about 85 more, and at most 103 (macOS) or 107 in total."""
_WATCHDOG = 'read -r line && exit; folder="$1"; shift; kill -s KILL -- "$@"; sleep 2; rm -rf "$folder"'
"""It exits when it reads a line, since the run ended by itself then. Otherwise it kills the processes."""
_SHUTDOWN_S = 15.0
_EXIT_S = 3.0

_logger = logging.getLogger(__name__)


@contextmanager
def local_ray(cores: int, *, insecure: bool = False) -> Iterator[None]:
    """Starts Ray with ``cores`` cores, independent of the machine's cores, and connects this process.

    At the end, all its processes and files are removed. If this process is killed, that happens within seconds.

    Raises:
        UserError: Ray could not be started, or it would accept connections without the token.
    """
    import ray

    with ExitStack() as stack:
        folder = stack.enter_context(_folder())
        stack.callback(ray_internals.read_authentication_again)
        stack.enter_context(ray_internals.environment(_environment()))
        stack.enter_context(ray_internals.quiet())
        stack.enter_context(ray_internals.loopback_addresses())
        ray_internals.read_authentication_again()
        daemons: list[Any] = []
        stack.callback(_shut_down, daemons)
        addresses = _start(folder, cores, daemons)
        stack.enter_context(_watchdog(daemons, folder))
        if not insecure and not _is_private(addresses):
            raise UserError(
                f"Ray {ray.__version__} lets in more than this run: use a version that the README names, or "
                "--insecure-ray in a network that you trust"
            )
        yield


def _is_private(addresses: Mapping[str, Any]) -> bool:
    """Whether Ray listens on this machine only, and accepts only its token there."""
    return addresses["node_ip_address"] == LOOPBACK and asks_for_token(addresses["gcs_address"])


def _start(folder: Path, cores: int, daemons: list[Any]) -> Mapping[str, Any]:
    """Starts Ray, and adds its processes to ``daemons`` even if the start fails. Returns its addresses."""
    try:
        return _initialize(folder, cores, daemons)
    except UserError as error:
        # If the machine was busy, or another Ray had just taken the port, the next attempt usually succeeds.
        if not waited_in_vain(error.__cause__):
            raise
        _logger.warning("%s; trying once more", str(error).rstrip("."))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # Ray does not wait for processes that it abandons
        _shut_down(daemons)
        gc.collect()
    daemons.clear()
    return _initialize(folder, cores, daemons)


def waited_in_vain(error: BaseException | None) -> bool:
    """Whether Ray timed out after half a minute of waiting for its own processes, which it reports in several ways."""
    return type(error) is Exception or "timed out" in str(error).lower()


def _initialize(folder: Path, cores: int, daemons: list[Any]) -> Mapping[str, Any]:
    import ray

    before = _children()
    try:
        with ray_internals.own_signal_handlers(), ray_internals.processes_out_of_reach():
            context = ray.init(**_arguments(folder, cores))
    except Exception as error:  # Ray's own classes, and bare exceptions after a timeout
        reason = " ".join(str(error).split())
        raise UserError(f"Ray could not be started on this machine: {reason}") from error
    finally:
        daemons += [child for child in _children() if child not in before]
    addresses: Mapping[str, Any] = context.address_info
    return addresses


def _environment() -> dict[str, str]:
    """Environment variables of Ray's processes."""
    return {
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # nodes are at 127.0.0.1, so their servers do not listen elsewhere
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
        **ray_internals.GPUS_AS_THEY_ARE,
        "RAY_worker_niceness": "0",  # otherwise other programs would slow down the workers' simulators
    }


def _arguments(folder: Path, cores: int) -> dict[str, Any]:
    place, size = _object_store(folder)
    return {
        "address": "local",
        "num_cpus": max(cores, os.cpu_count() or 1),
        "include_dashboard": False,
        "log_to_driver": False,
        "logging_level": logging.WARNING,
        "object_store_memory": size,
        "_plasma_directory": place,
        "_temp_dir": str(folder),
        "_node_ip_address": LOOPBACK,
    }


def _object_store(folder: Path) -> tuple[str | None, int]:
    """Returns the folder and the size in bytes of the shared memory. It is on disk if /dev/shm is small."""
    wanted = int(_SHARE_OF_MEMORY * psutil.virtual_memory().total)
    if sys.platform == "darwin":
        return None, min(wanted, _MOST_OBJECT_MEMORY_ON_MACOS)
    shared = (
        int(_SHARE_OF_SHARED_MEMORY * shutil.disk_usage(_SHARED_MEMORY).free)
        if _SHARED_MEMORY.is_dir()
        else 0
    )
    if shared >= _LEAST_OBJECT_MEMORY:
        return str(_SHARED_MEMORY), max(min(wanted, shared), _LEAST_OBJECT_MEMORY)
    return str(folder), max(wanted, _LEAST_OBJECT_MEMORY)


@contextmanager
def _folder() -> Iterator[Path]:
    """Yields a folder for Ray's sockets and logs, inside a private one. Both are removed at the end."""
    parent = Path(tempfile.gettempdir())
    if len(str(parent)) > _LONGEST_PARENT:
        parent = Path("/tmp")
    private = Path(tempfile.mkdtemp(prefix="trainer-ray-", dir=parent))
    try:
        yield private / "r"  # Ray gives everybody access to its folder with the sockets
    finally:
        shutil.rmtree(private, ignore_errors=True)


@contextmanager
def _watchdog(daemons: Sequence[Any], folder: Path) -> Iterator[None]:
    """Ends Ray's daemons and removes its files if this process is killed.

    On Linux, the kernel ends the daemons too, but not the raylet's child processes: these wait for a minute for the
    ended control service. So a shell reads a pipe that closes with this process, and then kills their process groups.
    """
    groups = [f"-{daemon.pid}" for daemon in daemons] if sys.platform == "linux" else []
    shell = subprocess.Popen(
        ["/bin/sh", "-c", _WATCHDOG, "watchdog", str(folder.parent), *groups],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            shell.communicate(b"\n")


def _children() -> list[Any]:
    return list(psutil.Process().children())


def _shut_down(daemons: Sequence[Any]) -> None:
    """Shuts down Ray, then ends its remaining daemons, workers and their child processes."""
    import ray

    processes = list(daemons)
    for daemon in daemons:
        with contextlib.suppress(psutil.Error):
            processes += daemon.children(recursive=True)
    ending = threading.Thread(target=ray.shutdown, name="Ray's end", daemon=True)
    ending.start()
    ending.join(_SHUTDOWN_S)
    _, left = psutil.wait_procs(processes, timeout=_EXIT_S)
    for process in left:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(left, timeout=_EXIT_S)
    ending.join(_EXIT_S)
