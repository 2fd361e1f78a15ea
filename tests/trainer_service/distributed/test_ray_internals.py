"""Changes to Ray and to this process are undone; what Ray says goes to our log."""

from __future__ import annotations

import importlib
import logging
import os
import signal
from collections import namedtuple
from pathlib import Path

import pytest

from trainer_service.distributed import local_ray, ray_internals

ray = pytest.importorskip("ray")
Usage = namedtuple("Usage", "total used free")


def test_the_environment_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT", "1")
    before = dict(os.environ)
    with ray_internals.environment({"KEPT": "2", "ADDED": "3"}):
        assert os.environ["KEPT"] == "2"
        os.environ["OF_RAY"] = "4"
        del os.environ["ADDED"]
    assert dict(os.environ) == before


def test_handlers_of_signals_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with ray_internals.own_signal_handlers():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGTERM) == before


def test_warnings_of_ray_become_lines_of_our_log(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    worker = importlib.import_module("ray._private.worker")
    with ray_internals.quiet(), caplog.at_level(logging.DEBUG, "trainer_service"):
        logging.getLogger("ray").setLevel(logging.INFO)
        logging.getLogger("ray.anything").warning("spilling %d objects", 3)
        logging.getLogger("ray.anything").info("connected")
        worker.print_to_stdstream({"lines": ["A worker died."], "is_err": False}, ignore_prefix=False)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "Ray: spilling 3 objects"),
        ("DEBUG", "Ray: A worker died."),
    ]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("module", "name", "context"),
    [
        ("ray._private.ray_constants", "ENABLE_RAY_CLUSTER", ray_internals.loopback_addresses),
        ("ray._private.services", "get_node_to_connect_for_driver", ray_internals.impatient),
        ("ray._private.worker", "print_to_stdstream", ray_internals.quiet),
    ],
)
def test_what_is_changed_exists_and_is_put_back(module: str, name: str, context) -> None:
    owner = importlib.import_module(module)
    before = getattr(owner, name)
    with context():
        assert getattr(owner, name) != before
    assert getattr(owner, name) == before


@pytest.mark.parametrize(("free", "fits"), [(2**30, True), (64 * 2**20, False), (1, False)])
def test_objects_lie_in_files_where_shared_memory_is_tiny(
    free: int, fits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr(local_ray, "_SHARED_MEMORY", tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda path: Usage(free, 0, free))
    place, size = local_ray._object_store(Path("/somewhere"))
    assert place == (str(tmp_path) if fits else "/somewhere")
    assert 80 * 2**20 <= size <= (2**30 if fits else size)
