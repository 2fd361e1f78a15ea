"""The two trainers as command lines, and the one simulator that both start."""

from __future__ import annotations

import os
import shlex
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from measuring.scenes import CHECKOUT, Case

RUN_ID = "bench"

_ONE_THREAD = "OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1"
"""As the bundled simulator has it, before NumPy is loaded."""


class Trainer(Protocol):
    """One of the two contestants."""

    @property
    def name(self) -> str:
        """For people."""
        ...

    def command(self, case: Case, program: Path, results: Path, seed: int) -> list[str]:
        """The command of a run.

        Args:
            case: what to train.
            program: the simulator's executable.
            results: where results go.
            seed: of the run.
        """
        ...

    def environment(self) -> dict[str, str]:
        """The environment variables of the process."""
        ...


@dataclass(frozen=True, slots=True)
class Ours:
    """This checkout, with the Python that runs the benchmark."""

    name: str = "ours"

    def command(self, case: Case, program: Path, results: Path, seed: int) -> list[str]:
        return [sys.executable, "-m", "trainer_service", "learn", *_flags(case, program, results, seed)]

    def environment(self) -> dict[str, str]:
        return {**_plain_environment(), "PYTHONPATH": str(CHECKOUT)}


@dataclass(frozen=True, slots=True)
class Peer:
    """The real ML-Agents trainer."""

    learn: Path
    """Its ``mlagents-learn``."""

    name: str = "mlagents-learn"

    def command(self, case: Case, program: Path, results: Path, seed: int) -> list[str]:
        # Its default port may be in use by another run, and it does not look for a free one.
        port = f"--base-port={_free_port()}"
        return [str(self.learn), *_flags(case, program, results, seed), port]

    def environment(self) -> dict[str, str]:
        return _plain_environment()


def write_simulator(folder: Path, case: Case, counts: Path) -> Path:
    """Writes an executable that plays the case's scene, as an ML-Agents trainer wants one. Returns its path.

    counts: the folder in which it counts its exchanges.
    """
    program = folder / f"{case.scene.name}.x86_64"
    search = os.pathsep.join([str(CHECKOUT), str(CHECKOUT / "benchmarks")])
    program.write_text(
        f"#!/bin/sh\nexport PYTHONPATH={shlex.quote(search)} {_ONE_THREAD}\n"
        f"exec {shlex.quote(sys.executable)} -m measuring.counting {shlex.quote(str(counts))} "
        f'{shlex.join(case.program)} "$@"\n',
        encoding="utf-8",
    )
    program.chmod(0o755)
    return program


def _flags(case: Case, program: Path, results: Path, seed: int) -> list[str]:
    """Settings that both trainers have."""
    return [
        str(case.scene.config),
        f"--env={program}",
        f"--run-id={RUN_ID}",
        f"--results-dir={results}",
        f"--seed={seed}",
        "--torch-device=cpu",
        *([f"--num-envs={case.simulators}"] if case.simulators > 1 else []),
    ]


def _plain_environment() -> dict[str, str]:
    inherited: Mapping[str, str] = os.environ
    kept = {name: value for name, value in inherited.items() if name != "PYTHONPATH"}
    return {**kept, "PYTHONUNBUFFERED": "1"}  # lines are stamped when they come


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
