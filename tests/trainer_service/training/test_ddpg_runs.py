"""Runs of DDPG, TD3 and MADDPG from the command line: trained, resumed, scored and exported."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from trainer_service.policy import load_policy

HYPER = {"batch_size": 16, "buffer_size": 400, "buffer_init_steps": 40, "steps_per_update": 8}

RUNS = {
    "ddpg": ("3dball", "3DBall", {"noise": "ou", "save_replay_buffer": True}, ()),
    "td3": ("3dball", "3DBall", {"noise": "ou", "save_replay_buffer": True}, ()),
    "maddpg": ("switch2", "Switch2", {"save_replay_buffer": True}, ("--copies", "4")),
    "maddpg-numbers": ("spread", "Spread", {"share": "full"}, ("--copies", "4", "--continuous")),
}


@pytest.mark.parametrize("run", RUNS)
def test_a_policy_is_trained_resumed_scored_and_exported(
    mlagents_style: Callable[..., Any], configure: Callable[..., Path], workplace: Path, run: str
) -> None:
    scene, name, changes, arguments = RUNS[run]
    env = (f"--env=sim:{scene}", *(("--env-args", *arguments) if arguments else ()))
    settings = {
        "trainer_type": run.split("-")[0],
        "hyperparameters": {**HYPER, **changes},
        "time_horizon": 25,
    }
    for steps, more in ((200, ()), (400, ("--resume",))):
        config = configure(name, **settings, max_steps=steps)
        said = mlagents_style("learn", config, "--run-id=run", "--seed=1", *more, *env)
        assert said.code == 0, said.err
    folder = workplace / "results" / "run"
    if "save_replay_buffer" in changes:
        assert f"'{name}' goes on with its replay buffer." in said.out + said.err
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["step"] == 400
    said = mlagents_style("evaluate", "run", "--episodes=4", "--json")
    assert said.code == 0, said.err
    assert json.loads(said.out)["behaviors"][name]["episodes"] == 4
    policy = load_policy(folder)
    session = onnxruntime.InferenceSession(folder / f"{name}.onnx")
    rng = np.random.default_rng(1)
    seen = [
        rng.normal(size=(20, *sensor.shape)).astype(np.float32) for sensor in policy.inputs.observation_specs
    ]
    inputs: dict[str, Any] = {f"obs_{index}": sensor for index, sensor in enumerate(seen)}
    agent_indices = None
    if policy.num_agents:
        agent_indices = rng.integers(policy.num_agents, size=20)
        inputs[f"obs_{len(seen) - 1}"] = np.eye(policy.num_agents, dtype=np.float32)[agent_indices]
    if policy.spec.action_spec.mask_size:
        inputs["action_masks"] = np.ones((20, policy.spec.action_spec.mask_size), np.float32)
    ours = policy.act(seen[: len(policy.spec.observation_specs)], agent_indices=agent_indices)
    kind, expected = ("continuous", ours.continuous) if ours.continuous.size else ("discrete", ours.discrete)
    (theirs,) = session.run([f"deterministic_{kind}_actions"], inputs)
    np.testing.assert_allclose(theirs, expected, atol=1e-5)


def test_ddpg_names_the_actions_that_it_cannot_take(
    mlagents_style: Callable[..., Any], configure: Callable[..., Path]
) -> None:
    config = configure("Basic", trainer_type="ddpg", hyperparameters=HYPER)
    said = mlagents_style("learn", config, "--run-id=x", "--env=sim:basic")
    assert said.code == 2
    assert (
        "'Basic': ddpg needs continuous actions alone; the behavior has 0 continuous and 1 discrete"
        in said.err
    )


def test_maddpg_names_the_picture_that_it_cannot_take(
    mlagents_style: Callable[..., Any], configure: Callable[..., Path]
) -> None:
    config = configure("GridWorld", trainer_type="maddpg", hyperparameters=HYPER)
    said = mlagents_style("learn", config, "--run-id=x", "--env=sim:gridworld")
    assert said.code == 2
    assert "maddpg needs sensors that are vectors" in said.err
