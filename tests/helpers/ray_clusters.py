"""Ray clusters of two nodes on this machine, which listen on loopback."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psutil

from trainer_service.distributed import ray_internals
from trainer_service.distributed.local_ray import waited_in_vain

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
    folder = tempfile.mkdtemp(dir="/tmp")  # short, for names of sockets
    variables = {
        "RAY_TMPDIR": folder,  # rather than temp_dir: the file that names the current cluster would stay outside
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_AUTH_MODE": authentication,
        "RAY_AUTH_TOKEN": TOKEN,
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    with ray_internals.environment(variables), ray_internals.loopback_addresses():
        ray_internals.read_authentication_again()
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            yield _started(nodes, stack)
    ray_internals.read_authentication_again()


def _started(nodes: int, stack: ExitStack, tries: int = 2) -> Any:
    """A cluster that ends with the stack.

    A busy machine gets a second try, as users' own do.
    """
    from ray.cluster_utils import Cluster

    node = {"num_cpus": _CORES, "object_store_memory": _MEMORY, "include_log_monitor": False}
    children = set(psutil.Process().children())
    cluster = Cluster()
    stack.callback(cluster.shutdown)
    try:
        cluster.add_node(**node, include_dashboard=False, no_monitor=True)
        for _ in range(nodes - 1):
            cluster.add_node(**node)
    except Exception as error:
        for child in set(psutil.Process().children()) - children:
            child.kill()
        if tries == 1 or not waited_in_vain(error):
            raise
        return _started(nodes, stack, tries - 1)
    return cluster
