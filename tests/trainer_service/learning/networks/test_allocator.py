"""Memory that an update frees is there for the next one."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

PROGRAM = """
import resource, numpy
from trainer_service.learning.networks.allocator import keep_freed_memory
kept = keep_freed_memory()
def use():
    parts = [numpy.ones(100_000, numpy.float32) for _ in range(20)]
use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    use()
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(**environment: str) -> tuple[str, int]:
    """Whether freed memory is kept, and the pages that the system had to bring for the same 8 MB 20 times again."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True, text=True, check=True, env={**inherited, **environment},
    )  # fmt: skip
    kept, pages = run.stdout.split()
    return kept, int(pages)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these parameters")
def test_freed_memory_is_not_asked_for_again() -> None:
    assert faults() == ("True", pytest.approx(0, abs=100))


THREADS = """
import threading
from pathlib import Path
from trainer_service.learning.networks.allocator import keep_freed_memory
from unity_bridge.server import freed_memory
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
def use():
    parts = [bytearray(b"x") * (1 << 20) for _ in range(40)]
keep_freed_memory()
before = resident()
for _ in range(3):
    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
freed_memory.give_back()
print(resident() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these parameters")
def test_memory_that_threads_freed_can_be_given_back() -> None:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    run = subprocess.run(
        [sys.executable, "-c", THREADS], capture_output=True, text=True, check=True, env=inherited
    )
    assert int(run.stdout) < 20 * 2**20
