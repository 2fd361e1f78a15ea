"""Fixtures for every package, and the tiers of tests that CONTRIBUTING.md describes."""

from __future__ import annotations

import multiprocessing.process
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

REPOSITORY = Path(__file__).parents[1]

TIERS = frozenset({"process", "probe", "learning", "conformance", "network"})
TIER_OF_FOLDER = {"chaos": "process", "conformance": "conformance"}
"""Of all tests in these folders that name none themselves."""

UNIT_BACKWARD_PASSES = int(300 * max(1.0, float(os.environ.get("FUZZ", "1"))))
"""A unit test makes this many at most: a few updates of each kind, or of each input that FUZZ adds."""

# Always the same inputs, so that no commit is refused for what another one brought; others where FUZZ is set. A busy
# machine draws them slowly, which is no mistake of a test.
hypothesis.settings.register_profile(
    "repeatable", derandomize=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
if "FUZZ" not in os.environ:
    hypothesis.settings.load_profile("repeatable")

# As the command line does before torch is loaded, which in tests has happened by then.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")
if "PYTEST_XDIST_WORKER" in os.environ:
    # Tests beside each other that take all cores each wait for one another.
    os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of this checkout."""
    return REPOSITORY


@pytest.fixture(scope="session", autouse=True)
def packages_for_child_processes() -> Iterator[None]:
    """Processes that tests start import the packages of this checkout, wherever they run."""
    with pytest.MonkeyPatch.context() as patch:
        search = (str(REPOSITORY), os.environ.get("PYTHONPATH"))
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, search)))
        yield


@pytest.fixture(scope="session", autouse=True)
def signals_as_in_a_terminal() -> None:
    """Signals that nohup and a shell's background hide from child processes reach those of tests."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if os.name == "posix" and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def processes() -> None:
    """Marks fixtures: a test that uses one that requests this stands in the tier ``process``."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One process more than cores for ``-n auto``: many tests wait for simulators and trainers."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks each test that names no tier with the one where it stands."""
    for item in items:
        if TIERS.isdisjoint(mark.name for mark in item.iter_markers()):
            does = "process" if "processes" in getattr(item, "fixturenames", ()) else "unit"
            item.add_marker(TIER_OF_FOLDER.get(item.path.parent.name, does))


def lists_fonts(arguments: tuple[Any, ...]) -> bool:
    """Whether a process is what matplotlib starts once on a machine, in whichever test draws first."""
    return len(arguments) > 1 and isinstance(arguments[1], list) and arguments[1][:1] == ["fc-list"]


class Doings:
    """Counts of what the running test did, which decide its tier."""

    def __init__(self) -> None:
        self.started = 0
        self.backward_passes = 0
        subprocess.Popen.__init__ = self._counted(subprocess.Popen.__init__, "started")  # type: ignore[method-assign]
        process = multiprocessing.process.BaseProcess
        process.start = self._counted(process.start, "started")  # type: ignore[method-assign]
        self._watches_torch = False

    def forget(self) -> None:
        self.started = self.backward_passes = 0
        if not self._watches_torch and "torch" in sys.modules:  # tests of the bridge never load it
            self._watches_torch = True
            autograd = sys.modules["torch"].autograd
            autograd.backward = self._counted(autograd.backward, "backward_passes")

    def beyond_unit(self) -> str:
        """Why this is more than a unit test does; empty for no reason."""
        if self.started:
            return (
                f"it started {self.started} processes: mark it process, or let the fixture that starts them "
                "request 'processes'"
            )
        if self.backward_passes > UNIT_BACKWARD_PASSES:
            return (
                f"it made {self.backward_passes} backward passes of at most {UNIT_BACKWARD_PASSES}: mark it "
                "probe, or let it learn less"
            )
        return ""

    def _counted(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def count(*arguments: Any, **keywords: Any) -> Any:
            if not lists_fonts(arguments):
                setattr(self, name, getattr(self, name) + 1)
            return function(*arguments, **keywords)

        return count


DOINGS = Doings()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    DOINGS.forget()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    yield
    if item.get_closest_marker("unit") and (why := DOINGS.beyond_unit()):
        pytest.fail(
            f"A test without a tier is a unit test, but {why} (CONTRIBUTING.md, Tests).", pytrace=False
        )
