"""The process that listens on a port."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil


def holder_of(port: int) -> str:
    """The process that listens on ``port``: its id and command; empty if that is another user's, or cannot be told."""
    try:
        import psutil
    except ImportError:  # the doctor has said so, and goes on
        return ""
    for process in psutil.process_iter():
        try:
            sockets = process.net_connections(kind="tcp")
            if any(each.status == psutil.CONN_LISTEN and each.laddr.port == port for each in sockets):
                return _named(process)
        except psutil.Error:
            continue
    return ""


def _named(process: psutil.Process) -> str:
    command = " ".join(process.cmdline()).strip()
    return f"process {process.pid}" + (f" ({command[:100]})" if command else "")
