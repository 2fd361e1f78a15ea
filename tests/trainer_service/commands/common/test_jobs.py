"""Jobs as child processes: a limited number at a time, their logs, failures, stops and ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from processes import wait_until

from trainer_service.commands.common.jobs import Job, JobEnd, JobPool, run_jobs
from trainer_service.running.training.stop_signals import StopSignals
from unity_bridge.programs.child_process import ChildProcess

pytestmark = pytest.mark.process

PATIENCE_S = 60.0


@pytest.fixture
def stop() -> Iterator[StopSignals]:
    with StopSignals() as signals:
        yield signals


class Scripts:
    """A place that runs the first argument of a job as a Python program."""

    def __init__(self) -> None:
        self.threads: list[int] = []
        self.closed = False

    def start(self, job: Job, threads: int, on_exit: Callable[[], None]) -> ChildProcess:
        self.threads.append(threads)
        line = [sys.executable, "-c", textwrap.dedent(job.arguments[0])]
        return ChildProcess(line, log=job.log, environment=os.environ, on_exit=on_exit, keep_log=True)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Scripts:
    """Scripts in place of the processes of this machine."""
    place = Scripts()
    monkeypatch.setattr("trainer_service.commands.common.jobs.LocalProcesses", lambda: place)
    return place


def ignore(running: Sequence[str], ends: Sequence[JobEnd]) -> None:
    pass


def job(tmp_path: Path, name: str, program: str) -> Job:
    return Job(name, (program,), tmp_path / name / "output.log")


def ends_of(pool: JobPool, number: int = 1) -> list[JobEnd]:
    ends: list[JobEnd] = []
    while len(ends) < number:
        ends += pool.wait(PATIENCE_S)
    return ends


def test_so_many_jobs_run_at_a_time_in_their_order(
    tmp_path: Path, stop: StopSignals, scripts: Scripts
) -> None:
    seen: list[list[str]] = []
    jobs = [job(tmp_path, name, "print('done')") for name in "abcd"]
    ends = run_jobs(jobs, 2, stop=stop, on_look=lambda running, ends: seen.append([*running]))
    assert sorted(end.job.name for end in ends) == ["a", "b", "c", "d"]
    assert max(map(len, seen)) == 2
    assert seen[0] == ["a", "b"]
    assert seen[-1] == []
    assert not any(end.message for end in ends)
    assert (tmp_path / "c" / "output.log").read_text() == "done\n"


def test_jobs_share_the_cores(
    tmp_path: Path, stop: StopSignals, scripts: Scripts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("unity_bridge.programs.cores.usable_cores", lambda: 8)
    run_jobs([job(tmp_path, "a", "")], 3, stop=stop, on_look=ignore)
    assert scripts.threads == [2]
    assert scripts.closed


def test_a_failed_job_is_told_with_its_last_lines_and_the_others_go_on(
    tmp_path: Path, stop: StopSignals, scripts: Scripts
) -> None:
    failing = "print('looking'); print('no such file'); raise SystemExit(2)"
    jobs = [job(tmp_path, "a", failing), job(tmp_path, "b", "print('done')")]
    first, second = run_jobs(jobs, 1, stop=stop, on_look=ignore)
    assert (first.exit_code, second.exit_code, second.message) == (2, 0, "")
    assert first.message.splitlines() == [
        f"a: exited with code 2; its last lines ({tmp_path / 'a' / 'output.log'}):",
        "  looking",
        "  no such file",
    ]


WAITS = """
    import signal, sys, time
    def end(number, frame):
        print("saved", flush=True)
        sys.exit(0)
    signal.signal(signal.SIGTERM, end)
    print("ready", flush=True)
    time.sleep(600)
"""


def wait_for_text(path: Path, text: str) -> None:
    wait_until(lambda: path.is_file() and text in path.read_text(), f"'{text}' in {path}")


def test_a_stop_lets_running_jobs_save_and_starts_no_other(
    tmp_path: Path, stop: StopSignals, scripts: Scripts
) -> None:
    jobs = [job(tmp_path, "a", WAITS), job(tmp_path, "b", WAITS)]

    def ask(running: Sequence[str], ends: Sequence[JobEnd]) -> None:
        if running:
            wait_for_text(jobs[0].log, "ready")
            stop.request()

    (end,) = run_jobs(jobs, 1, stop=stop, on_look=ask)
    assert (end.job.name, end.exit_code, end.stopped, end.message) == ("a", 0, True, "")
    assert jobs[0].log.read_text() == "ready\nsaved\n"
    assert not jobs[1].log.exists()


def test_one_job_of_a_pool_can_be_stopped(tmp_path: Path) -> None:
    first, second = job(tmp_path, "a", WAITS), job(tmp_path, "b", "import time; time.sleep(600)")
    place = Scripts()
    with JobPool(2, place) as pool:
        pool.start(first)
        pool.start(second)
        assert not pool.has_room
        wait_for_text(first.log, "ready")
        pool.stop("a")
        pool.stop("a")
        (end,) = ends_of(pool)
        assert (end.job, end.stopped) == (first, True)
        assert pool.running == ["b"]
        assert pool.has_room
    assert place.closed
    (end,) = ends_of(pool)
    assert (end.job, end.exit_code) == (second, -signal.SIGTERM)


PARENT = """
    import sys, time
    from pathlib import Path
    from trainer_service.commands.common import jobs
    from trainer_service.running.training.stop_signals import StopSignals
    sys.executable = sys.argv[1]
    job = jobs.Job("a", ("learn",), Path(sys.argv[2]))
    with jobs.JobPool(1) as pool:
        pool.start(job)
        Path(sys.argv[3]).write_text("started")
        time.sleep(600)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="the watchdog is a POSIX shell")
def test_jobs_save_and_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    child = tmp_path / "child.py"
    child.write_text(f"#!{sys.executable}\n{textwrap.dedent(WAITS)}")
    child.chmod(0o755)
    log, started = tmp_path / "output.log", tmp_path / "started"
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(PARENT), child, log, started])
    try:
        wait_for_text(log, "ready")
        wait_for_text(started, "started")
    finally:
        parent.kill()
        parent.wait()
    wait_for_text(log, "saved")
