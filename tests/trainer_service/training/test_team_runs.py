"""Runs of team learners on simulators with groups, from the command line to the score."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

TEAM: dict[str, Any] = {
    "hyperparameters": {"batch_size": 64, "buffer_size": 128, "learning_rate_schedule": "constant"},
    "time_horizon": 25,
    "max_steps": 400,
}
COPIES = ("--env-args", "--copies", "4")


def metrics(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("trainer_type", ["mappo", "happo", "poca", "coma"])
def test_a_team_is_trained_resumed_scored_and_exported(
    mlagents_style: Callable[..., Any], configure: Callable[..., Path], workplace: Path, trainer_type: str
) -> None:
    settings = {**TEAM, "trainer_type": trainer_type}
    config = configure("Switch2", **settings)
    run = ("--run-id=team", "--env=sim:switch2")
    said = mlagents_style("learn", config, *run, *COPIES)
    assert said.code == 0, said.err
    longer = configure("Switch2", **{**settings, "max_steps": 800})
    said = mlagents_style("learn", longer, *run, "--resume", *COPIES)
    assert said.code == 0, said.err
    folder = workplace / "results" / "team"
    assert [line["step"] for line in metrics(folder)][-1] == 800
    assert (folder / "Switch2.onnx").exists()
    said = mlagents_style("evaluate", "team", "--episodes=4", "--json")
    assert said.code == 0, said.err
    score = json.loads(said.out)["behaviors"]["Switch2"]
    assert score["episodes"] == 4
    assert score["mean_group_return"] is not None


def test_a_policy_plays_the_same_task_under_another_name(
    mlagents_style: Callable[..., Any], configure: Callable[..., Path]
) -> None:
    pytest.importorskip("mpe2", reason="mpe2 is not installed (pip install 'trainer-service[pettingzoo]')")
    config = configure("Spread", **TEAM, trainer_type="mappo")
    assert mlagents_style("learn", config, "--run-id=s", "--env=sim:spread", *COPIES).code == 0
    said = mlagents_style("evaluate", "s", "--env=pettingzoo:mpe2.simple_spread_v3", "--episodes=6", "--json")
    assert said.code == 0, said.err
    assert "The policy of 'Spread' plays 'simple_spread_v3'" in said.err
    assert json.loads(said.out)["behaviors"]["Spread"]["episodes"] == 6


def test_two_behaviors_of_a_team_share_what_their_critics_see(
    mlagents_style: Callable[..., Any], configure: Callable[..., Path]
) -> None:
    pytest.importorskip("mpe2", reason="mpe2 is not installed (pip install 'trainer-service[pettingzoo]')")
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
    assert "a group of at least 2 agents came, 1 were expected" in said.err
    assert "hyperparameters.group_size" in said.err


@pytest.mark.parametrize("again", ["--resume", "--initialize-from=before"])
def test_groups_that_come_smaller_at_first_keep_their_size(
    mlagents_style: Callable[..., Any],
    configure: Callable[..., Path],
    repository: Path,
    monkeypatch: pytest.MonkeyPatch,
    again: str,
) -> None:
    pytest.importorskip(
        "pettingzoo", reason="pettingzoo is not installed (pip install 'trainer-service[pettingzoo]')"
    )
    search = (str(repository / "tests" / "programs"), os.environ["PYTHONPATH"])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(search))

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


def test_coma_names_the_actions_that_it_cannot_take(
    mlagents_style: Callable[..., Any], configure: Callable[..., Path]
) -> None:
    config = configure("3DBall", **TEAM, trainer_type="coma")
    said = mlagents_style("learn", config, "--run-id=x", "--env=sim:3dball")
    assert said.code == 2
    assert "coma needs actions of one discrete branch, the behavior has 2 continuous" in said.err


def test_the_exported_model_of_actors_of_their_own_does_what_the_policy_does(
    mlagents_style: Callable[..., Any], configure: Callable[..., Path], workplace: Path
) -> None:
    import onnxruntime

    from trainer_service.policy import load_policy

    config = configure("Switch2", **TEAM, trainer_type="happo")
    assert mlagents_style("learn", config, "--run-id=h", "--env=sim:switch2", *COPIES).code == 0
    policy = load_policy(workplace / "results" / "h")
    session = onnxruntime.InferenceSession(workplace / "results" / "h" / "Switch2.onnx")
    rng = np.random.default_rng(5)
    seen, agent_indices = rng.normal(size=(20, 2)).astype(np.float32), rng.integers(2, size=20)
    ours = policy.act(seen, agent_indices=agent_indices).discrete[:, 0]
    (theirs,) = session.run(
        ["deterministic_discrete_actions"],
        {
            "obs_0": seen,
            "obs_1": np.eye(2, dtype=np.float32)[agent_indices],
            "action_masks": np.ones((20, 5), np.float32),
        },
    )
    assert theirs[:, 0].tolist() == ours.tolist()
