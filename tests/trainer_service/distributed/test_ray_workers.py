"""Rollout workers in processes of real Ray: how they start, what ends them, and runs that are repeated bit for bit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from in_process_workers import options_of

from trainer_service.config import DistributedSettings
from trainer_service.distributed.ray_cluster import RayCluster, ray_cluster
from trainer_service.distributed.records import CollectionQuota, SampleRequest, SampleResult
from trainer_service.distributed.rollout_workers import WorkerLost
from trainer_service.errors import OutOfMemory
from unity_bridge.errors import LaunchError

ray = pytest.importorskip("ray")

from trainer_service.distributed.ray_workers import ClusterLost, RayWorkers  # noqa: E402

PATIENCE_S = 60.0
FIRST = SampleRequest(number=0, policies={})
Event = tuple[int, SampleResult] | WorkerLost


@pytest.fixture(scope="module")
def cluster(processes: None) -> Iterator[RayCluster]:
    """A Ray that was started for this module."""
    with ray_cluster(DistributedSettings(num_workers=2), 2) as connected:
        yield connected


@pytest.fixture
def pool(cluster: RayCluster, workplace: Path) -> Iterator[Callable[..., RayWorkers]]:
    """Makes workers of the corridor, or of another program; they end with the test."""
    made: list[RayWorkers] = []

    def make(
        env: object = "sim:basic", folder: Path | None = None, timeout_wait: int = 60, **distributed: Any
    ) -> RayWorkers:
        options = options_of(
            {"Basic": {}},
            env_settings={
                "env_path": str(env),
                "isolate": True,
                "seed": 1,
                "timeout_wait": timeout_wait,
                "max_lifetime_restarts": 0,
            },
            distributed={"num_workers": 1, **distributed},
        )
        assert options.distributed is not None
        made.append(RayWorkers(cluster, options.distributed, options, folder))
        return made[-1]

    yield make
    for each in made:
        each.close()


def until(pool: RayWorkers, happened: Callable[[list[Event]], bool]) -> list[Event]:
    """Waits for workers until something happened. Returns all that came."""
    came: list[Event] = []
    end = time.monotonic() + PATIENCE_S
    while not happened(came):
        assert time.monotonic() < end, came
        came += pool.wait(0.1)
    return came


def collect(pool: RayWorkers) -> SampleResult:
    """Lets worker 0 collect for a request without policies until it has something to say."""
    pool.publish(FIRST)
    pool.ask(0, CollectionQuota({}, {}))
    while True:
        ((_, result),) = until(pool, bool)  # type: ignore[misc]
        if result.complete:
            return result
        pool.ask(0, None)


def lost(came: list[Event]) -> bool:
    return any(isinstance(event, WorkerLost) for event in came)


def workers_of_ray() -> list[Any]:
    import psutil

    return [
        child
        for child in psutil.Process().children(recursive=True)
        if child.status() != psutil.STATUS_ZOMBIE
        and " ".join(child.cmdline()).startswith("ray::WorkerProcess")
    ]


@pytest.mark.thorough
def test_a_worker_that_is_killed_comes_back_and_declares_anew(pool: Callable[..., RayWorkers]) -> None:
    workers = pool()
    until(workers, lambda came: workers.ready() == [0])
    for attempt in (1, 2):
        assert [each.behavior_id.name for each in collect(workers).declared] == ["Basic"]
        if attempt == 2:
            return
        (process,) = workers_of_ray()
        process.kill()
        workers.ask(0, CollectionQuota({}, {}))
        (loss,) = (event for event in until(workers, lost) if isinstance(event, WorkerLost))
        assert loss.worker == 0
        assert loss.comes_back
        assert "was killed, or crashed" in loss.reason
        assert not workers.ready()
        until(workers, lambda came: workers.ready() == [0])


@pytest.mark.thorough
def test_a_program_that_does_not_start_names_worker_and_machine(
    pool: Callable[..., RayWorkers], tmp_path: Path
) -> None:
    program = tmp_path / "broken"
    program.write_text("#!/bin/sh\necho no licence >&2\nexit 3\n")
    program.chmod(0o755)
    workers = pool(program)
    until(workers, lambda came: workers.ready() == [0])
    workers.publish(FIRST)
    workers.ask(0, CollectionQuota({}, {}))
    with pytest.raises(
        LaunchError, match=r"worker 0 on .*: simulator 0 .*exited with code 3(.|\n)*no licence"
    ):
        until(workers, bool)


@pytest.mark.thorough
def test_what_ray_raises_becomes_one_message(
    pool: Callable[..., RayWorkers], monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = pool()

    def full(*arguments: object) -> None:
        raise ray.exceptions.ObjectStoreFullError("no room for 80 MB")

    def gone(*arguments: object, **keywords: object) -> None:
        raise ConnectionError("GRPC connection failed")

    with monkeypatch.context() as patch:
        patch.setattr(ray, "put", full)
        with pytest.raises(
            OutOfMemory, match=r"memory that Ray's processes share is full.*no room for 80 MB"
        ):
            workers.publish(FIRST)
        patch.setattr(ray, "wait", gone)
        with pytest.raises(ClusterLost, match=r"this machine is lost: GRPC connection failed.*--resume"):
            workers.wait(0.0)
