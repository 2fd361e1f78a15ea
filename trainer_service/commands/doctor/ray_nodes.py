"""Checks of a Ray cluster: who may use it, and whether each of its nodes can run rollout workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainer_service.commands.doctor import on_ray_node
from trainer_service.commands.doctor.report import Finding
from trainer_service.config import DistributedSettings
from trainer_service.distributed.ray_authentication import CLIENT, asks_for_token
from trainer_service.distributed.ray_cluster import (
    LOCAL,
    RayCluster,
    RayNode,
    absolute_env,
    count,
    ray_cluster,
)
from trainer_service.errors import UserError

_ANSWER_S = 60.0
"""Seconds in which a node must have started a process and answered; the first import there may be slow."""


def cluster(settings: DistributedSettings, env: str | None) -> Iterator[Finding]:
    """Checks the cluster of a configuration, and on all its nodes versions, a port and the environment."""
    subject = f"Ray {settings.ray_address or LOCAL}"
    try:
        with ray_cluster(settings, max(settings.num_workers, 1)) as ray:
            yield _size(subject, ray, settings)
            yield _authentication(settings)
            yield _reach(ray)
            for node, answer in _answers(ray, env):
                yield from _node(node, answer)
    except UserError as error:
        yield Finding("fail", subject, str(error))


def _size(subject: str, ray: RayCluster, settings: DistributedSettings) -> Finding:
    nodes = ray.nodes()
    cores = sum(node.cores for node in nodes)
    gpus = sum(node.gpus for node in nodes)
    found = ", ".join([count(len(nodes), "node"), count(cores, "core"), count(gpus, "GPU")])
    problem = ray.placement_problem(settings.num_workers, settings.cpus_per_worker)
    return Finding("fail", subject, f"{found}; {problem}") if problem else Finding("ok", subject, found)


def _authentication(settings: DistributedSettings) -> Finding:
    import ray

    given = settings.ray_address or ""
    address = given if given.startswith(CLIENT) else ray.get_runtime_context().gcs_address
    if asks_for_token(address):
        return Finding("ok", "Ray authentication", "strangers are refused")
    remedy = "start it with RAY_AUTH_MODE=token on every node"
    found = "anybody who reaches it runs code on it"
    return Finding("warn" if settings.insecure_ray else "fail", "Ray authentication", found, remedy)


def _reach(ray: RayCluster) -> Finding:
    """Returns the addresses at which the cluster listens, as a finding."""
    addresses = sorted({node.address for node in ray.nodes() if node.listens_to_network})
    if not addresses:
        return Finding("ok", "Ray ports", "open to this machine alone")
    return Finding("ok", "Ray ports", f"open to the network, at {', '.join(addresses)}")


def _answers(ray: RayCluster, env: str | None) -> Iterator[tuple[RayNode, Mapping[str, Any] | str]]:
    """Yields each node with its answer, or with the reason why it does not answer."""
    import ray as engine
    from ray import cloudpickle
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    nodes = ray.nodes()
    cloudpickle.register_pickle_by_value(on_ray_node)
    try:
        describe = engine.remote(on_ray_node.describe_node)
        calls = [
            describe.options(
                num_cpus=0,
                max_retries=0,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node.node_id, soft=False),
            ).remote(absolute_env(env))
            for node in nodes
        ]
    finally:
        cloudpickle.unregister_pickle_by_value(on_ray_node)
    engine.wait(calls, num_returns=len(calls), timeout=_ANSWER_S)
    for node, call in zip(nodes, calls, strict=True):
        try:
            yield node, engine.get(call, timeout=0)
        except engine.exceptions.GetTimeoutError:
            yield node, f"no answer within {_ANSWER_S:g} s"
        except engine.exceptions.RayError as error:
            yield node, str(error).strip().splitlines()[-1][:300]


def _node(node: RayNode, answer: Mapping[str, Any] | str) -> Iterator[Finding]:
    subject = f"node {node.host} ({node.node_id[:8]})"
    if isinstance(answer, str):
        yield Finding("fail", subject, answer, "can Ray start Python there?")
        return
    yield _versions(subject, node, answer)
    if answer["port_error"]:
        yield Finding("fail", subject, f"no port can be opened for simulators: {answer['port_error']}")
    if answer["env"] is not None:
        is_there, found = answer["env"]
        remedy = "" if is_there else "it must be at this path, or installed, on every node"
        yield Finding("ok" if is_there else "fail", f"env on {subject}", found, remedy)


def _versions(subject: str, node: RayNode, answer: Mapping[str, Any]) -> Finding:
    here = on_ray_node.describe_node(None)["versions"]
    there: Mapping[str, str] = answer["versions"]
    size = f"{node.cores:g} of {answer['cores']} cores, {node.memory / 1e9:.0f} GB, {count(node.gpus, 'GPU')}"
    versions = ", ".join(f"{name} {version or 'missing'}" for name, version in there.items())
    others = [f"{name} {here[name]}" for name in here if there[name] != here[name]]
    if not others:
        return Finding("ok", subject, f"{size}; {versions}")
    return Finding("fail", subject, f"{size}; {versions}", f"install what is here: {', '.join(others)}")
