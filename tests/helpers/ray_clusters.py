"""Ray clusters of two nodes on this machine, which listen on loopback."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from trainer_service.distributed import ray_internals

TOKEN = "t" * 64
_MEMORY = 100 * 2**20
_CORES = 2


@contextmanager
def running_cluster(*, nodes: int = 2, authentication: str = "token") -> Iterator[str]:
    """The address of a ``cluster_of_nodes``."""
    with cluster_of_nodes(nodes=nodes, authentication=authentication) as cluster:
        yield cluster.address


@contextmanager
def cluster_of_nodes(*, nodes: int = 2, authentication: str = "token") -> Iterator[Any]:
    """A ``Cluster`` of Ray's with two cores on each node, which asks for TOKEN unless told otherwise.

    This process has the token in its environment, and is not connected.
    """
    from ray.cluster_utils import Cluster

    variables = {
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_AUTH_MODE": authentication,
        "RAY_AUTH_TOKEN": TOKEN,
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    folder = tempfile.mkdtemp(dir="/tmp")  # short, for names of sockets
    node = {
        "num_cpus": _CORES,
        "object_store_memory": _MEMORY,
        "include_log_monitor": False,
        "temp_dir": folder,
    }
    with ray_internals.environment(variables), ray_internals.loopback_addresses():
        ray_internals.read_authentication_again()
        cluster = Cluster(
            initialize_head=True, head_node_args={**node, "include_dashboard": False, "no_monitor": True}
        )
        try:
            for _ in range(nodes - 1):
                cluster.add_node(**node)
            yield cluster
        finally:
            cluster.shutdown()
            shutil.rmtree(folder, ignore_errors=True)
    ray_internals.read_authentication_again()
