"""The real ML-Agents 1.1.0 in an environment of its own, and simulators that it can start."""

from __future__ import annotations

import json
import os
import runpy
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import processes
import pytest
from numpy.typing import NDArray

from unity_bridge.environment import UnityEnvironment

REPOSITORY = Path(__file__).parents[2]
PROGRAMS = REPOSITORY / "tests" / "programs"
PEER_VARIABLE = "MLAGENTS_PEER"
PATIENCE_S = 150.0

LEARN = """
import torch
export = torch.onnx.export
if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 5):
    # It was written for the exporter that newer versions of torch use only on request.
    torch.onnx.export = lambda *args, **kwargs: export(*args, **{**kwargs, "dynamo": False})
from mlagents.trainers.learn import main
main()
"""
"""The real mlagents-learn as a script."""

Record = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Peer:
    """A virtual environment with the real mlagents and mlagents_envs."""

    environment: Path

    @property
    def python(self) -> str:
        return str(self.environment / "bin" / "python")

    def start(self, *words: object, folder: Path, **variables: str) -> subprocess.Popen[str]:
        """Starts its Python with these arguments; what it says can be read from stdout."""
        # A path that was set for our packages must not lead it to them.
        clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.Popen(
            [self.python, *map(str, words)],
            cwd=folder,
            env={**clean, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )


@pytest.fixture(scope="session")
def peer() -> Peer:
    """The side environment; `make conformance` makes it, or MLAGENTS_PEER names one."""
    made = REPOSITORY / "benchmarks" / ".peer"
    named = os.environ.get(PEER_VARIABLE)
    if named:
        return Peer(Path(named).absolute())
    if not (made / "installed").exists():
        pytest.skip(f"no real ML-Agents: {made} is not there (`make conformance` tries to make it)")
    return Peer(made / "venv")


@pytest.fixture(scope="session")
def real_learn() -> str:
    """A script that is the real mlagents-learn."""
    return LEARN


@pytest.fixture
def finish() -> Iterator[Callable[[subprocess.Popen[str]], str]]:
    """Waits for a process that must end by itself and well; returns its output."""
    running: list[subprocess.Popen[str]] = []

    def end(process: subprocess.Popen[str]) -> str:
        running.append(process)
        output, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, output
        return output

    yield end
    for process in running:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., Path]:
    """An executable named like a Unity build, which runs this command line before its own arguments.

    It finds our packages, wherever it is started, if the first word is our Python.
    """

    def make(*words: object) -> Path:
        path = tmp_path / f"build-{len(list(tmp_path.iterdir()))}.x86_64"
        ours = f"PYTHONPATH={shlex.quote(str(REPOSITORY))} " if words[0] == sys.executable else ""
        path.write_text(f'#!/bin/sh\n{ours}exec {shlex.join(map(str, words))} "$@"\n')
        path.chmod(0o755)
        return path

    return make


@pytest.fixture
def bundled(build: Callable[..., Path]) -> Callable[..., Path]:
    """The bundled simulator with these arguments, as an executable."""
    return lambda *words: build(sys.executable, "-m", "unity_bridge.simulators", *words)


@pytest.fixture(scope="session")
def low_level() -> SimpleNamespace:
    """The program that both sides play; see tests/programs/low_level.py."""
    return SimpleNamespace(**runpy.run_path(str(PROGRAMS / "low_level.py")))


@pytest.fixture
def our_record(low_level: SimpleNamespace) -> Callable[[dict[str, Any]], Record]:
    """The record of our UnityEnvironment, playing as planned."""

    def play(plan: dict[str, Any]) -> Record:
        record: Record = low_level.play(UnityEnvironment, plan)
        return record

    return play


@pytest.fixture
def real_record(
    peer: Peer, tmp_path: Path, finish: Callable[[subprocess.Popen[str]], str]
) -> Callable[..., Record]:
    """The record of the real UnityEnvironment, playing as planned."""

    def play(plan: dict[str, Any], *, meanwhile: Callable[[], object] = lambda: None) -> Record:
        (tmp_path / "plan.json").write_text(json.dumps(plan))
        driver = peer.start(PROGRAMS / "low_level.py", "real", "plan.json", "real.npz", folder=tmp_path)
        meanwhile()
        finish(driver)
        with np.load(tmp_path / "real.npz") as record:
            return dict(record)

    return play


@pytest.fixture
def free_port() -> Callable[[], int]:
    """Ports that were free a moment ago."""
    return processes.free_port


@pytest.fixture
def start_simulator() -> Iterator[Callable[[Sequence[object]], subprocess.Popen[bytes]]]:
    """Starts a program that shall attach; none outlives the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(words: Sequence[object]) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(list(map(str, words)), stderr=subprocess.DEVNULL))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()
