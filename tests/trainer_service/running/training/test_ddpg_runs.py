"""Runs of MADDPG with actions that are numbers, from the command line to the exported model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from exported_models import assert_model_acts_as_policy

from trainer_service.running.policy import load_policy

HYPER = {"batch_size": 16, "buffer_size": 400, "buffer_init_steps": 40, "steps_per_update": 8}


@pytest.mark.parametrize("share", ["full", "none"])
def test_group_of_continuous_actors_is_exported(
    mlagents_style: Callable[..., Any], configure: Callable[..., Path], workplace: Path, share: str
) -> None:
    settings = {"trainer_type": "maddpg", "hyperparameters": {**HYPER, "share": share}, "max_steps": 200}
    env = ("--env=sim:spread", "--env-args", "--copies", "4", "--continuous")
    said = mlagents_style("learn", configure("Spread", **settings), "--run-id=run", "--seed=1", *env)
    assert said.code == 0, said.err
    folder = workplace / "results" / "run"
    assert_model_acts_as_policy(folder / "Spread.onnx", load_policy(folder))
