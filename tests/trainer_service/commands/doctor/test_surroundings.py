from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from trainer_service.commands.doctor.surroundings import attach_port, proxies, results_folder


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_whoever_holds_the_port_is_named(host: str) -> None:
    with socket.create_server((host, 0)) as held:
        finding = attach_port(held.getsockname()[1])
    assert finding.verdict == "fail"
    assert "--port" in finding.remedy
    pytest.importorskip("psutil", reason="only an installation that is incomplete lacks it")
    assert finding.found.startswith(f"in use by process {os.getpid()} (")


def test_a_folder_that_does_not_exist_yet_will_do(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "results"
    assert results_folder(folder).verdict == "ok"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="needs a folder where even root cannot write")
def test_a_folder_where_nothing_can_be_written(tmp_path: Path) -> None:
    finding = results_folder(Path("/proc/results"))
    assert finding.verdict == "fail"
    assert "nothing can be written in /proc" in finding.found


def test_a_disk_that_is_almost_full_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage:
        free = 5_000_000

    monkeypatch.setattr("shutil.disk_usage", lambda path: Usage)
    finding = results_folder(tmp_path)
    assert (finding.verdict, finding.found) == ("warn", "5 MB are free")


@pytest.mark.parametrize(
    ("environment", "verdict"),
    [
        ({}, "ok"),
        ({"http_proxy": ""}, "ok"),
        ({"http_proxy": "http://proxy:3128"}, "warn"),
        ({"HTTPS_PROXY": "http://proxy:3128"}, "warn"),
        ({"grpc_proxy": "http://proxy:3128", "no_proxy": "example.org"}, "warn"),
        ({"http_proxy": "http://proxy:3128", "no_proxy": "localhost"}, "warn"),
        ({"http_proxy": "http://proxy:3128", "no_proxy": "localhost, 127.0.0.1"}, "ok"),
        ({"http_proxy": "http://proxy:3128", "NO_PROXY": "*"}, "ok"),
        (
            {"http_proxy": "http://proxy:3128", "no_grpc_proxy": "x", "no_proxy": "localhost,127.0.0.1"},
            "warn",
        ),
    ],
)
def test_a_proxy_matters_unless_this_machine_is_excepted(environment: dict[str, str], verdict: str) -> None:
    finding = proxies(environment)
    assert finding.verdict == verdict
    if verdict == "warn":
        assert "no_proxy=localhost,127.0.0.1" in finding.remedy
