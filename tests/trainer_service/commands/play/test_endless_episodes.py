"""Commands that play an environment whose episodes never end: they say so, and how to cut them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from trainer_service.running.evaluation import loop

pytest.importorskip("gymnasium")

SOURCE = """
import gymnasium, numpy

class Endless(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (1,), numpy.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return numpy.zeros(1, numpy.float32), {}

    def step(self, action):
        return numpy.zeros(1, numpy.float32), 1.0, False, False, {}
"""


@pytest.fixture
def run(workplace: Path, mlagents_style: Any, configure: Any) -> str:
    """The id of a run on an environment whose episodes never end."""
    (workplace / "endless.py").write_text(SOURCE)
    configure("Endless", max_steps=18)
    said = mlagents_style("learn", "config.yaml", "--env=endless.py:Endless", "--run-id=endless")
    assert said.code == 0, said.err
    return "endless"


@pytest.mark.parametrize(
    "line",
    [
        "evaluate endless --episodes=3",
        "play endless.py:Endless --episodes=3",
        "play endless.py:Endless --policy=endless",
        "record-demo endless.py:Endless --policy=endless --output=x.demo --episodes=3",
    ],
)
def test_a_command_says_that_episodes_may_have_no_end(
    run: str, mlagents_style: Any, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    def interrupt(record: logging.LogRecord) -> bool:
        if record.levelno == logging.WARNING and "has ended" in record.getMessage():
            told.append(record.getMessage())
            raise KeyboardInterrupt
        return True

    monkeypatch.setattr(loop, "SILENCE_S", 0.2)
    monkeypatch.setattr(loop._logger, "filters", [interrupt])
    assert mlagents_style(*line.split()).code == 130
    (message,) = told
    assert message.startswith("No episode has ended for ")
    assert "Perhaps episodes of this environment have no end. --max-episode-steps N " in message


@pytest.mark.parametrize(
    "line", ["evaluate endless --episodes=3", "play endless.py:Endless --policy=endless --episodes=3"]
)
def test_a_limit_cuts_them(run: str, mlagents_style: Any, line: str) -> None:
    said = mlagents_style(*line.split(), "--max-episode-steps=5")
    assert said.code == 0, said.err
    assert "mean length 5.0" in said.out


def test_a_suggestion_warns_of_an_environment_without_end(workplace: Path, mlagents_style: Any) -> None:
    (workplace / "endless.py").write_text(SOURCE)
    said = mlagents_style("suggest", "--env=endless.py:Endless")
    assert said.code == 0, said.err
    assert (
        "No episode of 'Endless' ended in 2000 messages: does the environment return terminated" in said.err
    )
    limited = mlagents_style("suggest", "--env=endless.py:Endless", "--env-args", "--wrap", "TimeLimit:500")
    assert limited.code == 0, limited.err
    assert "No episode of" not in limited.err
    assert "by truncation" in limited.out
