"""Runs of groups that learn action values, from the command line to the score and the exported model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from trainer_service.policy import load_policy

COPIES = ("--env-args", "--copies", "4")


@pytest.mark.parametrize("trainer_type", ["idqn", "vdn", "qmix"])
def test_a_group_is_trained_resumed_scored_and_exported(
    mlagents_style: Callable[..., Any], configure: Callable[..., Path], workplace: Path, trainer_type: str
) -> None:
    settings: dict[str, Any] = {
        "trainer_type": trainer_type,
        "hyperparameters": {
            "batch_size": 32,
            "buffer_size": 1000,
            "steps_per_update": 16,
            "save_replay_buffer": True,
            "replay": {"type": "prioritized"},
        },
        "time_horizon": 25,
        "checkpoint_interval": 5000,
    }
    run = ("--run-id=values", "--env=sim:switch2")
    said = mlagents_style("learn", configure("Switch2", **settings, max_steps=800), *run, *COPIES)
    assert said.code == 0, said.err
    longer = configure("Switch2", **settings, max_steps=1100)
    said = mlagents_style("learn", longer, *run, "--resume", *COPIES)
    assert said.code == 0, said.err
    folder = workplace / "results" / "values"
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["step"] >= 1100
    told = set().union(*lines)
    assert {
        "value_loss",
        "td_error",
        "mean_q",
        "exploration_rate",
        "Replay/Beta",
        "Replay/Largest Priority",
    } <= told
    of_agents = {name for name in told if name.startswith("agent_")}
    assert of_agents == ({"agent_0_value_loss", "agent_1_value_loss"} if trainer_type == "idqn" else set())
    said = mlagents_style("evaluate", "values", "--episodes=4", "--json")
    assert said.code == 0, said.err
    score = json.loads(said.out)["behaviors"]["Switch2"]
    assert score["episodes"] == 4
    assert score["mean_group_return"] is not None
    policy, session = load_policy(folder), onnxruntime.InferenceSession(folder / "Switch2.onnx")
    seen, agent_indices = np.random.default_rng(5).random((20, 2), np.float32), np.arange(20) % 2
    given = {
        "obs_0": seen,
        "obs_1": np.eye(2, dtype=np.float32)[agent_indices],
        "action_masks": np.ones((20, 5), np.float32),
    }
    for found in session.run(["discrete_actions", "deterministic_discrete_actions"], given):
        np.testing.assert_array_equal(found, policy.act(seen, agent_indices=agent_indices).discrete)


FLOCK: dict[str, Any] = {
    "trainer_type": "idqn",
    "hyperparameters": {"batch_size": 4, "buffer_size": 100, "steps_per_update": 16},
    "checkpoint_interval": 5000,
}


def test_a_run_goes_on_with_the_groups_it_knows_where_fewer_show_at_first(
    mlagents_style: Callable[..., Any], configure: Callable[..., Path], program: Callable[..., Path]
) -> None:
    three, two = (f"--env={program('flock', '--size', str(size))}" for size in (3, 2))
    assert mlagents_style("learn", configure("Flock", **FLOCK, max_steps=30), three, "--run-id=f").code == 0
    longer = configure("Flock", **FLOCK, max_steps=50)
    said = mlagents_style("learn", longer, two, "--run-id=f", "--resume")
    assert said.code == 0, said.err
    assert load_policy("results/f").agent_indices == 3
    assert load_policy("results/f").step >= 50
    said = mlagents_style("learn", longer, two, "--run-id=heir", "--initialize-from=f")
    assert said.code == 0, said.err
    assert load_policy("results/heir").agent_indices == 3


def test_a_larger_group_than_it_was_trained_for_is_refused_by_name(
    mlagents_style: Callable[..., Any], configure: Callable[..., Path], program: Callable[..., Path]
) -> None:
    two, three = (f"--env={program('flock', '--size', str(size))}" for size in (2, 3))
    assert mlagents_style("learn", configure("Flock", **FLOCK, max_steps=30), two, "--run-id=f").code == 0
    said = mlagents_style("evaluate", "f", three, "--episodes=2")
    assert said.code == 2
    assert "behavior 'Flock': a group of at least 3 agents came, its policy was trained for 2" in said.err
