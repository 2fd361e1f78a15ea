"""Runs of team learners on simulators with groups, from the command line to the score."""

from __future__ import annotations

import json
import os
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


def test_two_behaviors_of_a_team_share_what_their_critics_see(
    mlagents_style: Callable[..., Any], configure: Callable[..., Path]
) -> None:
    pytest.importorskip("mpe2", reason='mpe2 is not installed (pip install -e ".[pettingzoo]")')
    names = [f"simple_speaker_listener_v4_{role}" for role in ("speaker", "listener")]
    settings = {**TEAM, "trainer_type": "mappo"}
    settings["hyperparameters"] = {**TEAM["hyperparameters"], "state": "environment"}
    env = "--env=pettingzoo:mpe2.simple_speaker_listener_v4"
    said = mlagents_style("learn", configure(*names, **settings), "--run-id=sl", env, *COPIES)
    assert said.code == 0, said.err
    said = mlagents_style("evaluate", "sl", "--episodes=4", "--json")
    assert said.code == 0, said.err
    assert set(json.loads(said.out)["behaviors"]) == set(names)


def test_a_critic_without_the_state_it_needs_is_named(
    mlagents_style: Callable[..., Any], configure: Callable[..., Path]
) -> None:
    settings = {**TEAM, "trainer_type": "mappo"}
    settings["hyperparameters"] = {**TEAM["hyperparameters"], "state": "environment"}
    said = mlagents_style("learn", configure("Switch2", **settings), "--run-id=x", "--env=sim:switch2")
    assert said.code == 2
    assert "'Switch2': hyperparameters.state: environment needs a sensor named 'global_state'" in said.err


def test_a_group_that_grows_beyond_its_critic_is_named(
    mlagents_style: Callable[..., Any], configure: Callable[..., Path]
) -> None:
    settings = {**TEAM, "trainer_type": "mappo"}
    settings["hyperparameters"] = {**TEAM["hyperparameters"], "group_size": 1}
    said = mlagents_style(
        "learn", configure("Switch2", **settings), "--run-id=x", "--env=sim:switch2", *COPIES
    )
    assert said.code == 2
    assert "a group of at least 2 agents, expected at most 1" in said.err
    assert "hyperparameters.group_size" in said.err


@pytest.mark.parametrize(
    "again", ["--resume", pytest.param("--initialize-from=before", marks=pytest.mark.thorough)]
)
def test_groups_that_come_smaller_at_first_keep_their_size(
    mlagents_style: Callable[..., Any],
    configure: Callable[..., Path],
    repository: Path,
    monkeypatch: pytest.MonkeyPatch,
    again: str,
) -> None:
    pytest.importorskip("pettingzoo", reason='pettingzoo is not installed (pip install -e ".[pettingzoo]")')
    programs = str(repository / "tests" / "programs")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((programs, os.environ["PYTHONPATH"])))
    monkeypatch.syspath_prepend(programs)

    def learn(steps: int, agents: int, *flags: str) -> Any:
        config = configure("turnout_v1", **{**TEAM, "trainer_type": "mappo", "max_steps": steps})
        come = json.dumps({"come": agents})
        env = ("--env=pettingzoo:turnout_v1", *COPIES, "--env-kwargs", come)
        return mlagents_style("learn", config, *flags, *env)

    said = learn(200, 4, "--run-id=before")
    assert said.code == 0, said.err
    run = "before" if again == "--resume" else "after"
    said = learn(400, 3, again, f"--run-id={run}")
    assert said.code == 0, said.err
