"""Whole runs of soft actor-critic: what they leave behind, and how they go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from trainer_service.running.policy import load_policy

HYPER = {"batch_size": 16, "buffer_size": 200, "buffer_init_steps": 40, "steps_per_update": 4}
FILES = Path("results/ppo/Basic")


def sac(**hyperparameters: Any) -> dict[str, Any]:
    return {"trainer_type": "sac", "hyperparameters": {**HYPER, **hyperparameters}}


def test_a_damaged_replay_buffer_is_named_and_removed_by_force(mlagents_style, configure) -> None:
    configure("Basic", **sac(save_replay_buffer=True), max_steps=100)
    assert mlagents_style("learn", "config.yaml", "--env=sim:basic", "--seed=1").code == 0
    (rows,) = FILES.glob("replay-*-steps-0.npz")
    rows.write_bytes(rows.read_bytes()[:300])
    configure("Basic", **sac(save_replay_buffer=True), max_steps=200)
    said = mlagents_style("learn", "config.yaml", "--env=sim:basic", "--resume")
    assert said.code == 2
    assert f"replay.npz' cannot be used: '{rows.name}': it has 300 bytes" in said.err
    configure("Basic", **sac(), max_steps=50)
    assert mlagents_style("learn", "config.yaml", "--env=sim:basic", "--force").code == 0
    assert not [*FILES.glob("replay*")]


@pytest.mark.thorough
def test_a_memory_lasts_from_the_run_to_the_model(mlagents_style, configure) -> None:
    memory = {"memory_size": 6, "sequence_length": 5, "type": "gru"}
    network = {"hidden_units": 8, "num_layers": 1, "memory": memory}
    for steps, more in ((150, []), (300, ["--resume"])):
        configure("Hybrid", **sac(save_replay_buffer=True), network_settings=network, max_steps=steps)
        said = mlagents_style("learn", "config.yaml", "--env=sim:hybrid", "--seed=1", *more)
        assert said.code == 0, said.err
    assert "'Hybrid' continues with its replay buffer." in said.out + said.err
    said = mlagents_style("evaluate", "ppo", "--episodes=1", "--json")
    assert said.code == 0, said.err
    policy = load_policy(Path("results/ppo"))
    assert policy.memory_size == 6
    session = onnxruntime.InferenceSession("results/ppo/Hybrid.onnx")
    rng, actions, rows = np.random.default_rng(1), policy.spec.action_spec, 4
    memories, recurrent = None, np.zeros((rows, 1, 6), np.float32)
    for _ in range(20):
        seen = [
            rng.normal(size=(rows, *sensor.shape)).astype(np.float32)
            for sensor in policy.spec.observation_specs
        ]
        inputs: dict[str, Any] = {f"obs_{index}": sensor for index, sensor in enumerate(seen)}
        inputs |= {"action_masks": np.ones((rows, actions.mask_size), np.float32), "recurrent_in": recurrent}
        names = [each.name for each in session.get_outputs()]
        outputs = dict(zip(names, session.run(None, inputs), strict=True))
        acted, memories = policy.predict(seen, memories)
        recurrent = outputs["recurrent_out"]
        np.testing.assert_allclose(recurrent[:, 0], memories, atol=1e-5)
        np.testing.assert_allclose(outputs["deterministic_continuous_actions"], acted.continuous, atol=1e-5)
        np.testing.assert_array_equal(outputs["deterministic_discrete_actions"], acted.discrete)
    assert np.ptp(memories, axis=0).max() > 1e-3
