"""``doctor --ray`` on two nodes of real Ray, on one of its own, and where there is none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from ray_clusters import running_cluster

from trainer_service.commands.doctor import on_ray_node, ray_nodes
from trainer_service.commands.doctor.report import Finding
from trainer_service.config import DistributedSettings

pytest.importorskip("ray")


@pytest.fixture(scope="module")
def address(processes: None) -> Iterator[str]:
    """The address of a cluster of two nodes; its token is in the environment."""
    with running_cluster() as address:
        yield address


def findings(address: str, env: str | None = None) -> dict[str, list[Finding]]:
    """Findings by the first word of their subject."""
    found: dict[str, list[Finding]] = {}
    for finding in ray_nodes.cluster(DistributedSettings(ray_address=address), env):
        found.setdefault(finding.subject.split()[0], []).append(finding)
    return found


@pytest.mark.thorough
def test_each_node_is_described(address: str) -> None:
    found = findings(address, "sim:basic")
    assert {finding.verdict for each in found.values() for finding in each} == {"ok"}
    size, authentication, ports = found["Ray"]
    assert size.found == "2 nodes, 4 cores, 0 GPUs"
    assert authentication.found == "strangers are refused"
    assert ports.found == "open to this machine alone"
    assert len(found["node"]) == len(found["env"]) == 2
    here = on_ray_node.describe_node(None)["versions"]
    versions = ", ".join(f"{name} {version}" for name, version in here.items())
    assert all(finding.found.endswith(versions) for finding in found["node"])


def test_a_build_that_is_missing_is_named_on_every_node(address: str, tmp_path: Path) -> None:
    missing = findings(address, str(tmp_path / "build"))["env"]
    assert [finding.verdict for finding in missing] == ["fail", "fail"]
    assert all(f"{tmp_path / 'build'}': no such program" in finding.found for finding in missing)


def test_other_versions_than_here_are_failures(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: "0.0.1+cpu")
    nodes = findings(address)["node"]
    assert [finding.verdict for finding in nodes] == ["fail", "fail"]
    expected = "install what is here: ray 0.0.1, torch 0.0.1, trainer-service 0.0.1"
    assert {finding.remedy for finding in nodes} == {expected}


def test_fewer_cores_than_workers_ask_for_are_a_failure(address: str) -> None:
    settings = DistributedSettings(ray_address=address, num_workers=9)
    size = next(iter(ray_nodes.cluster(settings, None)))
    assert size.verdict == "fail"
    assert "9 workers with 1 core each were asked for" in size.found


def test_the_command_names_a_cluster_that_does_not_answer(mlagents_style, free_port: int) -> None:
    said = mlagents_style("doctor", f"--ray=127.0.0.1:{free_port}", f"--port={free_port}", "--json")
    assert said.code == 2
    (broken,) = [check for check in json.loads(said.out)["checks"] if check["verdict"] == "fail"]
    assert broken["check"] == f"Ray 127.0.0.1:{free_port}"
    assert broken["found"].startswith(f"No Ray cluster answers at 127.0.0.1:{free_port}")
