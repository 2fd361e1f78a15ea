"""Connecting to a cluster: two nodes of real Ray, one that does not require a token, and none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from ray_clusters import running_cluster

from trainer_service.config import DistributedSettings
from trainer_service.distributed.ray_cluster import RayCluster, absolute_env, ray_cluster
from trainer_service.errors import UserError

pytest.importorskip("ray")


@pytest.fixture(scope="module")
def address(processes: None) -> Iterator[str]:
    """The address of a cluster of two nodes with two cores each; its token is in the environment."""
    with running_cluster() as address:
        yield address


@pytest.fixture
def connected(address: str) -> Iterator[RayCluster]:
    with ray_cluster(DistributedSettings(ray_address=address), 1) as cluster:
        yield cluster


def refusal(address: str) -> str:
    """The message with which a cluster is not used."""
    with pytest.raises(UserError) as refused, ray_cluster(DistributedSettings(ray_address=address), 1):
        pass
    return str(refused.value)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("workers", "cores", "room"), [(4, 1.0, None), (5, 1.0, 4), (3, 1.5, 2), (1, 3.0, 0), (1000, 0.0, None)]
)
def test_workers_that_fit_nowhere_are_named_with_what_is_there(
    connected: RayCluster, workers: int, cores: float, room: int | None
) -> None:
    problem = connected.placement_problem(workers, cores)
    assert problem == "" if room is None else f"has 4 cores on 2 nodes, room for {room}:" in problem


@pytest.mark.thorough
def test_a_wrong_token_is_refused_before_ray_tries_it(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "wrong")
    assert f"{address} refuses the token of this machine" in refusal(address)


@pytest.mark.thorough
@pytest.mark.process
def test_a_cluster_that_asks_nobody_is_used_only_if_told() -> None:
    with running_cluster(nodes=1, authentication="disabled") as address:
        assert f"{address} does not require a token" in refusal(address)
        settings = DistributedSettings(ray_address=address, insecure_ray=True)
        with ray_cluster(settings, 1) as cluster:
            assert len(cluster.nodes()) == 1


@pytest.mark.process
def test_an_address_where_nothing_listens_is_named(free_port: int) -> None:
    address = f"127.0.0.1:{free_port}"
    assert (
        refusal(address)
        == f"No Ray cluster answers at {address}: is it running, and may this machine reach it?"
    )
    assert refusal(f"ray://{address}").startswith(f"No Ray cluster answers at ray://{address}:")


@pytest.mark.parametrize("address", ["here", "http://host:1", "host", "host:port", "ray://host", "-x:1;ls"])
def test_what_is_no_address_is_refused(address: str) -> None:
    assert f"expected auto, HOST:PORT or ray://HOST:PORT, got {address}" in refusal(address)


def test_paths_of_builds_no_longer_depend_on_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute_env("./build") == str(tmp_path / "build")
    assert absolute_env("sim:basic") == "sim:basic"
    assert absolute_env(None) is None
