"""Runs on environments of several agents in lists, and on games in turns, as users start them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.usefixtures("programs_can_be_imported")

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
