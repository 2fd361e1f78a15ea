"""Runs of the command line as processes that may be hit, and simulators beside them that measure their waits.

``warm`` runs are forked from a process that has loaded torch already: hundreds of starts then cost a second each.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

MARK = "CHAOS_MARK"
"""A variable of the environment that a run hands down to everything it starts."""

PATIENCE_S = 120.0
"""No wait for something that must happen lasts longer; a free machine needs a second or two."""

PROGRAMS = Path(__file__).parents[1] / "programs"
HEALTHY = PROGRAMS / "healthy.py"
_STEP = re.compile(r"Step: (\d+)")


class WaitTimeout(AssertionError):
    """An event that a test waited for and that never came."""


def wait_until(happened: Callable[[], Any], what: str, timeout_s: float = PATIENCE_S) -> Any:
    """Waits for a condition, looking a hundred times a second. Returns what it returned."""
    end = time.monotonic() + timeout_s
    while not (outcome := happened()):
        if time.monotonic() > end:
            raise WaitTimeout(f"waited {timeout_s:g} s for {what}")
        time.sleep(0.01)
    return outcome


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    return port


def small_settings(**settings: Any) -> dict[str, Any]:
    """Settings of a behavior that learns quickly and little."""
    return {
        "trainer_type": "ppo",
        "hyperparameters": {"batch_size": 64, "buffer_size": 600, "learning_rate_schedule": "constant"},
        "network_settings": {"hidden_units": 16, "num_layers": 1},
        "max_steps": 10**9,
        "time_horizon": 64,
        "summary_freq": 1200,
        "checkpoint_interval": 10**8,
        **settings,
    }


def write_configuration(folder: Path, behaviors: Mapping[str, Any], **more: Any) -> Path:
    """Writes a configuration with these behaviors."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump({"behaviors": dict(behaviors), **more}))
    return path


def write_program(folder: Path, name: str, *arguments: str) -> Path:
    """Writes an executable that runs one of tests/programs with these arguments, after those it is started with."""
    path = folder / f"{name}-{len(list(folder.iterdir()))}"
    words = shlex.join([sys.executable, str(PROGRAMS / f"{name}.py")])
    path.write_text(f'#!/bin/sh\nexec {words} "$@" {shlex.join(arguments)}\n')
    path.chmod(0o755)
    return path


class Process:
    """A process that writes into a file, and everything that it started."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.mark = uuid.uuid4().hex
        self.began = time.monotonic()
        self.pid = 0
        self._seen = 0

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        raise NotImplementedError

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def wait_for_output(self, words: str, *, times: int = 1, timeout_s: float = PATIENCE_S) -> str:
        """Waits until its output holds these words so often. Returns all of the output."""

        def heard() -> str:
            output = self.output
            if output.count(words) >= times:
                return output
            if self.poll() is not None:
                raise WaitTimeout(
                    f"it ended with {self.poll()} without saying {words!r}:\n{self.output[-3000:]}"
                )
            return ""

        try:
            return str(wait_until(heard, repr(words), timeout_s))
        except WaitTimeout as error:
            raise WaitTimeout(f"{error}; its output:\n{self.output[-3000:]}") from None

    def until(self, words: str) -> str:
        """Waits for the next line with these words, behind the line that the last call returned. Returns it."""

        def line() -> str:
            has_ended, unseen = self.poll() is not None, self.output[self._seen :]
            whole_lines = unseen[: unseen.rfind("\n") + 1]  # the last one may be half written
            if (found := whole_lines.find(words)) >= 0:
                begin, end = whole_lines.rfind("\n", 0, found) + 1, whole_lines.index("\n", found) + 1
                self._seen += end
                return whole_lines[begin:end]
            if has_ended:
                raise WaitTimeout(f"it ended with {self.poll()} without saying {words!r}:\n{self.output}")
            return ""

        return str(wait_until(line, repr(words)))

    def signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def end(self, timeout_s: float = PATIENCE_S) -> int:
        """Waits for the end. Returns the exit code."""
        wait_until(lambda: self.poll() is not None, f"the end of {self.pid}", timeout_s)
        code = self.poll()
        assert code is not None
        return code

    def descendants(self) -> list[int]:
        """Processes that live and were started by this one, or by one of those; without itself."""
        wanted = f"{MARK}={self.mark}".encode()
        return [pid for pid in _pids() if pid != self.pid and wanted in _environment(pid)]

    def orphans(self, patience_s: float = 30.0) -> list[int]:
        """The descendants that outlive it, after a while for leaving."""
        try:
            wait_until(lambda: not self.descendants(), "its family to end", patience_s)
        except WaitTimeout:
            return self.descendants()
        return []

    def memory(self) -> int:
        """Resident bytes."""
        return resident(self.pid)

    def peak_memory(self) -> int:
        """The most it ever had, in bytes."""
        return _status(self.pid, "VmHWM") * 1024

    def threads(self) -> int:
        return _status(self.pid, "Threads")

    def files(self) -> int:
        """Open file descriptors."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def destroy(self) -> None:
        """Ends it and its family, whatever they think of it."""
        for pid in [self.pid, *self.descendants()]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: self.poll() is not None, "the end of a killed process", 30.0)


class CommandProcess(Process):
    """Any command line."""

    def __init__(self, line: Sequence[object], folder: Path, log: Path, **environment: str) -> None:
        super().__init__(log)
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                list(map(str, line)),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={
                    **os.environ,
                    MARK: self.mark,
                    "OMP_NUM_THREADS": "1",
                    "PYTHONUNBUFFERED": "1",
                    **environment,
                },
            )
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.poll()


class ForkedTrainer(Process):
    """``mlagents-style`` with these arguments, where torch is loaded already.

    ``before`` names a function (``module:name``) that is called in the process first, such as one that breaks
    something in it.
    """

    def __init__(
        self, arguments: Sequence[object], folder: Path, log: Path, before: str = "", **names: str
    ) -> None:
        super().__init__(log)
        environment = {MARK: self.mark, "OMP_NUM_THREADS": "1", **names}
        self._process = _forks().Process(
            target=_run,
            args=(list(map(str, arguments)), str(folder), str(log), before, environment),
            daemon=False,
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode


def _forks() -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        [
            "torch",
            "torch.optim",
            "tensorboard.compat.proto",
            "trainer_service.commands.main",
            "trainer_service.commands.train.run",
            "trainer_service.running.training.run",
            "trainer_service.running.training.learn",
            "trainer_service.running.behaviors.registry",
            "trainer_service.running.training.recorder",
            "trainer_service.running.collection.channels",
            "trainer_service.running.evaluation.periodic",
            "trainer_service.running.interop.onnx_export",
            "trainer_service.running.interop.mlagents_checkpoint",
        ]
    )
    return context


def _run(arguments: list[str], folder: str, log: str, before: str, environment: dict[str, str]) -> None:
    """Does what the console script does, in the forked process."""
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for descriptor in (1, 2):
        os.dup2(out, descriptor)
    sys.stdout = os.fdopen(1, "w", buffering=1)
    sys.stderr = os.fdopen(2, "w", buffering=1)
    os.chdir(folder)
    os.environ.update(environment)
    # So that children that were forked, not started, are found by their mark too.
    from trainer_service.cli import main

    if before:
        module, _, name = before.partition(":")
        getattr(__import__(module), name)()
    code: object = 0
    try:
        code = main(arguments)
    except SystemExit as leaving:
        code = leaving.code
    except KeyboardInterrupt:  # as the interpreter does it
        import traceback

        traceback.print_exc()
        code = 130
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1)


class HealthySimulator(CommandProcess):
    """A simulator of twelve balanced balls that tells how long it waits for the trainer's answers."""

    def __init__(self, port: int, folder: Path, pause_s: float = 0.0) -> None:
        line = [sys.executable, HEALTHY, pause_s, "--mlagents-port", port]
        super().__init__(line, folder, folder / f"healthy-{uuid.uuid4().hex[:6]}.log")

    def reports(self) -> list[dict[str, float]]:
        """One for each 0.2 s: ``at`` (monotonic clock), ``ticks`` until then, ``longest_s`` of its waits."""
        whole_lines = self.output.rpartition("\n")[0].splitlines()  # the last one may be half written
        return [json.loads(line) for line in whole_lines if line.startswith("{")]

    def ticks(self) -> int:
        reports = self.reports()
        return int(reports[-1]["ticks"]) if reports else 0

    def go_on(self, ticks: int = 30) -> None:
        """Waits until it was answered that much more often."""
        goal = self.ticks() + ticks

        def reached() -> bool:
            assert self.poll() is None, (
                f"the healthy simulator ended with {self.poll()}:\n{self.output[-2000:]}"
            )
            return self.ticks() >= goal

        wait_until(reached, f"{ticks} more ticks of the healthy simulator")

    def longest_wait(self, since: float) -> float:
        """The longest wait for an answer since that moment, in seconds."""
        return max((each["longest_s"] for each in self.reports() if each["at"] >= since), default=0.0)

    def rate(self, since: float, to: float) -> float:
        """Ticks per second between two moments."""
        within = [each for each in self.reports() if since <= each["at"] <= to]
        if len(within) < 2:
            return 0.0
        return (within[-1]["ticks"] - within[0]["ticks"]) / (within[-1]["at"] - within[0]["at"])


def pause(seconds: float) -> None:
    """Lets a test go on later, at a moment that it draws for a fault."""
    until = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() >= until, "a moment", max(seconds, 0.0) + 10.0)


def command_line(pid: int) -> bytes:
    """The arguments of a process; none of one that is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def resident(pid: int) -> int:
    """Bytes of memory that a process has."""
    return _status(pid, "VmRSS") * 1024


def steps(output: str) -> list[int]:
    """The steps that summaries on a console told."""
    return [int(number) for number in _STEP.findall(output)]


def unreadable(folder: Path) -> int:
    """How many of the checkpoints below a folder cannot be read."""
    from trainer_service.running.interop.mlagents_checkpoint import load_source

    found = 0
    for path in folder.rglob("*.safetensors"):
        try:
            load_source(path)
        except Exception:
            found += 1
    return found


def _pids() -> Iterator[int]:
    return (int(path.name) for path in Path("/proc").glob("[0-9]*"))  # Linux only; none elsewhere


def _environment(pid: int) -> bytes:
    try:
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return b""
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def _status(pid: int, key: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1])
    return 0
