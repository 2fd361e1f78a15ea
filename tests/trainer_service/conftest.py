"""Runs of the command line, in this process or in one of their own, on simulators that are processes."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from processes import CommandProcess, ForkedTrainer, Process, write_program
from shown_episodes import Shown, write_episodes

from trainer_service.cli import main
from trainer_service.config import TrainerSettings
from trainer_service.learning.algorithms import Compute
from trainer_service.running.behaviors.behavior import Behavior
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec


@dataclass(frozen=True)
class Spoken:
    """The output of a command and how it ended."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Tests run side by side, and their networks are small: more threads would only wait for each other."""
    torch.set_num_threads(1)


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def mlagents_style(
    processes: None, workplace: Path, capfd: pytest.CaptureFixture[str]
) -> Callable[..., Spoken]:
    """Runs a command in this process, where torch is loaded already."""

    def run(*arguments: object) -> Spoken:
        capfd.readouterr()
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as leaving:  # argparse
            code = leaving.code if isinstance(leaving.code, int) else 1
        said = capfd.readouterr()
        return Spoken(code, said.out, said.err)

    return run


@pytest.fixture
def start(processes: None, workplace: Path) -> Iterator[Callable[..., Process]]:
    """Starts ``mlagents-style``, or a program, in a process of its own; none outlives the test."""
    started: list[Process] = []

    def begin(*arguments: object, program: Path | str = "") -> Process:
        log = workplace / f"process-{len(started)}.log"
        if program:
            started.append(CommandProcess([program, *arguments], workplace, log))
        else:
            started.append(ForkedTrainer(arguments, workplace, log, **os.environ))
        return started[-1]

    yield begin
    for process in started:
        process.destroy()


@pytest.fixture
def program(processes: None, tmp_path: Path) -> Callable[..., Path]:
    """An executable that runs one of tests/programs with these arguments, after those it is started with."""

    def make(name: str, *arguments: str) -> Path:
        return write_program(tmp_path, name, *arguments)

    return make


@pytest.fixture
def hosted(repository: Path) -> Callable[..., Sequence[str]]:
    """The last words of a command that hosts a scene of tests/programs, with these arguments of its class.

    It gives the numbers of ``program``, without the start of a process.
    """

    def words(name: str, **arguments: object) -> Sequence[str]:
        env = f"--env={repository}/tests/programs/{name}.py:{name.title()}"
        return (env, "--env-args", "--env-kwargs", json.dumps(arguments)) if arguments else (env,)

    return words


@pytest.fixture
def programs_can_be_imported(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets this process, and those that a test starts, import tests/programs."""
    programs = str(repository / "tests" / "programs")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((programs, os.environ["PYTHONPATH"])))
    monkeypatch.syspath_prepend(programs)


@pytest.fixture
def actor(program: Callable[..., Path]) -> Callable[..., Path]:
    """An executable simulator that does these acts; see tests/programs/actor.py."""

    def make(*acts: str) -> Path:
        return program("actor", "--acts", *acts)

    return make


SMALL: Mapping[str, Any] = {
    "trainer_type": "ppo",
    "hyperparameters": {"batch_size": 32, "buffer_size": 128, "learning_rate_schedule": "constant"},
    "network_settings": {"hidden_units": 8, "num_layers": 1},
    "max_steps": 400,
    "time_horizon": 16,
    "summary_freq": 100,
    "checkpoint_interval": 100,
}


@pytest.fixture
def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    return port


@pytest.fixture
def make_behavior() -> Callable[..., Behavior]:
    """A small behavior: sensors of ``sizes`` (lengths of vectors, or shapes), and these actions.

    Keywords replace its settings.
    """

    def make(
        *,
        name: str = "Probe",
        sizes: Sequence[int | tuple[int, ...]] = (1,),
        continuous: int = 0,
        branches: Sequence[int] = (),
        seed: int = 1,
        learns: bool = True,
        decoupled: bool = False,
        **settings: Any,
    ) -> Behavior:
        shapes = [size if isinstance(size, tuple) else (size,) for size in sizes]
        sensors = tuple(ObservationSpec(f"sensor_{i}", shape) for i, shape in enumerate(shapes))
        spec = BehaviorSpec(
            sensors, ActionSpec(continuous, tuple(branches or ([2] if not continuous else [])))
        )
        chosen = TrainerSettings.model_validate({**SMALL, **settings})
        compute = Compute(torch.device("cpu"), seed, decoupled=decoupled)
        behavior = Behavior(name, spec, chosen, compute, learns=learns)
        if chosen.behavioral_cloning is None and "gail" not in chosen.reward_signals:
            # As a run does before its loop begins. Tests of demonstrations say themselves when they are read.
            behavior.prepare()
        return behavior

    return make


@pytest.fixture
def configure(workplace: Path) -> Callable[..., Path]:
    """Writes a configuration for small, quick behaviors of these names; keywords replace their settings."""

    def write(*behaviors: str, file: str = "config.yaml", **settings: Any) -> Path:
        path = workplace / file
        path.write_text(yaml.safe_dump({"behaviors": {name: {**SMALL, **settings} for name in behaviors}}))
        return path

    return write


@pytest.fixture
def shown() -> type[Shown]:
    return Shown


@pytest.fixture
def write_demo(tmp_path: Path) -> Callable[..., Path]:
    """Records episodes of a behavior into a .demo file."""

    def write(spec: BehaviorSpec, *episodes: Shown, file: str = "expert.demo") -> Path:
        write_episodes(tmp_path / file, spec, *episodes)
        return tmp_path / file

    return write
