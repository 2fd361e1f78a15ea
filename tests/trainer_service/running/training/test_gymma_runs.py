"""Runs on environments of several agents in lists, and on games in turns, as users start them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image

pytestmark = pytest.mark.usefixtures("programs_can_be_imported")

SMALL = {
    "trainer_type": "vdn",
    "hyperparameters": {
        "batch_size": 16,
        "buffer_size": 512,
        "buffer_init_steps": 60,
        "steps_per_update": 24,
    },
    "network_settings": {"hidden_units": 8, "num_layers": 1},
    "max_steps": 240,
    "summary_freq": 240,
}
SIDES = "player_1=Board?team=0,player_2=Board?team=1"
DUEL = {
    "trainer_type": "ppo",
    "hyperparameters": {"batch_size": 32, "buffer_size": 64, "num_epoch": 1},
    "network_settings": {"hidden_units": 8, "num_layers": 1},
    "max_steps": 200,
    "time_horizon": 16,
    "summary_freq": 100,
    "self_play": {"save_steps": 60, "team_change": 100, "swap_steps": 50},
}


def config(path: Path, settings: Any) -> Path:
    path.write_text(yaml.safe_dump(settings))
    return path


def test_a_team_in_lists_is_trained_evaluated_and_recorded(mlagents_style, tmp_path: Path) -> None:
    env = ("--env=gymma:foragers:Foragers-v0", "--seed=3")
    copies = (
        "--env-args",
        "--copies",
        "4",
        "--steps",
        "6",
        "--env-kwargs",
        '{"limit": 9}',
        "--common-reward",
        "sum",
    )
    learned = mlagents_style(
        "learn", config(tmp_path / "vdn.yaml", {"default_settings": SMALL}), "--run-id=team", *env, *copies
    )
    assert learned.code == 0, learned.err
    [line] = map(json.loads, Path("results/team/metrics.jsonl").read_text().splitlines())
    assert (line["behavior"], line["mean_length"], line["mean_return"]) == ("Foragers-v0", 6, 0)
    assert 6 * 3 <= line["mean_group_return"] <= 6 * 9, "places are 3 a step, choices 0 to 6 on top"
    said = mlagents_style("evaluate", "team", "--episodes=3", "--json", "--record=team.gif")
    assert said.code == 0, said.err
    [score] = json.loads(said.out)["behaviors"].values()
    assert (score["mean_length"], score["mean_return"]) == (6, 0)
    with Image.open("team.gif") as picture:
        assert picture.n_frames >= 5


@pytest.mark.filterwarnings("ignore:The old environment creation API:DeprecationWarning")
def test_players_in_turn_learn_from_each_other_and_are_rated(mlagents_style, tmp_path: Path) -> None:
    settings = {
        "behaviors": {"Board": DUEL},
        "env_settings": {"env_args": ["--copies", "4", "--behaviors", SIDES]},
    }
    env = "--env=pettingzoo:classic.tictactoe_v3"
    learned = mlagents_style(
        "learn", config(tmp_path / "duel.yaml", settings), "--run-id=ttt", env, "--seed=3"
    )
    assert learned.code == 0, learned.err
    lines = list(map(json.loads, Path("results/ttt/metrics.jsonl").read_text().splitlines()))
    assert all(line["elo"] != 1200 and -1 <= line["mean_return"] <= 1 for line in lines)
    said = mlagents_style("evaluate", "ttt", "--against", "random", "--episodes=8", "--json")
    assert said.code == 0, said.err
    [match] = json.loads(said.out)["matches"]
    assert match["won"] + match["drawn"] + match["lost"] == match["games"] == 8
