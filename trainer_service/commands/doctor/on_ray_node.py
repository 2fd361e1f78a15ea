"""A node's report about itself in a Ray cluster. Sent to the node as code, because it may lack this package."""

from __future__ import annotations

import os
import platform
import socket
from importlib import metadata
from typing import Any

PACKAGES = ("ray", "torch", "trainer-service")
"""Packages whose versions must agree on all nodes."""


def describe_node(env: str | None) -> dict[str, Any]:
    """The node's versions by name, its cores, whether a port can be opened, and what ``env`` is there.

    Runs on any Python that Ray runs on; names of ours are imported where they are used.
    """
    return {
        "versions": {"Python": platform.python_version(), **{name: _version(name) for name in PACKAGES}},
        "cores": os.cpu_count() or 1,
        "port_error": _port_error(),
        "env": None if env is None else _find_env(env),
    }


def _version(package: str) -> str:
    """The version without the build's label, which says CPU or CUDA; empty where it is not installed."""
    try:
        return metadata.version(package).partition("+")[0]
    except metadata.PackageNotFoundError:
        pass
    try:
        from trainer_service._version import __version__  # found on the path, though not installed
    except ImportError:
        return ""
    return __version__ if package == "trainer-service" else ""


def _port_error() -> str:
    """Why simulators could not be listened to there; empty where they can."""
    try:
        with socket.create_server(("127.0.0.1", 0)):
            return ""
    except OSError as error:
        return str(error)


def _find_env(env: str) -> tuple[bool, str]:
    """Whether the environment exists, with its file or the problem."""
    try:
        from unity_bridge.errors import BridgeError
        from unity_bridge.programs.executables import resolve_program
        from unity_bridge.simulators.registry import open_scene
    except ImportError as error:
        return False, f"trainer-service cannot be imported: {error}"
    try:
        command = resolve_program(env)
        if command.is_bundled:
            open_scene(env)
            return True, "opens"
    except (BridgeError, ImportError) as error:
        return False, str(error)
    return True, command.executable[0]
