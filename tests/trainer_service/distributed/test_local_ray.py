"""Ray on this machine for one run: who reaches it, what it does to this process, and that nothing of it stays."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trainer_service.config import DistributedSettings
from trainer_service.distributed.local_ray import local_ray
from trainer_service.distributed.ray_authentication import asks_for_token
from trainer_service.distributed.ray_cluster import RayCluster, ray_cluster
from unity_bridge.transport.call_status import call_status

ray = pytest.importorskip("ray")

WORKERS = 3
"""More than this machine may have cores."""
LOOPBACK = {"127.0.0.1", "::ffff:127.0.0.1", "::1"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the run is started in, with a module of the user's."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "maze_of_mine.py").write_text("SIZE = 7\n")
    return folder


@pytest.fixture(scope="module")
def local(processes: None, folder: Path) -> Iterator[RayCluster]:
    """A Ray that was started for this module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        with ray_cluster(DistributedSettings(num_workers=WORKERS), WORKERS) as cluster:
            yield cluster


def descendants() -> list[Any]:
    import psutil

    return list(psutil.Process().children(recursive=True))


def test_ray_listens_on_this_machine_alone(local: RayCluster) -> None:
    import psutil

    sockets = [
        (process.name(), connection.laddr.ip)
        for process in [psutil.Process(), *descendants()]
        for connection in process.net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert {"gcs_server", "raylet"} <= {name for name, _ in sockets}
    assert {ip for _, ip in sockets} <= LOOPBACK
    assert not any(node.listens_to_network for node in local.nodes())


def test_only_who_knows_the_token_of_the_run_is_let_in(local: RayCluster) -> None:
    address = ray.get_runtime_context().gcs_address
    method = "/ray.rpc.NodeInfoGcsService/GetAllNodeInfo"
    assert asks_for_token(address)
    assert call_status(address, method, token="guessed", timeout_s=10) == "UNAUTHENTICATED"
    assert call_status(address, method, token=os.environ["RAY_AUTH_TOKEN"], timeout_s=10) == "OK"


def test_workers_find_what_the_trainer_finds(local: RayCluster, folder: Path) -> None:
    @ray.remote
    def look() -> tuple[str, int, str]:
        import maze_of_mine

        import trainer_service

        return os.getcwd(), maze_of_mine.SIZE, trainer_service.__file__

    import trainer_service

    assert ray.get(look.remote()) == (str(folder), 7, trainer_service.__file__)


def is_gone(process: subprocess.Popen[bytes]) -> bool:
    """Whether it has ended, and whoever ended it has taken its exit code."""
    import psutil

    gone = not psutil.pid_exists(process.pid)
    process.poll()
    return gone


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[subprocess.Popen[bytes]]]:
    """Lets Ray's next starts end with these errors, each after a process that it leaves behind."""

    def arrange(*errors: Exception) -> list[subprocess.Popen[bytes]]:
        left: list[subprocess.Popen[bytes]] = []
        waiting = list(errors)

        def init(**_: Any) -> Any:
            left.append(subprocess.Popen(["sleep", "60"]))
            if waiting:
                raise waiting.pop(0)
            return SimpleNamespace(address_info={"node_ip_address": "127.0.0.1"})

        monkeypatch.setattr(ray, "init", init)
        monkeypatch.setattr("trainer_service.distributed.local_ray._EXIT_S", 0.2)
        return left

    return arrange


def test_a_ray_that_does_not_come_up_in_time_gets_a_second_chance(
    processes: None, fails: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    error = RuntimeError("Timed out waiting for file gcs_server_port_1")
    left = fails(error)
    with local_ray(1, insecure=True):
        first, second = left
        assert is_gone(first)
        assert not is_gone(second)
    assert is_gone(second)
    assert f"{str(error).rstrip('.')}; trying once more" in caplog.text
