"""What the tests of every package need."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]

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
