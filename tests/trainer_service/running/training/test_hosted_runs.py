"""Runs whose simulator is in the trainer's process: equal numbers, and faults of environments as users meet them."""

from __future__ import annotations

import json
import signal
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from every_trainer import settings_of
from processes import write_configuration

import trainer_service
from trainer_service.running.runs.checkpoint import load_checkpoint
from unity_bridge.errors import SimulatorLost

pytestmark = pytest.mark.process

SOURCE = """
import os, signal, time
import gymnasium, numpy

class Odd(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (1,), numpy.float32)
    action_space = gymnasium.spaces.Discrete(2)
    time = 0

    def __init__(self, stuck=False, breaks_at=0, crashes=False):
        if stuck:
            raise RuntimeError("it does not start")
        self.breaks_at = breaks_at
        self.crashes = crashes

    def reset(self, *, seed=None, options=None):
        return numpy.zeros(1, numpy.float32), {}

    def step(self, action):
        self.time += 1
        print("so many words")
        if self.crashes and self.time == 300:
            time.sleep(1)  # so that something is saved
        if self.crashes and self.time == 500:
            os.kill(os.getpid(), signal.SIGSEGV)
        speed = {"slow": 1.0}["fast" if self.time == self.breaks_at else "slow"]
        return numpy.zeros(1, numpy.float32), speed, self.time % 20 == 0, False, {}
"""


@pytest.fixture
def odd(workplace: Path) -> Iterator[str]:
    """A module in the current folder, which as for a console script is not where Python looks."""
    (workplace / "odd_environments.py").write_text(SOURCE)
    yield "gym:odd_environments:Odd"
    sys.modules.pop("odd_environments", None)


def saved_in(folder: Path) -> dict[str, bytes]:
    """The last checkpoint of each behavior, random streams included."""
    return {path.parent.name: path.read_bytes() for path in folder.glob("*/checkpoint.safetensors")}


@pytest.mark.parametrize(
    ("trainer_type", "env", "behavior"),
    [
        pytest.param("sac", "gym:Pendulum-v1", "Pendulum-v1", marks=pytest.mark.thorough),
        ("qmix", "sim:switch2", "Switch2"),
    ],
)
def test_results_are_those_of_a_process_bit_for_bit(
    mlagents_style, workplace: Path, trainer_type: str, env: str, behavior: str
) -> None:
    write_configuration(workplace, {behavior: settings_of(trainer_type, max_steps=300, summary_freq=150)})
    found = []
    for flag in ("--isolate", "--no-isolate"):
        line = ("learn", "config.yaml", f"--env={env}", f"--run-id=run{flag}", "--seed=5", flag)
        assert mlagents_style(*line).code == 0
        found.append(saved_in(Path("results", f"run{flag}")))
    assert found[0]
    assert found[0] == found[1]


def test_prints_leave_the_lines_on_standard_output_alone(mlagents_style, configure, odd: str) -> None:
    configure("Odd", max_steps=100)
    learn = mlagents_style("learn", "config.yaml", f"--env={odd}", "--run-id=p", "--log-format=json")
    assert learn.code == 0
    assert "so many words" in learn.err
    for line in learn.out.splitlines():
        json.loads(line)
    evaluate = mlagents_style("evaluate", "p", "--episodes=2", "--json")
    assert json.loads(evaluate.out)["behaviors"]["Odd"]["episodes"] == 2


@pytest.mark.thorough
def test_a_crash_in_c_costs_what_is_not_saved(workplace: Path, odd: str, start) -> None:
    write_configuration(workplace, {"Odd": settings_of("ppo", summary_freq=100, max_steps=600)})
    line = ("learn", "config.yaml", f"--env={odd}", "--run-id=r")
    crashes = ("--env-args", "--env-kwargs", '{"crashes": true}')
    crashed = start(*line, "--autosave-interval-s=1", *crashes)
    assert crashed.end() == -signal.SIGSEGV
    assert "Segmentation fault" in crashed.output
    assert 'odd_environments.py", line' in crashed.output
    assert "runs in this process (--isolate: in one of its own)" in crashed.output
    resumed = start(*line, "--resume")
    assert resumed.end() == 0
    assert "Step: 100." not in resumed.output


class Breaking(gymnasium.Env[Any, Any]):
    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)
    time = 0

    def __init__(self) -> None:
        self.lock = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        if self.time == 150:
            raise ZeroDivisionError("the wheel came off")
        return np.zeros(1, np.float32), 1.0, self.time % 10 == 0, False, {}


def test_an_exception_of_an_object_keeps_its_frames_and_the_run_is_saved(tmp_path: Path) -> None:
    settings = settings_of("ppo", max_steps=1000, summary_freq=100)
    with pytest.raises(SimulatorLost) as failure:
        trainer_service.train(settings, Breaking(), run_id="b", results_dir=tmp_path)
    cause = failure.value.__cause__
    assert cause is not None
    assert isinstance(cause.__cause__, ZeroDivisionError)
    last = traceback.extract_tb(cause.__cause__.__traceback__)[-1]
    assert (last.filename, last.name) == (__file__, "step")
    assert load_checkpoint(tmp_path / "b/Breaking/checkpoint.safetensors").step == 149


def test_a_broken_environments_line_is_printed_and_logged(mlagents_style, configure, odd: str) -> None:
    configure("Odd")
    line = ("learn", "config.yaml", f"--env={odd}")
    breaking = ("--env-args", "--env-kwargs", '{"breaks_at": 20}')
    said = mlagents_style(*line, "--run-id=t", "--isolate", "--max-lifetime-restarts=0", *breaking)
    assert said.code == 1
    for text in (said.err, Path("results/t/run_logs/Player-0.log").read_text()):
        assert 'odd_environments.py", line 26, in step' in text
        assert text.rstrip().endswith("step() raised KeyError: 'fast'")
    said = mlagents_style(*line, "--run-id=here", *breaking)
    assert said.code == 1
    for text in (said.err, Path("results/here/run_logs/trainer.log").read_text()):
        assert 'odd_environments.py", line 26, in step' in text
        assert "step() raised KeyError: 'fast'; its traceback:" in text


def test_a_simulator_finds_modules_in_the_current_folder(
    mlagents_style, odd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    said = mlagents_style("simulate", odd, "--env-kwargs", '{"stuck": true}')
    assert said.code == 2
    assert 'odd_environments.py", line 12, in __init__' in said.err
    assert said.err.endswith("make() raised RuntimeError: it does not start\n")
