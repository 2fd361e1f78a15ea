"""Runs with environment parameters, on simulators that are processes."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from run_files import checkpoint, metrics

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals, and simulators that are scripts")

ROUND = 12
"""Agent steps in which each of four pupils has an episode of three decisions."""

RUN = Path("results/ppo")


def lesson(name: str, height: Any, *, beyond: float | None = None, **criteria: Any) -> dict[str, Any]:
    """A lesson that ends when the mean return is beyond so much; the last one if None."""
    if beyond is None:
        return {"name": name, "value": height}
    completion = {"behavior": "Pupil", "threshold": beyond, **criteria}
    return {"name": name, "value": height, "completion_criteria": completion}


@pytest.fixture
def school(configure, program) -> Callable[..., list[str]]:
    """Writes a configuration with these lessons of ``height``; returns the words of the command to run it."""

    def write(*lessons: dict[str, Any], **settings: Any) -> list[str]:
        hyperparameters = {"batch_size": 32, "buffer_size": 4 * ROUND, "learning_rate_schedule": "constant"}
        path = configure("Pupil", **{"hyperparameters": hyperparameters, "summary_freq": ROUND, **settings})
        document = yaml.safe_load(path.read_text())
        document["environment_parameters"] = {"height": {"curriculum": list(lessons)}, "gravity": 9.8}
        path.write_text(yaml.safe_dump(document, sort_keys=False))
        return ["learn", str(path), f"--env={program('schoolroom')}", "--seed=4"]

    return write


def status() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RUN / "run_logs/training_status.json").read_text())
    return found


def heard(run: Path = RUN) -> list[str]:
    """Resets and heights that the simulator printed."""
    lines = (run / "run_logs/Player-0.log").read_text().splitlines()
    return [line for line in lines if line.startswith(("reset", "height"))]


TWO = (lesson("low", 1, beyond=2.5, min_lesson_length=20), lesson("high", 2))


def test_a_lesson_that_is_learned_is_followed_by_the_next(mlagents_style, school) -> None:
    said = mlagents_style(*school(*TWO, max_steps=10 * ROUND))
    assert said.code == 0, said.err
    assert "Parameter 'height' is in lesson 'low' and has value 'Float: value=1.0'." in said.out
    assert "Parameter 'height' is in lesson 'high' and has value 'Float: value=2.0'." in said.out
    assert heard() == ["reset", "height 1.000", "height 2.000"]
    assert (status()["height"], status()["gravity"]) == ({"lesson_num": 1}, {"lesson_num": 0})
    # 20 episodes are five rounds. The sixth was under way when its lesson ended: its return is 3 still.
    assert [line["mean_return"] for line in metrics("ppo")] == [3.0] * 6 + [6.0] * 4
    lessons = [line["lesson"]["height"] for line in metrics("ppo")]
    assert lessons == ["low"] * 4 + ["high"] * 6
    assert [line["lesson_number/height"] for line in metrics("ppo")] == [0.0] * 4 + [1.0] * 6
    assert {line["lesson_number/gravity"] for line in metrics("ppo")} == {0.0}


FIRST_OF_THREE = lesson("first", 1, beyond=2.5, min_lesson_length=20)
SECOND_OF_THREE = lesson("second", 2, beyond=1000.0, min_lesson_length=100_000)
THREE = (FIRST_OF_THREE, SECOND_OF_THREE, lesson("third", 3))


@pytest.mark.thorough
def test_a_run_killed_after_a_lesson_resumes_in_the_next(start, mlagents_style, school) -> None:
    run = start(*school(*THREE, max_steps=10**9, checkpoint_interval=10**9))
    run.until("Parameter 'height' is in lesson 'second'")
    run.signal(signal.SIGKILL)
    run.end()
    # No checkpoint was due yet: the lesson's end alone renewed what --resume goes on from.
    step = checkpoint("ppo", "Pupil")["step"]
    assert step == 5 * ROUND
    assert status()["height"] == {"lesson_num": 1}
    assert "recent_returns" not in status()["Pupil"]
    said = mlagents_style(*school(*THREE, max_steps=step + 2 * ROUND), "--resume")
    assert said.code == 0, said.err
    assert f"Resuming 'Pupil' from step {step}." in said.out
    assert "Parameter 'height' is in lesson 'second' and has value 'Float: value=2.0'." in said.out
    assert "'first'" not in said.out
    assert heard()[-2:] == ["reset", "height 2.000"]
    assert status()["height"] == {"lesson_num": 1}
    assert status()["Pupil"]["recent_returns"] == [6.0] * 8


def test_lessons_are_those_of_the_checkpoint_that_a_run_goes_on_from(mlagents_style, school) -> None:
    settings = {"checkpoint_interval": 4 * ROUND, "keep_checkpoints": 5}
    assert mlagents_style(*school(*THREE, max_steps=8 * ROUND, **settings)).code == 0
    # As after a kill between a checkpoint and the list of checkpoints.
    path = RUN / "run_logs/training_status.json"
    path.write_text(json.dumps({**status(), "height": {"lesson_num": 0}}))
    said = mlagents_style(*school(*THREE, max_steps=9 * ROUND, **settings), "--resume")
    assert "Parameter 'height' is in lesson 'second'" in said.out
    assert status()["height"] == {"lesson_num": 1}

    said = mlagents_style(*school(*THREE, max_steps=9 * ROUND, **settings), "--resume", str(4 * ROUND))
    assert said.code == 0, said.err
    assert "Lessons are as they were at the end" not in said.out + said.err
    # Sixteen episodes were counted then, so the lesson ends after one round more, as it did the first time.
    assert f"Resuming 'Pupil' from step {4 * ROUND}." in said.out
    assert "Parameter 'height' is in lesson 'first'" in said.out
    assert [line["lesson"]["height"] for line in metrics("ppo")] == ["first"] * 4 + ["second"] * 5


def test_a_policy_is_scored_in_the_lesson_its_run_reached(mlagents_style, school) -> None:
    assert mlagents_style(*school(*TWO, max_steps=6 * ROUND)).code == 0
    said = mlagents_style("evaluate", "ppo", "--episodes=4", "--json")
    assert said.code == 0, said.err
    assert json.loads(said.out)["behaviors"]["Pupil"]["mean_return"] == 6.0
    assert "Parameter 'height' is in lesson 'high'" in said.err
