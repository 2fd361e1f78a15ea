"""Runs on PettingZoo environments, in parallel and in turn, as users start them."""

from __future__ import annotations

import json

import pytest
from mpe2 import simple_spread_v3
from PIL import Image
from run_files import metrics

from trainer_service import load_policy


def test_a_team_is_trained_evaluated_and_recorded(mlagents_style, configure) -> None:
    env = "--env=pettingzoo:mpe2.simple_spread_v3"
    config = configure("simple_spread_v3", time_horizon=25, summary_freq=400)
    learned = mlagents_style(
        "learn", config, "--run-id=team", env, "--num-envs=2", "--seed=3", "--env-args", "--copies", "2"
    )
    assert learned.code == 0, learned.err
    [line] = metrics("team")
    assert (line["behavior"], line["mean_length"]) == ("simple_spread_v3", 25)
    assert line["mean_group_return"] == pytest.approx(3 * line["mean_return"], rel=0.1)

    evaluation = ("evaluate", "team", "--episodes=3", "--seed=5", "--json", "--record=team.gif")
    said = mlagents_style(*evaluation, "--env-args", "--copies", "1")
    assert said.code == 0, said.err
    score = json.loads(said.out)["behaviors"]["simple_spread_v3"]
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


@pytest.mark.filterwarnings("ignore:The old environment creation API:DeprecationWarning")
def test_players_in_turn_learn_from_each_other_and_are_rated(mlagents_style, configure) -> None:
    rules = {"save_steps": 60, "team_change": 100, "swap_steps": 50}
    config = configure("Board", max_steps=200, self_play=rules)
    env = ("--env=pettingzoo:classic.tictactoe_v3", "--env-args", "--copies", "4", "--behaviors")
    sides = "player_1=Board?team=0,player_2=Board?team=1"
    learned = mlagents_style("learn", config, "--run-id=ttt", "--seed=3", *env, sides)
    assert learned.code == 0, learned.err
    assert all(row["elo"] != 1200 and -1 <= row["mean_return"] <= 1 for row in metrics("ttt"))
    said = mlagents_style("evaluate", "ttt", "--against", "random", "--episodes=8", "--json")
    assert said.code == 0, said.err
    [match] = json.loads(said.out)["matches"]
    assert match["won"] + match["drawn"] + match["lost"] == match["games"] == 8
