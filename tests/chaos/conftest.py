"""Faults and attacks on whole runs: processes that are killed, disks that are full, peers that mean no good.

Every test notes what it tried and what came of it; the table of all is printed at the end, and written to the file
that ``CHAOS_REPORT`` names.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import (
    CommandProcess,
    ForkedTrainer,
    HealthySimulator,
    Process,
    free_port,
    small_settings,
    write_configuration,
)

if sys.platform != "linux":
    collect_ignore_glob = ["test_*"]  # they look into /proc, and kill


@pytest.fixture
def note(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """Notes a row of the table: the fault, what was tried, and the figures that came of it."""

    def take(fault: str, tried: str, figure: str) -> None:
        record_property("row", (fault, tried, figure))

    return take


class Scene:
    """Processes of one test; none outlives it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[Process] = []

    def learn(self, *arguments: object, cold: bool = False, before: str = "", **environment: str) -> Process:
        """A run of ``config.yaml`` in the folder."""
        log = self.folder / f"learn-{len(self.processes)}.log"
        words = ["learn", "config.yaml", *arguments]
        if cold:
            line = [sys.executable, "-m", "trainer_service", *words]
            return self._keep(CommandProcess(line, self.folder, log, **environment))
        return self._keep(ForkedTrainer(words, self.folder, log, before, **environment))

    def healthy(self, port: int, pause_s: float = 0.0) -> HealthySimulator:
        """A simulator without faults that attaches."""
        simulator = HealthySimulator(port, self.folder, pause_s)
        self._keep(simulator)
        return simulator

    def start(self, *line: object, **environment: str) -> Process:
        """Any other program."""
        log = self.folder / f"program-{len(self.processes)}.log"
        return self._keep(CommandProcess(line, self.folder, log, **environment))

    def _keep(self, process: Any) -> Any:
        self.processes.append(process)
        return process

    def end(self) -> None:
        for process in reversed(self.processes):
            process.destroy()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    played = Scene(tmp_path)
    yield played
    played.end()


class Arena(Scene):
    """A run that listens, and a healthy simulator that it serves all the time."""

    def __init__(self, folder: Path, *flags: object, **settings: Any) -> None:
        super().__init__(folder)
        write_configuration(folder, {"3DBall": small_settings(**settings)})
        self.port = free_port()
        self.trainer = self.learn(f"--port={self.port}", "--seed=1", *flags)
        self.trainer.wait_for_output("Listening on port")
        self.witness = self.healthy(self.port, pause_s=0.005)
        self.trainer.wait_for_output("Connected new brain: 3DBall")
        self.witness.go_on()

    def require_peace(self) -> None:
        """The run goes on, and the healthy simulator is in the conversation that it began."""
        assert self.trainer.poll() is None, (
            f"the run ended with {self.trainer.poll()}:\n{self.trainer.output[-3000:]}"
        )
        self.witness.go_on()
        assert "refused" not in self.witness.output


@pytest.fixture(scope="module")
def arenas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Arena]]:
    played: list[Arena] = []

    def enter() -> Arena:
        if not played or played[-1].trainer.poll() is not None or played[-1].witness.poll() is not None:
            for each in played:
                each.end()
            played.append(Arena(tmp_path_factory.mktemp("arena")))
        return played[-1]

    yield enter
    for each in played:
        each.end()


@pytest.fixture
def arena(arenas: Callable[[], Arena]) -> Arena:
    """An arena that the tests of a file share until one of them breaks it."""
    return arenas()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    rows = [
        f"| {' | '.join(row)} | {'yes' if outcome == 'passed' else 'NO'} |"
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, [])
        for name, row in getattr(report, "user_properties", [])
        if name == "row" and report.when == "call"
    ]
    if not rows:
        return
    terminalreporter.section("faults and attacks")
    table = "\n".join(["| fault | tried | figure | pass |", "| --- | --- | --- | --- |", *rows])
    terminalreporter.write_line(table)
    if path := os.environ.get("CHAOS_REPORT"):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(f"{table}\n")
