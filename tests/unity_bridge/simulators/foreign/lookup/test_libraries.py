"""Environments of libraries as their configurations open them, each where its library is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from unity_bridge.simulators.command import academy_for, open_for, parse
from unity_bridge.steps import ActionBatch


def plays(env: str, arguments: list[str], choices: int, steps: int = 30) -> Any:
    """The last message of a scene that was played with chance, and its sensors' names and shapes."""
    wanted = parse([env, *arguments])
    scene = open_for(wanted, academy_for(wanted))
    [(behavior, spec)] = scene.behaviors.items()
    assert spec.action_spec.discrete_branches == (choices,)
    batch, rng = scene.reset(0)[behavior], np.random.default_rng(0)
    for _ in range(steps):
        waiting = len(batch) - batch.num_terminal
        chosen = rng.integers(choices, size=(waiting, 1)).astype(np.int32)
        batch = scene.step({behavior: ActionBatch(np.zeros((waiting, 0), np.float32), chosen)})[behavior]
    scene.close()
    return batch, {sensor.name: sensor.shape for sensor in spec.observation_specs}


def arguments_of(config: Path) -> list[str]:
    arguments: list[str] = yaml.safe_load(config.read_text(encoding="utf-8"))["env_settings"]["env_args"]
    return arguments


@pytest.mark.filterwarnings("ignore")
def test_pong_shows_four_grey_pictures(repository: Path) -> None:
    pytest.importorskip("ale_py")
    batch, sensors = plays("gym:ale_py:PongNoFrameskip-v4", arguments_of(repository / "configs/pong.yaml"), 6)
    assert sensors == {"observation": (4, 84, 84)}
    assert (len(batch), batch.observations[0].dtype) == (8, np.uint8)


@pytest.mark.filterwarnings("ignore")
def test_a_minigrid_shows_all_but_its_mission() -> None:
    pytest.importorskip("minigrid")
    batch, sensors = plays("gym:MiniGrid-DoorKey-5x5-v0", ["--agents", "8"], 7)
    assert sensors == {"direction": (4,), "image": (147,)}
    assert len(batch) == 8
