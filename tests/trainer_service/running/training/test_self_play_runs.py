"""Whole runs under self-play, stopped and resumed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from run_files import assert_same_state, checkpoint, metrics

EPISODE = 8  # agent steps of a team of two in one episode of the rivals

ONE_NAME = ("Rival?team=0", "Rival?team=1")
TWO_NAMES = ("Hunter?team=1", "Prey?team=0")

RULES = {"save_steps": 3 * EPISODE, "team_change": 8 * EPISODE, "swap_steps": 2 * EPISODE, "window": 2}


def names(ids: tuple[str, ...]) -> list[str]:
    return sorted({each.partition("?")[0] for each in ids})


@pytest.fixture
def train(mlagents_style, hosted, configure):
    """Lets the rivals of these ids learn up to a step count."""

    def run(run_id: str, max_steps: int, *flags: str, ids: tuple[str, ...] = ONE_NAME, **settings: Any):
        hyperparameters = {"batch_size": 16, "buffer_size": 4 * EPISODE, "learning_rate": 0.01}
        configure(
            *names(ids),
            **{
                "hyperparameters": {**hyperparameters, "learning_rate_schedule": "constant"},
                "network_settings": {"normalize": True, "hidden_units": 8, "num_layers": 1},
                "max_steps": max_steps,
                "summary_freq": EPISODE,
                "checkpoint_interval": 1000,
                "self_play": RULES,
                **settings,
            },
        )
        said = mlagents_style(
            "learn", "config.yaml", f"--run-id={run_id}", "--seed=5", *flags, *hosted("rivals", ids=ids)
        )
        assert said.code == 0, said.err
        return said

    return run


IN_A_ROLLOUT = 14
"""Episodes after which a rollout is half full; after 8 another team learns."""


def test_rating_and_snapshots_are_where_people_look_for_them(train) -> None:
    said = train("duel", 24 * EPISODE)
    ratings = re.findall(r"Training\. ELO: (\d+\.\d{3})\.", said.out)
    assert len(ratings) >= 20
    rows = [row for row in metrics("duel") if "elo" in row]
    assert [f"{row['elo']:.3f}" for row in rows] == ratings
    status = json.loads(Path("results/duel/run_logs/training_status.json").read_text())
    assert status["Rival"]["elo"] == checkpoint("duel", "Rival")["self_play"]["rules"]["rating"]
    events = next(Path("results/duel/Rival").glob("events.out.tfevents.*")).read_bytes()
    assert b"Self-play/ELO" in events
    weights = [
        snapshot["weights"] for snapshot in checkpoint("duel", "Rival")["self_play"]["rules"]["snapshots"]
    ]
    assert len(weights) >= 2
    assert any(
        not torch.equal(weights[0][name], weights[1][name]) for name in weights[0] if "normalizer" not in name
    )


def test_a_behavior_without_a_turn_keeps_its_steps(train) -> None:
    never = {**RULES, "team_change": 10**6}
    said = train("unfair", 6 * EPISODE, ids=TWO_NAMES, self_play=never)
    assert said.code == 0
    # Prey is of team 0, which learns first; Hunter gets its turn when Prey has nothing left to learn.
    assert [row["behavior"] for row in metrics("unfair")] == ["Prey"] * 6 + ["Hunter"] * 6
    rules = {name: checkpoint("unfair", name)["self_play"]["rules"] for name in ("Hunter", "Prey")}
    assert rules["Prey"]["ghost_steps"] == rules["Hunter"]["ghost_steps"] == 6 * EPISODE


LEAGUE = {**RULES, "opponents": {"self": 1, "random": 1, "old": 2}, "pfsp_weighting": "hard"}


def test_a_league_is_resumed_bit_for_bit(train) -> None:
    chosen = {"self_play": LEAGUE}
    train("old", 8 * EPISODE, network_settings={"hidden_units": 4, "num_layers": 2})
    train("straight", 24 * EPISODE, **chosen)
    train("parted", IN_A_ROLLOUT * EPISODE, **chosen)
    said = train("parted", 24 * EPISODE, "--resume", **chosen)
    assert "say which checkpoint is meant" not in said.err + said.out
    assert_same_state("parted", "straight", "Rival")
    assert metrics("parted") == metrics("straight")
    rules = checkpoint("straight", "Rival")["self_play"]["rules"]
    assert rules["fixed"]["old"]["step"] == 8 * EPISODE
    assert rules["fixed"]["old"]["results"]["games"] > 1
    assert {"win_rate/old", "win_rate/random"} <= {key for row in metrics("straight") for key in row}
    # The opponent moves on, and is not what it was.
    train("old", 12 * EPISODE, "--resume", network_settings={"hidden_units": 4, "num_layers": 2})
    said = train("parted", 26 * EPISODE, "--resume", **chosen)
    assert "Opponent 'old' is of step 96 now, it was of step 64" in said.out


@pytest.mark.parametrize(
    ("opponents", "complaint"),
    [
        (["nobody"], "behaviors.Rival.self_play.opponents: player 'nobody': no run 'nobody' in 'results'"),
        (["gone.safetensors"], "checkpoint 'gone.safetensors' does not exist"),
        (["expert"], "has no expert of its own; expected one of sim:3dball"),
    ],
)
def test_opponents_that_are_not_there_are_refused_at_once(
    mlagents_style, configure, opponents: list[str], complaint: str
) -> None:
    configure("Rival", self_play={"opponents": opponents})
    said = mlagents_style("learn", "config.yaml", "--env=/bin/true", "--run-id=x")
    assert said.code == 2
    assert complaint in said.err
    assert not Path("results/x/configuration.yaml").exists()


def test_a_scenes_expert_is_an_opponent(mlagents_style, configure) -> None:
    rules = {"save_steps": 200, "team_change": 600, "swap_steps": 100, "opponents": ["expert"]}
    configure("Duel", max_steps=1500, summary_freq=500, self_play=rules)
    line = ["config.yaml", "--env=sim:duel", "--run-id=duel", "--seed=3", "--env-args", "--copies", "4"]
    said = mlagents_style("learn", *line)
    assert said.code == 0, said.err
    assert "has no receiver" not in said.out + said.err
    results = checkpoint("duel", "Duel")["self_play"]["rules"]["fixed"]["expert"]["results"]
    assert results["games"] > 10
    assert results["won"] / results["games"] < 0.2
