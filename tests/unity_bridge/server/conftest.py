"""A port and a program for tests that speak in a launched program's place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import processes
import pytest

from unity_bridge.programs.executables import Command


@pytest.fixture
def idle_program(make_program: Callable[[str, str], Path]) -> Command:
    """A process that runs and never connects: the test may speak in its place."""
    path = make_program("idle.py", "import threading\nthreading.Event().wait()\n")
    return Command(env="idle", executable=(str(path),))


@pytest.fixture
def free_port() -> int:
    return processes.free_port()
