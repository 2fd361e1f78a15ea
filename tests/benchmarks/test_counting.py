"""What a trainer does is counted from outside: exchanges by its simulators, CPU time by the system."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from measuring.counting import Meter, counted

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="only Linux tells the CPU time of others")

BUSY = "import sys, time\nwhile time.process_time() < 0.3: pass\nprint('done', flush=True)\nsys.stdin.read()"


def test_exchanges_are_counted_where_they_are_made(tmp_path: Path) -> None:
    some, others = (counted(lambda data: data + b"!", tmp_path / name) for name in ("11", "12"))
    meter = Meter(trainer=-1, counts=tmp_path)
    assert meter.read().exchanges == 0
    assert some(b"a") == b"a!"
    some(b"b")
    others(b"c")
    assert meter.read().exchanges == 3


@pytest.fixture
def trainer(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process of a session of its own that was busy, beside another one that it started and that was as busy."""
    starts = f"import subprocess, sys\nbesides = subprocess.Popen([sys.executable, '-c', {BUSY!r}])\n"
    with subprocess.Popen(
        [sys.executable, "-c", f"{starts}print(besides.pid, flush=True)\n{BUSY}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        yield process
        process.stdin.close()


@pytest.mark.process
def test_a_trainers_processes_cost_cpu_time_and_its_simulators_do_not(
    tmp_path: Path, trainer: subprocess.Popen[str]
) -> None:
    besides, *done = (trainer.stdout.readline().strip() for _ in range(3))
    assert done == ["done", "done"]
    meter = Meter(trainer.pid, tmp_path)
    both = meter.read().cpu_s
    counted(bytes, tmp_path / besides)  # it is a simulator, so it says
    alone = meter.read().cpu_s
    assert both > 0.55
    assert 0.25 < alone < both - 0.25
