"""Rollout workers in processes of real Ray: how they start, what ends them, and runs that are repeated bit for bit."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from behavior_worlds import assert_equal_states, flat
from in_process_workers import options_of

from trainer_service.config import DistributedSettings
from trainer_service.distributed.ray_cluster import RayCluster, ray_cluster
from trainer_service.distributed.records import CollectionQuota, SampleRequest, SampleResult
from trainer_service.distributed.rollout_workers import WorkerLost
from trainer_service.errors import OutOfMemory
from trainer_service.running.runs.checkpoint import read_content
from unity_bridge.errors import BridgeError, LaunchError

ray = pytest.importorskip("ray")

from trainer_service.distributed import ray_workers as module  # noqa: E402  it imports Ray
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


def simulators() -> list[Any]:
    return [
        each
        for worker in workers_of_ray()
        for each in worker.children()
        if "mlagents-port" in " ".join(each.cmdline())
    ]


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
def test_a_worker_that_is_killed_while_it_starts_is_a_loss(pool: Callable[..., RayWorkers]) -> None:
    workers = pool(max_worker_restarts=0)
    until(workers, lambda came: bool(workers_of_ray()))
    workers_of_ray()[0].kill()
    (loss,) = (event for event in until(workers, lost) if isinstance(event, WorkerLost))
    assert not loss.comes_back
    assert "restarted 0 times (max_worker_restarts), and is not again" in loss.reason


@pytest.mark.thorough
def test_a_worker_that_does_not_answer_is_ended(
    pool: Callable[..., RayWorkers], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REPORT_S", 0.0)
    workers = pool(timeout_wait=1)
    until(workers, lambda came: workers.ready() == [0])
    (process,) = workers_of_ray()
    process.suspend()
    workers.publish(FIRST)
    workers.ask(0, CollectionQuota({}, {}))
    assert "no answer for 1 s" in next(e.reason for e in until(workers, lost) if isinstance(e, WorkerLost))
    process.wait(PATIENCE_S)


@pytest.mark.thorough
def test_simulators_that_are_gone_for_good_cost_their_worker(pool: Callable[..., RayWorkers]) -> None:
    workers = pool()
    until(workers, lambda came: workers.ready() == [0])
    collect(workers)
    workers._experienced.add(0)
    (simulator,) = simulators()
    simulator.kill()
    came: list[Event] = []
    while not lost(came):  # what the simulator said before its end may be answered first
        workers.ask(0, CollectionQuota({}, {}))
        came = until(workers, bool)
    loss = came[-1]
    assert isinstance(loss, WorkerLost)
    assert loss.comes_back
    assert "simulator 0" in loss.reason


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
def test_code_that_a_worker_cannot_load_ends_the_run(
    pool: Callable[..., RayWorkers], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_here.py").write_text(
        "class Elsewhere:\n"
        "    def __init__(self, number): ...\n"
        "    def place(self, plugins): ...\n"
        "    def leave(self): ...\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import only_here  # type: ignore[import-not-found]

    monkeypatch.setattr(module, "WorkerProcess", only_here.Elsewhere)
    workers = pool()
    with pytest.raises(
        LaunchError, match=r"worker 0.*No module named 'only_here'.*same version of trainer-service"
    ):
        until(workers, bool)


@pytest.mark.thorough
def test_an_error_that_nobody_expected_ends_the_run_at_once(
    pool: Callable[..., RayWorkers], caplog: pytest.LogCaptureFixture
) -> None:
    workers = pool()
    until(workers, lambda came: workers.ready() == [0])
    workers.publish(SampleRequest(number=0, policies={"Basic": None}))  # type: ignore[dict-item]
    workers.ask(0, CollectionQuota({}, {}))
    with pytest.raises(BridgeError, match=r"worker 0 on .*AttributeError"):
        until(workers, bool)
    assert "Traceback" in caplog.text


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


@pytest.mark.thorough
def test_workers_that_wait_for_a_place_are_told_of(
    pool: Callable[..., RayWorkers], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_PLACEMENT_S", 0.2)
    workers = pool(cpus_per_worker=64)
    until(workers, lambda came: "Waiting for resources" in caplog.text)
    assert "1 of 1 workers: 1 worker with 64 cores each were asked for" in caplog.text
    assert not workers.ready()


@pytest.mark.thorough
def test_runs_and_resumes_of_one_seed_are_equal_bit_for_bit(
    cluster: RayCluster,
    mlagents_style: Callable[..., Any],
    program: Callable[..., Path],
    configure: Callable[..., Path],
) -> None:
    treadmill = program("treadmill")

    def learn(run_id: str, max_steps: int, *flags: str) -> None:
        configure(
            "Treadmill",
            hyperparameters={"batch_size": 32, "buffer_size": 72, "learning_rate_schedule": "constant"},
            network_settings={"normalize": True, "hidden_units": 8, "num_layers": 1},
            max_steps=max_steps,
            summary_freq=72,
        )
        said = mlagents_style(
            "learn",
            "config.yaml",
            f"--env={treadmill}",
            f"--run-id={run_id}",
            "--seed=5",
            "--num-workers=2",
            *flags,
        )
        assert said.code == 0, said.err

    def outcome(run_id: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        folder = Path("results", run_id)
        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        for row in rows:
            for key in [
                key for key in row if key in ("wall_s", "steps_per_s") or key.startswith("Distributed/")
            ]:
                del row[key]
        checkpoint = read_content(folder / "Treadmill" / "checkpoint.safetensors")
        assert checkpoint["step"] == rows[-1]["step"]
        return flat(checkpoint["algorithm"]), rows

    for run_id in ("one", "other"):
        learn(run_id, 216)
    assert_equal_states(outcome("one")[0], outcome("other")[0])
    assert outcome("one")[1] == outcome("other")[1]
    half = outcome("one")[0]
    for run_id in ("one", "other"):
        learn(run_id, 432, "--resume")
    assert_equal_states(outcome("one")[0], outcome("other")[0])
    assert outcome("one")[1] == outcome("other")[1]
    with pytest.raises(AssertionError):
        assert_equal_states(outcome("one")[0], half)
