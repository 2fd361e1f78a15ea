"""Monitoring of the Ray processes that this process needs.

If its raylet has ended, the next array that is stored or fetched ends this process, without a message and without
saving. If the cluster's control service has ended, that happens after a minute. So both are checked before.
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
"""Seconds that the control service may be unavailable: Ray waits for a minute, and saving takes time too."""


@dataclass(slots=True)
class _Server:
    """A Ray server."""

    name: str
    host: str
    port: int
    patience_s: float
    """Seconds that it may be unavailable."""
    seen_at: float
    """Time of the last successful check, by ``time.monotonic``."""

    def is_there(self) -> bool:
        """Whether it accepts connections. A slow server counts as available if its patience is 0."""
        try:
            with socket.create_connection((self.host, self.port), timeout=_CONNECT_S):
                return True
        except TimeoutError:
            return self.patience_s == 0
        except OSError:
            return False


class RayWatch:
    """The Ray servers that this process needs, with the times since when they are unavailable."""

    def __init__(self, address: str) -> None:
        """address: of the cluster, for ``ray://`` addresses."""
        self._servers = list(_servers(address))
        self._checked_at = 0.0

    def missing(self, *, now: bool = False) -> str:
        """Returns a message about a lost server, or an empty one. Checks at most once a second, unless ``now``."""
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
