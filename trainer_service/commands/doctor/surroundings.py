"""Checks of the machine that a run needs: ports, folders, proxies."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from trainer_service.commands.doctor.report import Finding
from unity_bridge.errors import BridgeError, PortInUse
from unity_bridge.server.bridge import Bridge, BridgeSettings
from unity_bridge.transport.ports import holder_of

_LITTLE_SPACE = 10**9
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
_EXCEPTIONS = ("no_grpc_proxy", "no_proxy")
_THIS_MACHINE = ("localhost", "127.0.0.1")


def attach_port(port: int) -> Finding:
    """Checks the port where the Unity Editor looks for a trainer."""
    subject = f"port {port}"
    try:
        with Bridge(BridgeSettings(seed=0)) as bridge:
            bridge.listen("127.0.0.1", port)
    except PortInUse:
        holder = holder_of(port)
        remedy = "stop it, or use --port (and the same port in the simulator)"
        return Finding("fail", subject, f"in use by {holder or 'another process'}", remedy)
    except BridgeError as error:
        return Finding("fail", subject, str(error), "use another --port")
    return Finding("ok", subject, "free")


def results_folder(folder: Path) -> Finding:
    """Checks that the folder of runs is writable, and on a disk with room."""
    subject, existing = f"results in {folder}", folder.absolute()
    while not existing.exists():
        existing = existing.parent
    if not existing.is_dir():
        return Finding("fail", subject, f"{existing} is no folder", "choose another --results-dir")
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        reason = f"nothing can be written in {existing}: {error.strerror or error}"
        return Finding("fail", subject, reason, "choose another --results-dir")
    free = shutil.disk_usage(existing).free
    if free < _LITTLE_SPACE:
        return Finding("warn", subject, f"{free / 1e6:.0f} MB are free", "a long run may fill the disk")
    return Finding("ok", subject, f"writable, {free / 1e9:.0f} GB free")


def proxies(environment: Mapping[str, str] = os.environ) -> Finding:
    """Checks for proxies that would be asked for this machine; gRPC asks them, Unity's as well as ours."""
    variables = {name.lower(): value for name, value in environment.items() if value}
    found = [f"{name}={_without_password(variables[name])}" for name in _PROXIES if name in variables]
    exceptions = next((variables[name] for name in _EXCEPTIONS if name in variables), "")
    uncovered = [host for host in _THIS_MACHINE if not _is_excepted(host, exceptions)]
    if not found:
        return Finding("ok", "proxies", "none")
    if not uncovered:
        return Finding("ok", "proxies", f"{', '.join(found)}, not for this machine")
    missing = " and ".join(uncovered)
    remedy = (
        f"a simulator that attaches may look for the trainer there: set no_proxy={','.join(_THIS_MACHINE)} "
        "where it is started (programs that we start are told)"
    )
    return Finding("warn", "proxies", f"{', '.join(found)}, and no_proxy lacks {missing}", remedy)


def _without_password(url: str) -> str:
    """The URL without a password: a report is pasted into mails."""
    scheme, separator, rest = url.rpartition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"


def _is_excepted(host: str, exceptions: str) -> bool:
    """Whether gRPC bypasses the proxy for a host: each entry of the list matches the end of the name."""
    entries = (entry.strip() for entry in exceptions.split(","))
    return any(entry == "*" or host.endswith(entry) for entry in entries if entry)
