"""The real mlagents-learn 1.1.0 trains on bundled scenes, to its last checkpoint and its exported model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

EXTRINSIC = {"extrinsic": {"gamma": 0.99, "strength": 1.0}}


def settings(steps: int, batch: int, **network: Any) -> dict[str, Any]:
    return {
        "trainer_type": "ppo",
        "hyperparameters": {"batch_size": batch, "buffer_size": 8 * batch},
        "network_settings": {"hidden_units": 32, "num_layers": 1, **network},
        "reward_signals": EXTRINSIC,
        "max_steps": steps,
        "summary_freq": steps // 2,
    }


@pytest.mark.parametrize(
    ("env", "behavior", "chosen"),
    [
        ("sim:3dball", "3DBall", settings(4000, 128, normalize=True)),
        ("sim:gridworld", "GridWorld", settings(1000, 32)),
        ("sim:sorter", "Sorter", settings(2000, 64)),
    ],
)
def test_real_learner_trains_on_our_scene_and_exports(
    env: str,
    behavior: str,
    chosen: dict[str, Any],
    peer: Any,
    bundled: Any,
    finish: Any,
    free_port: Any,
    real_learn: str,
    tmp_path: Path,
) -> None:
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"behaviors": {behavior: chosen}}))
    flags = [f"--env={bundled(env)}", "--run-id=run", f"--base-port={free_port()}", "--seed=3"]
    output = finish(peer.start("-c", real_learn, "config.yaml", *flags, folder=tmp_path, OMP_NUM_THREADS="1"))
    assert f"Connected new brain: {behavior}?team=0" in output
    assert f"{behavior}. Step: {chosen['summary_freq']}. " in output
    assert "Restarting worker" not in output
    model = tmp_path / "results" / "run" / f"{behavior}.onnx"
    assert model.stat().st_size > 1000
