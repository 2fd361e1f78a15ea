"""Environments that users wrote, in their own folder: every command finds them, and says where they broke."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("gymnasium")

SOURCE = """
import gymnasium, numpy

class Treadmill(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (1,), numpy.float32)
    action_space = gymnasium.spaces.Discrete(2)
    left = 20

    def __init__(self, stuck=False):
        if stuck:
            raise RuntimeError("it does not start")

    def reset(self, *, seed=None, options=None):
        return numpy.zeros(1, numpy.float32), {}

    def step(self, action):
        self.left -= 1
        speed = {"slow": 1.0}["slow" if self.left else "fast"]
        return numpy.zeros(1, numpy.float32), speed, False, False, {}

gymnasium.register("Treadmill-v0", Treadmill)
"""


@pytest.fixture
def treadmill(workplace: Path) -> str:
    """A module in the current folder, which as for a console script is not where Python looks."""
    (workplace / "users_treadmill.py").write_text(SOURCE)
    return "gym:users_treadmill:Treadmill-v0"


def test_a_broken_environments_line_is_printed_and_logged(mlagents_style, configure, treadmill: str) -> None:
    configure("Treadmill-v0")
    limits = ("--max-lifetime-restarts=0", "--run-id=t", "--isolate")
    said = mlagents_style("learn", "config.yaml", f"--env={treadmill}", *limits)
    assert said.code == 1
    for text in (said.err, Path("results/t/run_logs/Player-0.log").read_text()):
        assert 'users_treadmill.py", line 18, in step' in text
        assert text.rstrip().endswith("step() raised KeyError: 'fast'")
    said = mlagents_style("learn", "config.yaml", f"--env={treadmill}", "--run-id=here")
    assert said.code == 1
    for text in (said.err, Path("results/here/run_logs/trainer.log").read_text()):
        assert 'users_treadmill.py", line 18, in step' in text
        assert "step() raised KeyError: 'fast'; its traceback:" in text


def test_a_simulator_finds_modules_in_the_current_folder(
    mlagents_style, treadmill: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    said = mlagents_style("simulate", treadmill, "--env-kwargs", '{"stuck": true}')
    assert said.code == 2
    assert 'users_treadmill.py", line 11, in __init__' in said.err
    assert said.err.endswith("make() raised RuntimeError: it does not start\n")
