"""Whole runs of deep Q-learning and of chance: what they leave behind, how they go on, and their models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

from trainer_service.config import TrainerSettings
from trainer_service.learning.algorithms import ALGORITHMS, Compute
from trainer_service.learning.algorithms.common.actor import ActRequest
from trainer_service.running.interop.onnx_export import to_onnx
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

RUN = Path("results/ppo")
SENSORS = (ObservationSpec("vector", (3,)), ObservationSpec("picture", (3, 36, 40)))


def dqn(**hyperparameters: Any) -> dict[str, Any]:
    small = {"batch_size": 16, "buffer_size": 200, "buffer_init_steps": 40, "steps_per_update": 4}
    return {"trainer_type": "dqn", "hyperparameters": {**small, **hyperparameters}}


def test_without_its_replay_buffer_it_says_so(mlagents_style, configure) -> None:
    for steps, more in ((60, []), (90, ["--resume"])):
        configure("Basic", **dqn(), max_steps=steps)
        said = mlagents_style("learn", "config.yaml", "--env=sim:basic", "--seed=1", *more)
        assert said.code == 0, said.err
    expected = "starts with an empty replay buffer (save_replay_buffer is false) and learns again after 40"
    assert expected in said.out + said.err


def test_what_it_cannot_do_ends_the_run_by_name(mlagents_style, configure) -> None:
    configure("3DBall", **dqn())
    said = mlagents_style("learn", "config.yaml", "--env=sim:3dball")
    assert said.code == 2
    assert "'3DBall': dqn needs discrete actions; the behavior has 2 continuous" in said.err


def model(kind: str, actions: ActionSpec, **hyperparameters: Any) -> tuple[Any, onnxruntime.InferenceSession]:
    settings = TrainerSettings.model_validate({
        "trainer_type": kind,
        "hyperparameters": hyperparameters,
        "network_settings": {"hidden_units": 16, "normalize": True},
    })  # fmt: skip
    spec = BehaviorSpec(SENSORS, actions)
    algorithm = ALGORITHMS[kind](spec, settings, Compute(torch.device("cpu"), 1))
    network = algorithm.actor.policy_network()
    return algorithm, onnxruntime.InferenceSession(to_onnx(network, spec))


def test_a_model_takes_the_best_allowed_action() -> None:
    algorithm, session = model("dqn", ActionSpec(0, (2, 3)), dueling=True)
    rng, rows = np.random.default_rng(1), 200
    seen = [rng.normal(size=(rows, *sensor.shape)).astype(np.float32) for sensor in SENSORS]
    allowed = rng.random((rows, 5)) < 0.7
    allowed[0] = False
    decisions = algorithm.actor.act(ActRequest(seen, allowed, np.empty((rows, 0), np.float32), True))
    feed = {"obs_0": seen[0], "obs_1": seen[1], "action_masks": allowed.astype(np.float32)}
    for name in ("discrete_actions", "deterministic_discrete_actions"):
        (actions,) = session.run([name], feed)
        np.testing.assert_array_equal(actions, decisions.discrete_actions)
    assert len(np.unique(decisions.discrete_actions, axis=0)) > 2


def test_a_model_of_chance_draws_uniformly_under_both_names() -> None:
    _, session = model("random", ActionSpec(2, (2, 3)))
    rows = 6000
    allowed = np.broadcast_to(np.array([1, 1, 1, 0, 1], np.float32), (rows, 5)).copy()
    feed = {"obs_0": np.ones((rows, 3), np.float32), "obs_1": np.ones((rows, 3, 36, 40), np.float32)}
    for prefix in ("", "deterministic_"):
        names = [f"{prefix}continuous_actions", f"{prefix}discrete_actions"]
        numbers, choices = session.run(names, {**feed, "action_masks": allowed})
        assert np.abs(numbers).max() <= 1.0
        assert numbers.std() == pytest.approx(3**-0.5, abs=0.02)
        assert numbers.mean() == pytest.approx(0.0, abs=0.05)
        # Deviations are 39.
        assert np.bincount(choices[:, 0], minlength=2).tolist() == pytest.approx([3000, 3000], abs=250)
        assert np.bincount(choices[:, 1], minlength=3).tolist() == pytest.approx([3000, 0, 3000], abs=250)
