"""Checkpoints that the real mlagents-learn 1.1.0 writes are imported, and the policies act as its exported models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import yaml

from trainer_service.running.interop.mlagents_results import import_results
from trainer_service.running.policy import load_policy

MEMORY = {"memory_size": 12, "sequence_length": 16}
SAC = {"batch_size": 32, "buffer_size": 1000, "buffer_init_steps": 100, "steps_per_update": 10.0}
ON_POLICY = {"batch_size": 32, "buffer_size": 128}


@pytest.mark.parametrize(
    ("env", "behavior", "trainer", "network"),
    [
        ("sim:3dball", "3DBall", "sac", {"normalize": True}),
        ("sim:gridworld", "GridWorld", "sac", {}),
        ("sim:sorter", "Sorter", "sac", {}),
        ("sim:hybrid", "Hybrid", "sac", {"normalize": True, "memory": MEMORY}),
        ("sim:pushblock", "PushBlockCollab", "poca", {"normalize": True}),
        ("sim:gridworld", "GridWorld", "poca", {}),
        ("sim:hybrid", "Hybrid", "poca", {"memory": MEMORY}),
        ("sim:hybrid", "Hybrid", "ppo", {"normalize": True}),
    ],
)
def test_an_imported_policy_acts_as_the_model_of_the_real_learner(
    env: str,
    behavior: str,
    trainer: str,
    network: dict[str, Any],
    peer: Any,
    bundled: Any,
    finish: Any,
    free_port: Any,
    real_learn: str,
    tmp_path: Path,
) -> None:
    settings = {
        "trainer_type": trainer,
        "hyperparameters": SAC if trainer == "sac" else ON_POLICY,
        "network_settings": {"hidden_units": 8, "num_layers": 2, **network},
        "max_steps": 600,
        "time_horizon": 32,
        "summary_freq": 300,
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"behaviors": {behavior: settings}}))
    flags = [f"--env={bundled(env)}", "--run-id=run", f"--base-port={free_port()}", "--seed=3"]
    finish(peer.start("-c", real_learn, "config.yaml", *flags, folder=tmp_path, OMP_NUM_THREADS="1"))
    results = tmp_path / "results" / "run"
    imported = import_results(results, "imported", results_dir=tmp_path / "imported")
    assert_acts_alike(imported.folder, results / f"{behavior}.onnx", squashed=trainer == "sac")


def assert_acts_alike(folder: Path, model: Path, *, squashed: bool) -> None:
    """squashed: ML-Agents' deterministic actions of SAC lack the tanh that its sampled ones have."""
    policy, session = load_policy(folder), onnxruntime.InferenceSession(model)
    outputs = [output.name for output in session.get_outputs()]
    wanted = [name for name in outputs if name.startswith(("deterministic_", "recurrent_out"))]
    inputs = {each.name for each in session.get_inputs()}
    rng, memories = np.random.default_rng(7), None
    recurrent = np.zeros((1, 1, policy.memory_size), np.float32)
    for _ in range(20):
        seen = [rng.random((1, *each.shape), np.float32) for each in policy.spec.observation_specs]
        feed = {f"obs_{i}": sensor for i, sensor in enumerate(seen)} | {
            "action_masks": np.ones((1, policy.spec.action_spec.mask_size), np.float32),
            "recurrent_in": recurrent,
        }
        theirs = dict(
            zip(wanted, session.run(wanted, {k: feed[k] for k in feed if k in inputs}), strict=True)
        )
        recurrent = theirs.get("recurrent_out", recurrent)
        actions, memories = policy.predict(seen, memories)
        continuous = theirs.get("deterministic_continuous_actions", actions.continuous)
        np.testing.assert_allclose(
            actions.continuous, np.tanh(continuous) if squashed and continuous.size else continuous, atol=1e-5
        )
        np.testing.assert_array_equal(
            actions.discrete, theirs.get("deterministic_discrete_actions", actions.discrete)
        )
