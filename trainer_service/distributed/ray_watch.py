"""A watch on the processes of Ray that this one cannot do without.

Where its raylet is gone, the next array that is put or fetched ends this process, without a word and with nothing
saved; where the cluster's control service is, that happens after a minute. So they are looked at before.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass

import ray

from trainer_service.distributed.ray_authentication import CLIENT

_INTERVAL_S = 1.0
_CONNECT_S = 1.0
_CONTROL_PATIENCE_S = 25.0
"""How long the control service may be away: Ray waits for a minute, and saving takes time, too."""


@dataclass(slots=True)
class _Server:
    """A server of Ray's."""

    name: str
    host: str
    port: int
    patience_s: float
    """How long it may be away."""
    seen_at: float
    """When it was there for the last time, by ``time.monotonic``."""

    def is_there(self) -> bool:
        """Whether it takes connections; one that is slow counts as there, unless there is some patience for it."""
        try:
            with socket.create_connection((self.host, self.port), timeout=_CONNECT_S):
                return True
        except TimeoutError:
            return self.patience_s == 0
        except OSError:
            return False


class RayWatch:
    """The servers of Ray that this process depends on, and since when they are away."""

    def __init__(self, address: str) -> None:
        """address: of the cluster, where it is one of ``ray://``."""
        self._servers = list(_servers(address))
        self._checked_at = 0.0

    def missing(self, *, now: bool = False) -> str:
        """What is gone for good; empty where nothing is. Looks once a second at most, unless told to look now."""
        moment = time.monotonic()
        if not now and moment - self._checked_at < _INTERVAL_S:
            return ""
        self._checked_at = moment
        for server in self._servers:
            if server.is_there():
                server.seen_at = time.monotonic()
            elif (away_s := moment - server.seen_at) >= server.patience_s:
                return f"{server.name} at {server.host}:{server.port} is gone" + (
                    f" for {away_s:.0f} s" if server.patience_s else ""
                )
        return ""


def _servers(address: str) -> Iterator[_Server]:
    now = time.monotonic()
    if address.startswith(CLIENT):
        host, port = _host_and_port(address.removeprefix(CLIENT))
        yield _Server("the cluster's server for clients", host, port, _CONTROL_PATIENCE_S, now)
        return
    context = ray.get_runtime_context()
    host, port = _host_and_port(context.gcs_address)
    yield _Server("the cluster's control service", host, port, _CONTROL_PATIENCE_S, now)
    for node in ray.nodes():
        if node["NodeID"] == context.get_node_id():
            yield _Server(
                "the raylet of this node", node["NodeManagerAddress"], node["NodeManagerPort"], 0.0, now
            )


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
