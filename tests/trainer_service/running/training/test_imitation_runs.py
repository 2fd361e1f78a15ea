"""Runs that imitate, from a recording to a policy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from run_files import metrics

CLONING: dict[str, Any] = {"behavioral_cloning": {"demo_path": "expert.demo", "samples_per_update": 64}}
GAIL: dict[str, Any] = {"reward_signals": {"extrinsic": {}, "gail": {"demo_path": "expert.demo"}}}


@pytest.fixture
def recorded(mlagents_style) -> Path:
    said = mlagents_style(
        "record-demo", "sim:pyramids", "--policy", "heuristic", "--episodes", 5, "-o", "expert.demo"
    )
    assert said.code == 0, said.err
    return Path("expert.demo")


def test_a_recording_of_another_scene_is_refused_by_name(mlagents_style, configure, recorded: Path) -> None:
    configure("Basic", **CLONING)
    said = mlagents_style("learn", "config.yaml", "--env=sim:basic")
    assert said.code == 2
    assert "behavior 'Basic': 'expert.demo' was recorded with 2 sensors (40,), (44,)" in said.err
    assert "Traceback" not in said.err


DEMONSTRATED = {"demo_path": "expert.demo", "demo_share": 0.25}
REPLAYING: dict[str, Any] = {
    "trainer_type": "sac",
    "hyperparameters": {"batch_size": 32, "buffer_size": 1000, "steps_per_update": 8, "replay": DEMONSTRATED},
}


@pytest.mark.parametrize(
    ("settings", "told", "complaint"),
    [
        ({**CLONING, **GAIL}, ("pretraining_loss", "gail_loss"), "'expert.demo' does not exist"),
        # A step costs 0.001, which is all that a run earns so soon; the brick of 2 is in the recording alone.
        (REPLAYING, ("extrinsic_reward",), "hyperparameters.replay.demo_path: expected a .demo file"),
    ],
    ids=["cloning and GAIL", "replay"],
)
def test_an_imitating_run_resumes_with_its_recording_alone(
    mlagents_style, configure, recorded: Path, settings: dict[str, Any], told: tuple[str, ...], complaint: str
) -> None:
    line = ("learn", "config.yaml", "--env=sim:pyramids")
    configure("Pyramids", **settings)
    said = mlagents_style(*line)
    assert said.code == 0, said.err
    for name in told:
        assert max(row[name] for row in metrics("ppo") if name in row) > 0.0
    configure("Pyramids", **settings, max_steps=800)
    said = mlagents_style(*line, "--resume")
    assert said.code == 0, said.err
    recorded.unlink()
    said = mlagents_style("evaluate", "ppo", "--episodes=2", "--json")
    assert said.code == 0, said.err
    said = mlagents_style(*line, "--resume")
    assert said.code == 2
    assert complaint in said.err


@pytest.mark.thorough
@pytest.mark.learning
@pytest.mark.timeout(600)
def test_pyramids_are_solved_by_who_has_seen_it_done(mlagents_style, repository: Path) -> None:
    # Without an expert nothing is ever earned there in as many steps.
    seed = 3
    recording = ("--policy", "heuristic", "--episodes", 50, "--seed", seed, "-o", "expert.demo")
    said = mlagents_style("record-demo", "sim:pyramids", *recording)
    assert said.code == 0, said.err
    config = repository / "configs" / "pyramids_gail_bc.yaml"
    said = mlagents_style("learn", config, "--env=sim:pyramids", f"--seed={seed}")
    assert said.code == 0, said.err
    said = mlagents_style("evaluate", "ppo", "--episodes=100", "--json")
    assert said.code == 0, said.err
    assert json.loads(said.out)["behaviors"]["Pyramids"]["mean_return"] > 1.9
