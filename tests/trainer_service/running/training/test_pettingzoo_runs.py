"""Runs on PettingZoo environments, as users start them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from mpe2 import simple_spread_v3
from PIL import Image

from trainer_service import load_policy

SMALL = {
    "trainer_type": "ppo",
    "hyperparameters": {"batch_size": 32, "buffer_size": 128, "num_epoch": 1},
    "network_settings": {"hidden_units": 8, "num_layers": 1},
    "max_steps": 400,
    "time_horizon": 25,
    "summary_freq": 400,
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "any.yaml"
    path.write_text(yaml.safe_dump({"default_settings": SMALL}))
    return path


def scores(said: Any) -> dict[str, dict[str, Any]]:
    assert said.code == 0, said.err
    behaviors: dict[str, dict[str, Any]] = json.loads(said.out)["behaviors"]
    return behaviors


def test_a_team_is_trained_evaluated_and_recorded(mlagents_style, config: Path) -> None:
    env = "--env=pettingzoo:mpe2.simple_spread_v3"
    learned = mlagents_style(
        "learn", config, "--run-id=team", env, "--num-envs=2", "--seed=3", "--env-args", "--copies", "2"
    )
    assert learned.code == 0, learned.err
    [line] = map(json.loads, Path("results/team/metrics.jsonl").read_text().splitlines())
    assert (line["behavior"], line["mean_length"]) == ("simple_spread_v3", 25)
    assert line["mean_group_return"] == pytest.approx(3 * line["mean_return"], rel=0.1)

    evaluation = ("evaluate", "team", "--episodes=3", "--seed=5", "--json", "--record=team.gif")
    [score] = scores(mlagents_style(*evaluation, "--env-args", "--copies", "1")).values()
    assert (score["episodes"], score["mean_length"]) == (3, 25)
    assert score["mean_return"] == pytest.approx(played_directly(seed=5), rel=1e-4)
    with Image.open("team.gif") as picture:
        assert picture.n_frames >= 25


def played_directly(seed: int) -> float:
    """The trained policy's return to an agent in an episode of the environment itself."""
    env = simple_spread_v3.parallel_env()
    policy = load_policy("results/team")
    seen, _ = env.reset(seed=seed)
    total = 0.0
    while env.agents:
        actions, _ = policy.predict([[seen[agent] for agent in env.possible_agents]])
        choices = actions.discrete[:, 0].tolist()
        seen, rewards, *_ = env.step(dict(zip(env.possible_agents, choices, strict=True)))
        total += sum(rewards.values())
    return total / len(env.possible_agents)
