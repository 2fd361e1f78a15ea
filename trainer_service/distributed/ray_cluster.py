"""The Ray that a run's workers live in: one started for this run on this machine, or the user's cluster.

    with ray_cluster(options.distributed, num_workers) as cluster:
        workers = [Worker.remote(...) for _ in range(num_workers)]  # ray itself is connected inside the context
        while waiting_for_them:
            if problem := cluster.placement_problem(num_workers, settings.cpus_per_worker):
                log(problem)  # every so often: Ray waits for ever for cores that no node has

Only this module, ``local_ray``, those beside it whose names begin with ray, and the doctor's import Ray.
"""

from __future__ import annotations

import importlib.util
import logging
import math
import os
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainer_service.config.distributed import DistributedSettings
from trainer_service.distributed import ray_internals
from trainer_service.distributed.local_ray import LOOPBACK, local_ray
from trainer_service.distributed.ray_authentication import CLIENT, asks_for_token, check_token
from trainer_service.errors import UserError
from unity_bridge.extras import install_hint
from unity_bridge.simulators.schemes import scheme_of

LOCAL = "local"
"""The address that starts Ray on this machine, like no address."""
_AUTO = "auto"
_HOST_AND_PORT = re.compile(r"(?P<host>[\w.-]+|\[[0-9a-fA-F:]+\]):(?P<port>\d{1,5})")
_THIS_MACHINE = re.compile(r"localhost|127\.[\d.]+|\[::1\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class RayNode:
    """One machine of a cluster."""

    node_id: str
    host: str
    address: str
    cores: float
    """Number of cores that Ray assigns there, used or not."""
    memory: float
    """Bytes of memory that Ray assigns there."""
    gpus: float

    @property
    def listens_to_network(self) -> bool:
        """Whether other machines can reach it: Ray's servers listen on all addresses unless its own is loopback."""
        return self.address != LOOPBACK


@dataclass(frozen=True, slots=True)
class RayCluster:
    """The Ray instance that this process is connected to."""

    name: str
    """The cluster in messages: its address, or ``this machine``."""

    def nodes(self) -> list[RayNode]:
        """Nodes that are alive, sorted by host name."""
        import ray

        nodes = [_node(row) for row in ray.nodes() if row["Alive"]]
        return sorted(nodes, key=lambda node: (node.host, node.node_id))

    def placement_problem(self, num_workers: int, cpus_per_worker: float) -> str:
        """Returns why Ray cannot place workers now: too few cores, or too few free cores. Empty if it can."""
        import ray

        nodes = self.nodes()
        cores = sum(node.cores for node in nodes)
        asked = f"{count(num_workers, 'worker')} with {count(cpus_per_worker, 'core')} each were asked for"
        has = f"{self.name} has {count(cores, 'core')} on {count(len(nodes), 'node')}"
        if (room := _room(nodes, cpus_per_worker)) < num_workers:
            remedy = "lower num_workers or cpus_per_worker, or add nodes"
            return f"{asked}, and {has}, room for {room:g}: {remedy}"
        free = float(ray.available_resources().get("CPU", 0.0))
        if free < cpus_per_worker:
            return f"{asked}, and {has}, of which {free:g} are free: others use the rest"
        return ""


def _node(row: dict[str, object]) -> RayNode:
    resources = row["Resources"]
    assert isinstance(resources, dict)
    return RayNode(
        node_id=str(row["NodeID"]),
        host=str(row["NodeManagerHostname"]),
        address=str(row["NodeManagerAddress"]),
        cores=float(resources.get("CPU", 0.0)),
        memory=float(resources.get("memory", 0.0)),
        gpus=float(resources.get("GPU", 0.0)),
    )


def _room(nodes: list[RayNode], cpus_per_worker: float) -> float:
    """Returns the number of workers that fit on empty nodes. All cores of a worker are on one node."""
    if cpus_per_worker == 0:
        return math.inf if nodes else 0
    return sum(math.floor(node.cores / cpus_per_worker + 1e-9) for node in nodes)


def count(number: float, noun: str) -> str:
    """Returns a number with its noun, in singular or plural."""
    return f"{number:g} {noun}" if number == 1 else f"{number:g} {noun}s"


@contextmanager
def ray_cluster(settings: DistributedSettings, num_workers: int) -> Iterator[RayCluster]:
    """Connects this process to Ray. Without an address, starts Ray here for ``num_workers`` workers.

    An existing connection of this process is used, and kept.

    Raises:
        UserError: Ray does not support this system, is not installed or cannot be started; or the cluster does not
            answer, requires no token, rejects ours, or has other versions.
    """
    require_ray()
    import ray

    address = settings.ray_address
    with ExitStack() as stack:
        if ray.is_initialized():
            name = "the Ray of this process"
        elif address is None or address == LOCAL:
            name = "this machine"
            cores = math.ceil(num_workers * settings.cpus_per_worker)
            stack.enter_context(local_ray(cores, insecure=settings.insecure_ray))
        else:
            name = stack.enter_context(_connected(address, insecure=settings.insecure_ray))
        yield RayCluster(name)


def require_ray() -> None:
    """Raises UserError if Ray does not support this system or is not installed."""
    if sys.platform == "win32":
        raise UserError(
            "Rollout workers and clusters need Linux or macOS: on Windows, Ray is not supported here"
        )
    if importlib.util.find_spec("ray") is None:
        raise UserError(f"Ray is not installed, which rollout workers need: {install_hint('ray')}")


@contextmanager
def _connected(address: str, *, insecure: bool) -> Iterator[str]:
    """Connects to a cluster. Yields its address."""
    import ray

    address = resolve_address(address)
    asks = asks_for_token(address)
    if asks:
        check_token(address)
    elif not insecure:
        raise UserError(
            f"The Ray cluster at {address} does not require a token: anyone who reaches it can run code. Start it "
            "with RAY_AUTH_MODE=token on every node, or say --insecure-ray in a network that you trust"
        )
    with ExitStack() as stack:
        stack.callback(ray_internals.read_authentication_again)
        variables = {"RAY_AUTH_MODE": _mode(asks), **ray_internals.GPUS_AS_THEY_ARE}
        stack.enter_context(ray_internals.environment(variables))
        ray_internals.read_authentication_again()
        stack.enter_context(ray_internals.quiet())
        stack.enter_context(ray_internals.impatient())
        if _is_loopback(address):
            stack.enter_context(ray_internals.loopback_addresses())
        stack.callback(ray.shutdown)
        with ray_internals.own_signal_handlers(), _errors_translated(address):
            ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)
        yield address


def _mode(asks: bool) -> str:
    """Returns the authentication mode: no token is sent to a cluster that does not check it."""
    given = os.environ.get("RAY_AUTH_MODE", "disabled")
    return "disabled" if not asks else given if given != "disabled" else "token"


def _is_loopback(address: str) -> bool:
    host = address.removeprefix(CLIENT).rpartition(":")[0]
    return _THIS_MACHINE.fullmatch(host) is not None


def absolute_env(env: str | None) -> str | None:
    """Returns the environment's path for workers, which may have another working directory."""
    scheme = scheme_of(env or "")
    if not env or (scheme is not None and scheme.name):
        return env
    return str(Path(env).absolute())


def resolve_address(address: str) -> str:
    """Returns the HOST:PORT or ray://HOST:PORT of a cluster, also for ``auto``.

    Raises:
        UserError: The address is invalid, or no cluster was started on this machine.
    """
    if address == _AUTO:
        address = os.environ.get("RAY_ADDRESS") or _AUTO
    if address == _AUTO:
        try:
            with ray_internals.loopback_addresses():
                return ray_internals.address_of_running_cluster()
        except ConnectionError as error:
            raise UserError(
                "No Ray cluster runs on this machine, which the address auto expects: start one with ray start, or "
                "give its address"
            ) from error
    if _HOST_AND_PORT.fullmatch(address.removeprefix(CLIENT)) is None:
        raise UserError(
            f"The address of a Ray cluster: expected auto, HOST:PORT or ray://HOST:PORT, got {address}"
        )
    return address


@contextmanager
def _errors_translated(address: str) -> Iterator[None]:
    """Translates Ray's connection errors to UserErrors."""
    import ray

    try:
        yield
    except (RuntimeError, ValueError, OSError, ray.exceptions.RayError) as error:
        raise UserError(_explanation(address, f"{error} {error.__cause__ or ''}")) from error


def _explanation(address: str, reason: str) -> str:
    words = " ".join(reason.split())
    if "ersion" in words and ("mismatch" in words or "differ" in words):
        return (
            f"The Ray cluster at {address} has other versions than this machine, and both must agree: {words}"
        )
    if "No node info" in words or "node to connect" in words:
        return (
            f"The Ray cluster at {address} has no node on this machine, which HOST:PORT needs: join it with "
            "ray start --address, or connect from outside with ray://HOST:10001"
        )
    if "client server failed" in words:
        return (
            f"The Ray cluster at {address} could not start a process for this client: try again, run the trainer on a "
            "node of the cluster, or look into ray_client_server_*.err in the head's /tmp/ray/session_latest/logs"
        )
    return f"Connecting to the Ray cluster at {address} failed: {words}"
