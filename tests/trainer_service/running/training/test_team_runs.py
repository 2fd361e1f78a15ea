"""Runs of team learners on simulators with groups, from the command line to the score."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

TEAM: dict[str, Any] = {
    "hyperparameters": {"batch_size": 64, "buffer_size": 128, "learning_rate_schedule": "constant"},
    "time_horizon": 25,
    "max_steps": 400,
}
COPIES = ("--env-args", "--copies", "4")


def test_a_policy_plays_the_same_task_under_another_name(
    mlagents_style: Callable[..., Any], configure: Callable[..., Path]
) -> None:
    pytest.importorskip("mpe2", reason='mpe2 is not installed (pip install -e ".[pettingzoo]")')
    config = configure("Spread", **TEAM, trainer_type="mappo")
    assert mlagents_style("learn", config, "--run-id=s", "--env=sim:spread", *COPIES).code == 0
    said = mlagents_style("evaluate", "s", "--env=pettingzoo:mpe2.simple_spread_v3", "--episodes=6", "--json")
    assert said.code == 0, said.err
    assert "The policy of 'Spread' plays 'simple_spread_v3'" in said.err
    assert json.loads(said.out)["behaviors"]["Spread"]["episodes"] == 6


def test_a_critic_without_the_state_it_needs_is_named(
    mlagents_style: Callable[..., Any], configure: Callable[..., Path]
) -> None:
    settings = {**TEAM, "trainer_type": "mappo"}
    settings["hyperparameters"] = {**TEAM["hyperparameters"], "state": "environment"}
    said = mlagents_style("learn", configure("Switch2", **settings), "--run-id=x", "--env=sim:switch2")
    assert said.code == 2
    assert "'Switch2': hyperparameters.state: environment needs a sensor named 'global_state'" in said.err
