"""Groups' returns in real runs: what is printed, logged, and evaluated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


def test_group_returns_stand_in_everything_that_a_run_says(mlagents_style, configure) -> None:
    configure("Spread", max_steps=600, summary_freq=300)
    line = ["config.yaml", "--env=sim:spread", "--run-id=team", "--seed=3", "--env-args", "--copies", "2"]
    said = mlagents_style("learn", *line)
    assert said.code == 0, said.err
    assert "Mean Group Reward: " in said.out
    for summary in map(json.loads, Path("results/team/metrics.jsonl").read_text().splitlines()):
        # Three agents whose episodes all last 25 steps; the team's return is the sum of theirs.
        assert summary["episodes"] > 0
        assert summary["mean_group_return"] == pytest.approx(3 * summary["mean_return"], rel=1e-6)
    events = next(Path("results/team/Spread").glob("events.out.tfevents.*")).read_bytes()
    assert b"Environment/Group Cumulative Reward" in events

    said = mlagents_style("evaluate", "team", "--episodes=12", "--stochastic", "--json")
    assert said.code == 0, said.err
    score = json.loads(said.out)["behaviors"]["Spread"]
    assert (score["episodes"], score["group_episodes"]) == (12, 4)
    assert score["mean_group_return"] == pytest.approx(3 * score["mean_return"], rel=1e-6)
    assert score["std_group_return"] > 0
    assert "over 4 episodes of groups" in mlagents_style("evaluate", "team", "--episodes=12").out
