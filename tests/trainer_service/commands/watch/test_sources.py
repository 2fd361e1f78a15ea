"""The scene of a page, which is hosted like those of a run."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from trainer_service.commands.watch.sources import opened_scene
from trainer_service.config import load_run_options
from trainer_service.errors import UserError
from trainer_service.running.evaluation.simulator import EvaluationSimulator
from unity_bridge.errors import BridgeError
from unity_bridge.programs.executables import bundled_command
from unity_bridge.programs.program_environment import program_environment

OPTIONS = load_run_options(None, {}).options


class Wandering(gymnasium.Env[Any, Any]):
    """It goes to another folder, where it expects to be from then on, and leaves the program by its second step."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 (Gymnasium's way)
    render_mode = "rgb_array"
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    steps = 0

    def __init__(self) -> None:
        os.chdir("/")

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        assert os.getcwd() == "/"
        np.seterr(all="raise")
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        assert os.getcwd() == "/"
        self.steps += 1
        if self.steps == 2:
            sys.exit(0)
        return np.zeros(2, np.float32), 0.0, False, False, {}

    def render(self) -> Any:
        assert os.getcwd() == "/"
        return np.zeros((8, 8, 3), np.uint8)


class Exiting(Wandering):
    def __init__(self) -> None:
        os._exit(0)


def simulator_of(make: Any) -> EvaluationSimulator:
    given = program_environment(make)
    return EvaluationSimulator(OPTIONS, bundled_command(given.env, (), given), 1)


def test_what_it_changes_in_the_process_stays_with_it(workplace: Path) -> None:
    before = os.getcwd(), np.geterr(), sys.stdout
    with opened_scene(simulator_of(Wandering)) as scene:
        assert scene is not None
        assert os.getcwd() == before[0]
        steps = scene.reset(1)
        scene.render()
        (behavior,) = steps
        actions = {behavior: scene.behaviors[behavior].action_spec}
        given = {name: _nothing(spec) for name, spec in actions.items()}
        scene.step(given)
        assert (os.getcwd(), np.geterr()) == before[:2]
        with pytest.raises(BridgeError, match=r"python:Wandering raised SystemExit\(0\)"):
            scene.step(given)
    assert (os.getcwd(), np.geterr(), sys.stdout) == before


def _nothing(spec: Any) -> Any:
    from unity_bridge.steps import ActionBatch

    return ActionBatch.zeros(1, spec)


def test_one_that_ends_the_process_is_refused(workplace: Path) -> None:
    before = sys.stdout
    with (
        pytest.raises(UserError, match=r"python:Exiting called os\._exit\(0\)"),
        opened_scene(simulator_of(Exiting)),
    ):
        pass
    assert sys.stdout is before
