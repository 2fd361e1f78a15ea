"""Runs of agents that communicate, from the command line to the score and the exported model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainer_service.policy import Policy, load_policy

TYPES = ["dqn_share", "dqn_consensus", "sic"]
COPIES = ("--env-args", "--copies", "4")


def settings_of(trainer_type: str, **changes: Any) -> dict[str, Any]:
    settings = {
        "trainer_type": trainer_type,
        "hyperparameters": {"batch_size": 32, "buffer_size": 1000, "steps_per_update": 8},
        "network_settings": {"hidden_units": 16, "num_layers": 1, "normalize": True},
        "time_horizon": 25,
        "max_steps": 600,
    }
    return {**settings, **changes}


def moved(policy: Policy, seen: np.ndarray, agent_indices: np.ndarray, groups: np.ndarray) -> np.ndarray:
    return policy.act(seen, agent_indices=agent_indices, groups=groups).discrete[:, 0]


@pytest.mark.parametrize("trainer_type", TYPES)
def test_they_are_trained_resumed_scored_and_exported(
    mlagents_style: Callable[..., Any], configure: Callable[..., Path], workplace: Path, trainer_type: str
) -> None:
    run = ("--run-id=talk", "--env=sim:switch2")
    said = mlagents_style("learn", configure("Switch2", **settings_of(trainer_type)), *run, *COPIES)
    assert said.code == 0, said.err
    longer = configure("Switch2", **settings_of(trainer_type, max_steps=800))
    said = mlagents_style("learn", longer, *run, "--resume", *COPIES)
    assert said.code == 0, said.err
    said = mlagents_style("evaluate", "talk", "--episodes=4", "--json")
    assert said.code == 0, said.err
    assert json.loads(said.out)["behaviors"]["Switch2"]["episodes"] == 4
    exported_does_what_the_policy_does(workplace / "results" / "talk")


def exported_does_what_the_policy_does(run: Path) -> None:
    import onnxruntime

    policy = load_policy(run)
    assert policy.communicates
    assert [sensor.name for sensor in policy.inputs.observation_specs][1:] == [
        "team_observations",
        "agent_id",
    ]
    session = onnxruntime.InferenceSession(run / "Switch2.onnx")
    seen = np.random.default_rng(5).normal(size=(20, 2)).astype(np.float32)
    agent_indices, groups = np.tile([0, 1], 10), np.repeat(np.arange(10), 2)
    inputs = {
        "obs_0": seen,
        "obs_1": np.repeat(seen.reshape(10, 4), 2, axis=0),
        "obs_2": np.eye(2, dtype=np.float32)[agent_indices],
        "action_masks": np.ones((20, 5), np.float32),
    }
    names = ["deterministic_discrete_actions", "discrete_actions"]
    for theirs in session.run(names, inputs):
        assert theirs[:, 0].tolist() == moved(policy, seen, agent_indices, groups).tolist()
    # Forbidden is what the policy would do.
    for row, action in enumerate(moved(policy, seen, agent_indices, groups)):
        inputs["action_masks"][row, action] = 0.0
    allowed = inputs["action_masks"] == 1.0
    (theirs,) = session.run(names[:1], inputs)
    ours = policy.act(seen, allowed, agent_indices=agent_indices, groups=groups).discrete
    assert theirs.tolist() == ours.tolist()
    assert (theirs[:, 0] != moved(policy, seen, agent_indices, groups)).all()


def test_pictures_cannot_be_told(mlagents_style: Callable[..., Any], configure: Callable[..., Path]) -> None:
    said = mlagents_style(
        "learn", configure("GridWorld", **settings_of("sic")), "--run-id=x", "--env=sim:gridworld"
    )
    assert said.code == 2
    assert "agents that tell each other what they see need sensors that are vectors" in said.err
