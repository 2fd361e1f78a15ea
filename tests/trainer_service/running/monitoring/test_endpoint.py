"""The port that answers Prometheus and health checks."""

from __future__ import annotations

import json
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from trainer_service.config import RunOptions
from trainer_service.running.metrics import EpisodeStats, Summary
from trainer_service.running.monitoring.endpoint import monitoring
from trainer_service.running.monitoring.run_monitor import BehaviorState, RunMonitor, RunState
from unity_bridge.errors import PortInUse

pytestmark = pytest.mark.process  # a port is opened, and asked


def options_for(folder: Path, port: int) -> RunOptions:
    saved = {"run_id": "walker", "results_dir": str(folder)}
    options = RunOptions.model_validate({"checkpoint_settings": saved})
    return options.model_copy(update={"metrics_port": port})  # 0 lets the system choose


@pytest.fixture
def monitor(tmp_path: Path) -> Iterator[RunMonitor]:
    with monitoring(options_for(tmp_path, 0)) as monitor:
        yield monitor


def ask(address: str, path: str) -> tuple[int, str]:
    try:
        with urlopen(f"{address}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def health(address: str, query: str = "") -> tuple[int, dict[str, Any]]:
    status, text = ask(address, f"/health{query}")
    return status, json.loads(text)


def samples(address: str) -> dict[str, Any]:
    """Values by the name of the metric, and by the behavior where it has one."""
    found: dict[str, Any] = {}
    for family in text_string_to_metric_families(ask(address, "/metrics")[1]):
        for sample in family.samples:
            name = sample.labels.get("behavior")
            found[sample.name if name is None else f"{sample.name} {name}"] = sample.value
    return found


def status_for_host(address: str, host: str | None) -> tuple[int, str]:
    with closing(HTTPConnection(address.removeprefix("http://"), timeout=30)) as connection:
        connection.putrequest("GET", "/health", skip_host=True)
        if host is not None:
            connection.putheader("Host", host)
        connection.endheaders()
        with connection.getresponse() as answer:
            return answer.status, answer.read().decode()


def test_pages_of_other_hosts_read_nothing(monitor: RunMonitor) -> None:
    # Those of HTTP/1.0, as health checks of proxies speak it, name no host; another port is the end of a tunnel.
    for host in ("127.0.0.1:9100", "localhost:8080", "localhost", None):
        assert status_for_host(monitor.address, host)[0] == 200
    for host in ("evil.example", "evil.example:9100", "127.0.0.1.evil.example:9100", ""):
        status, said = status_for_host(monitor.address, host)
        assert (status, "expected the host 127.0.0.1 or localhost" in said) == (403, True)


def test_requests_that_make_no_sense_are_refused(monitor: RunMonitor) -> None:
    assert ask(monitor.address, "/")[0] == 404
    for age in ("soon", "-1", "nan", "inf"):
        assert health(monitor.address, f"?max_age_s={age}")[0] == 400
    assert monitor.address.startswith("http://127.0.0.1:"), "only this machine is answered"
    with socket.create_connection(("127.0.0.1", int(monitor.address.rpartition(":")[2]))):
        assert health(monitor.address)[0] == 200, "a client that says nothing keeps nobody waiting"


def test_prometheus_gets_the_state_of_the_run(monitor: RunMonitor, tmp_path: Path) -> None:
    monitor.state = RunState(3, 1, {'Ba"ll\\': BehaviorState(1500, 2000, 40.5, 12)})
    stats = EpisodeStats(np.array([1.0, 5.0]), np.array([10.0, 30.0]), np.array([6.0]))
    monitor.write(Summary(behavior='Ba"ll\\', step=1000, wall_s=1.0, steps_per_s=1.0, stats=stats))
    found = samples(monitor.address)
    of_ball = {name.rpartition(" ")[0]: value for name, value in found.items() if name.endswith(' Ba"ll\\')}
    assert of_ball.pop("trainer_service_last_summary_timestamp_seconds") > 1.7e9
    assert of_ball == {
        "trainer_service_steps_total": 1500,
        "trainer_service_max_steps": 2000,
        "trainer_service_steps_per_second": 40.5,
        "trainer_service_episodes_total": 12,
        "trainer_service_mean_return": 3.0,
        "trainer_service_mean_group_return": 6.0,
    }
    assert found["trainer_service_simulators"] == 3
    assert found["trainer_service_simulator_restarts_total"] == 1


def test_a_run_that_starts_is_healthy(monitor: RunMonitor) -> None:
    status, told = health(monitor.address)
    assert (status, told["status"], told["simulators"]) == (200, "starting", 0)
    assert "trainer_service_last_tick_age_seconds" not in samples(monitor.address)


def test_a_loop_that_stands_still_is_unhealthy(monitor: RunMonitor) -> None:
    class Source:
        num_simulators, num_restarts = 1, 0

    monitor.tick(Source(), {})  # type: ignore[arg-type]
    status, told = health(monitor.address)
    assert (status, told["status"], told["simulators"]) == (200, "ok", 1)
    status, told = health(monitor.address, "?max_age_s=1e-9")
    assert (status, told["status"]) == (503, "stuck")
    assert told["last_tick_age_s"] >= 0


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as owner:
        port = owner.getsockname()[1]
        with pytest.raises(PortInUse, match=rf"127\.0\.0\.1:{port} is in use by process \d+ "):
            monitoring(options_for(tmp_path, port)).__enter__()


def test_a_run_answers_while_it_learns(start, configure, free_port: int) -> None:
    configure("Basic", max_steps=10_000_000, summary_freq=200)
    run = start("learn", "config.yaml", "--env=sim:basic", f"--metrics-port={free_port}")
    address = re.search(r"http://\S+:\d+", run.until("Metrics for Prometheus on"))
    assert address is not None
    for _ in range(3):
        run.until("Basic. Step: ")
    found = samples(address[0])
    assert found["trainer_service_simulators"] == 1
    assert found["trainer_service_max_steps Basic"] == 10_000_000
    assert -3 < found["trainer_service_mean_return Basic"] < 1
    status, told = health(address[0])
    assert (status, told["status"]) == (200, "ok")
    assert set(told["behaviors"]) <= {"Basic"}
    run.signal(signal.SIGTERM)
    assert run.end() == 0
