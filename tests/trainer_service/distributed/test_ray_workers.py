"""Rollout workers in processes of real Ray: whole runs as users start them, and what ends them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from in_process_workers import options_of
from run_files import checkpoint, metrics

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

    def make(env: object = "sim:basic") -> RayWorkers:
        environment = {"env_path": str(env), "isolate": True, "seed": 1, "max_lifetime_restarts": 0}
        options = options_of({"Basic": {}}, env_settings=environment, distributed={"num_workers": 1})
        assert options.distributed is not None
        made.append(RayWorkers(cluster, options.distributed, options, None))
        return made[-1]

    yield make
    for each in made:
        each.close()


def until(pool: RayWorkers, happened: Callable[[list[Event]], bool]) -> None:
    """Waits for workers until something happened."""
    came: list[Event] = []
    end = time.monotonic() + PATIENCE_S
    while not happened(came):
        assert time.monotonic() < end, came
        came += pool.wait(0.1)


@pytest.mark.usefixtures("cluster")
def test_sac_learns_from_a_replay_buffer(mlagents_style, configure) -> None:
    hyper = {"batch_size": 32, "buffer_size": 1000, "buffer_init_steps": 100}
    config = configure("Pendulum-v1", trainer_type="sac", hyperparameters=hyper, max_steps=201)
    flags = ("--run-id=run", "--seed=1", "--num-workers=2")
    said = mlagents_style("learn", config, "--env=gym:Pendulum-v1", *flags)
    assert said.code == 0, said.out + said.err
    assert metrics("run")[-1]["q1_loss"] > 0
    assert checkpoint("run", "Pendulum-v1")["step"] == 201


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
