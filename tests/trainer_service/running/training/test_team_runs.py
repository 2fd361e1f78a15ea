"""Runs of team learners on simulators with groups, also of other sizes than they were trained for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trainer_service.running.policy import load_policy

TEAM: dict[str, Any] = {
    "hyperparameters": {"batch_size": 64, "buffer_size": 128, "learning_rate_schedule": "constant"},
    "time_horizon": 25,
    "max_steps": 400,
}
COPIES = ("--env-args", "--copies", "4")


def test_a_policy_plays_the_same_task_under_another_name(mlagents_style, configure) -> None:
    pytest.importorskip("mpe2", reason='mpe2 is not installed (pip install -e ".[pettingzoo]")')
    config = configure("Spread", **TEAM, trainer_type="mappo")
    assert mlagents_style("learn", config, "--run-id=s", "--env=sim:spread", *COPIES).code == 0
    said = mlagents_style("evaluate", "s", "--env=pettingzoo:mpe2.simple_spread_v3", "--episodes=6", "--json")
    assert said.code == 0, said.err
    assert "The policy of 'Spread' plays 'simple_spread_v3'" in said.err
    assert json.loads(said.out)["behaviors"]["Spread"]["episodes"] == 6


def test_a_critic_without_the_state_it_needs_is_named(mlagents_style, configure) -> None:
    settings = {**TEAM, "trainer_type": "mappo"}
    settings["hyperparameters"] = {**TEAM["hyperparameters"], "state": "environment"}
    said = mlagents_style("learn", configure("Switch2", **settings), "--run-id=x", "--env=sim:switch2")
    assert said.code == 2
    assert "'Switch2': hyperparameters.state: environment needs a sensor named 'global_state'" in said.err


FLOCK: dict[str, Any] = {
    "trainer_type": "idqn",
    "hyperparameters": {"batch_size": 4, "buffer_size": 100, "steps_per_update": 16},
    "checkpoint_interval": 5000,
}


def test_a_resumed_run_knows_larger_groups_than_it_meets(mlagents_style, configure, hosted) -> None:
    three, two = (hosted("flock", size=size) for size in (3, 2))
    assert mlagents_style("learn", configure("Flock", **FLOCK, max_steps=30), "--run-id=f", *three).code == 0
    longer = configure("Flock", **FLOCK, max_steps=50)
    said = mlagents_style("learn", longer, "--run-id=f", "--resume", *two)
    assert said.code == 0, said.err
    assert load_policy("results/f").num_agents == 3
    assert load_policy("results/f").step >= 50


def test_a_larger_group_than_trained_for_is_refused_by_name(mlagents_style, configure, hosted) -> None:
    two, three = (hosted("flock", size=size) for size in (2, 3))
    assert mlagents_style("learn", configure("Flock", **FLOCK, max_steps=30), "--run-id=f", *two).code == 0
    said = mlagents_style("evaluate", "f", "--episodes=2", *three)
    assert said.code == 2
    assert "behavior 'Flock': got a group of at least 3 agents; its policy was trained for 2" in said.err
