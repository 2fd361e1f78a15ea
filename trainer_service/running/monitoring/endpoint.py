"""The port that answers Prometheus and health checks about a run, or about served policies, on this machine only."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import socketserver
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from trainer_service.config import RunOptions
from trainer_service.errors import UserError
from trainer_service.running.monitoring.run_monitor import RunMonitor
from trainer_service.running.runs.layout import RunLayout
from unity_bridge.extras import install_hint
from unity_bridge.transport.ports import is_local_name, require_free

HOST = "127.0.0.1"

MAX_TICK_AGE_S = 300.0
"""Seconds without a tick of the loop after which a run with simulators is unhealthy, unless the caller says otherwise.
An update or an evaluation is one tick."""

_CLIENT_TIMEOUT_S = 10.0
"""Seconds that a client may take to ask its question."""

HealthCheck = Callable[[str], tuple[HTTPStatus, Mapping[str, Any]]]
"""Returns the answer to a health check with this query."""

_logger = logging.getLogger(__name__)


@contextmanager
def monitoring(options: RunOptions) -> Iterator[RunMonitor]:
    """The monitor of a run, with a port as ``answering`` opens it."""
    saved = options.checkpoint_settings
    monitor = RunMonitor(RunLayout(Path(saved.results_dir, saved.run_id).absolute()))
    with answering(
        options.metrics_port or 0,
        lambda prometheus: prometheus.RunMetrics(monitor, saved.run_id).text,
        lambda query: _health(monitor, query),
    ) as monitor.address:
        yield monitor


@contextmanager
def answering(
    port: int, metrics: Callable[[Any], Callable[[], bytes]], about_health: HealthCheck
) -> Iterator[str]:
    """The address of a port that answers in threads of its own for as long as the context lasts.

    metrics: makes the function that returns them, with the module ``prometheus``.

    Raises:
        UserError: the package prometheus-client is missing.
        PortInUse: another process listens on the port.
    """
    if importlib.util.find_spec("prometheus_client") is None:
        raise UserError(f"--metrics-port: prometheus-client is not installed: {install_hint('prometheus')}")
    from trainer_service.running.monitoring import prometheus

    if port:
        require_free(HOST, port)
    with _Server((HOST, port), _Handler) as server:
        server.metrics, server.health = metrics(prometheus), about_health
        server.content_type = prometheus.CONTENT_TYPE
        thread = threading.Thread(target=server.serve_forever, name="metrics port", daemon=True)
        thread.start()
        try:
            yield f"http://{HOST}:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def health(monitor: RunMonitor, max_tick_age_s: float = MAX_TICK_AGE_S) -> tuple[HTTPStatus, dict[str, Any]]:
    """The status and the content of the answer to a health check.

    Args:
        monitor: of the run.
        max_tick_age_s: seconds without a tick that are well while simulators are there.
    """
    age_s, state, now = monitor.tick_age_s, monitor.state, time.time()
    stuck = monitor.is_stuck(max_tick_age_s)
    behaviors = {}
    for name, behavior in state.behaviors.items():
        saved = monitor.saved(name)
        summary = monitor.summaries.get(name)
        behaviors[name] = {
            "step": behavior.step,
            "max_steps": behavior.max_steps,
            "last_summary_age_s": None if summary is None else _rounded(now - summary[1]),
            "checkpoint_step": saved.step,
            "checkpoint_age_s": None if saved.saved_s is None else _rounded(now - saved.saved_s),
        }
    return HTTPStatus.SERVICE_UNAVAILABLE if stuck else HTTPStatus.OK, {
        "status": "stuck" if stuck else "starting" if age_s is None else "ok",
        "last_tick_age_s": None if age_s is None else _rounded(age_s),
        "max_tick_age_s": max_tick_age_s,
        "simulators": state.simulators,
        "restarts": state.restarts,
        "behaviors": behaviors,
    }


def _health(monitor: RunMonitor, query: str) -> tuple[HTTPStatus, Mapping[str, Any]]:
    asked = parse_qs(query).get("max_age_s")
    try:
        limit_s = MAX_TICK_AGE_S if asked is None else float(asked[-1])
    except ValueError:
        limit_s = -1.0
    if not 0 < limit_s < float("inf"):
        return HTTPStatus.BAD_REQUEST, {"error": "max_age_s: expected seconds above 0"}
    return health(monitor, limit_s)


def _rounded(seconds: float) -> float:
    return round(max(seconds, 0.0), 3)


class _Server(socketserver.ThreadingTCPServer):
    """A server with a thread for each question, none of which keeps the process alive."""

    allow_reuse_address = (
        os.name == "posix"
    )  # on Windows the option would let us take the port from its owner
    daemon_threads = True
    block_on_close = False
    health: HealthCheck
    metrics: Callable[[], bytes]
    """Returns what Prometheus gets, of this type."""
    content_type: str

    def handle_error(self, request: Any, client_address: Any) -> None:
        _logger.debug("A question on the metrics port failed:", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    """One question, answered."""

    server: _Server
    server_version = "trainer-service"
    sys_version = ""
    timeout = _CLIENT_TIMEOUT_S

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if not is_local_name(self.headers.get("Host")):
            self._answer_json(HTTPStatus.FORBIDDEN, {"error": f"expected the host {HOST} or localhost"})
        elif url.path == "/metrics":
            self._answer(HTTPStatus.OK, self.server.content_type, self.server.metrics())
        elif url.path == "/health":
            self._answer_json(*self.server.health(url.query))
        else:
            self._answer_json(HTTPStatus.NOT_FOUND, {"error": "expected /metrics or /health"})

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: a question every few seconds is no news."""

    def _answer_json(self, status: HTTPStatus, content: Mapping[str, Any]) -> None:
        self._answer(status, "application/json", json.dumps(content).encode() + b"\n")

    def _answer(self, status: HTTPStatus, content_type: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
