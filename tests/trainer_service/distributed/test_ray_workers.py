"""Rollout workers in processes of real Ray: whole runs as users start them, and what ends them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
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


@pytest.fixture
def learn(cluster: RayCluster, mlagents_style: Callable[..., Any], repository: Path) -> Callable[..., Any]:
    """Runs a bundled configuration of one behavior with two workers, and these settings instead of its own."""

    def run(config: str, env: str, hyperparameters: dict[str, Any], **settings: Any) -> None:
        content = yaml.safe_load((repository / "configs" / f"{config}.yaml").read_text())
        (behavior,) = content["behaviors"].values()
        behavior.update(settings, checkpoint_interval=10**6)
        behavior["hyperparameters"].update(hyperparameters)
        Path("config.yaml").write_text(yaml.safe_dump(content))
        flags = ("--run-id=run", "--seed=1", "--num-workers=2")
        said = mlagents_style("learn", "config.yaml", f"--env={env}", *flags)
        assert said.code == 0, said.out + said.err

    return run


def test_sac_learns_from_a_replay_buffer(learn: Callable[..., Any]) -> None:
    learn("pendulum_sac", "gym:Pendulum-v1", {"buffer_init_steps": 100}, max_steps=201, summary_freq=100)
    assert metrics("run")[-1]["q1_loss"] > 0
    assert checkpoint("run", "Pendulum-v1")["step"] == 201


@pytest.mark.thorough
def test_ppo_reaches_the_far_end_of_the_corridor(learn: Callable[..., Any]) -> None:
    learn("basic", "sim:basic", {}, max_steps=7000, summary_freq=1000)
    assert metrics("run")[-1]["mean_return"] > 0.9
    assert checkpoint("run", "Basic")["step"] == 7000
    assert all(each.get("Distributed/Workers") == 2 for each in metrics("run")[1:])


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
