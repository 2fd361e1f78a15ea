"""The scene of a page, which is hosted like those of a run."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from trainer_service.commands.watch.sources import RunSource, opened_scene
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


CONFIGURATION = "behaviors:\n  Walker:\n    trainer_type: ppo\n    max_steps: 200000\n"


def run_of(folder: Path, rows: list[dict[str, Any]]) -> RunSource:
    (folder / "configuration.yaml").write_text(CONFIGURATION, encoding="utf-8")
    lines = [json.dumps({"behavior": "Walker", "wall_s": 1.0, **row}) + "\n" for row in rows]
    (folder / "metrics.jsonl").write_text("".join(lines), encoding="utf-8")
    return RunSource(folder, deterministic=True, seed=1)


ROWS = [
    {"step": 60_000, "mean_return": 100.0, "steps_per_s": 500.0},
    {"step": 113_040, "mean_return": 87.25, "steps_per_s": 1000.0},
]


def test_the_progress_of_a_run_is_said_in_a_line(tmp_path: Path) -> None:
    run = run_of(tmp_path, ROWS)
    assert run.progress() == "", "nothing was read"
    assert [point["return"] for point in run.curve()] == [100.0, 87.25]
    assert run.progress() == "113,040 of 200,000 steps · 87 s left · mean return 87.25 · best 100"
    (tmp_path / "run_logs").mkdir()
    (tmp_path / "run_logs" / "timers.json").write_text("{}", encoding="utf-8")
    assert run.progress() == "113,040 of 200,000 steps · ended · mean return 87.25 · best 100"


def test_no_time_is_left_of_a_run_that_was_killed(tmp_path: Path) -> None:
    run = run_of(tmp_path, ROWS)
    os.utime(tmp_path / "metrics.jsonl", (1.0, 1.0))
    run.curve()
    assert "left" not in run.progress()
