"""Runs of groups that learn action values, where groups are smaller or larger than those trained for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trainer_service.running.policy import load_policy

FLOCK: dict[str, Any] = {
    "trainer_type": "idqn",
    "hyperparameters": {"batch_size": 4, "buffer_size": 100, "steps_per_update": 16},
    "checkpoint_interval": 5000,
}


def test_a_resumed_run_knows_larger_groups_than_it_meets(
    mlagents_style: Callable[..., Any], configure: Callable[..., Path], hosted: Callable[..., Sequence[str]]
) -> None:
    three, two = (hosted("flock", size=size) for size in (3, 2))
    assert mlagents_style("learn", configure("Flock", **FLOCK, max_steps=30), "--run-id=f", *three).code == 0
    longer = configure("Flock", **FLOCK, max_steps=50)
    said = mlagents_style("learn", longer, "--run-id=f", "--resume", *two)
    assert said.code == 0, said.err
    assert load_policy("results/f").num_agents == 3
    assert load_policy("results/f").step >= 50


def test_a_larger_group_than_trained_for_is_refused_by_name(
    mlagents_style: Callable[..., Any], configure: Callable[..., Path], hosted: Callable[..., Sequence[str]]
) -> None:
    two, three = (hosted("flock", size=size) for size in (2, 3))
    assert mlagents_style("learn", configure("Flock", **FLOCK, max_steps=30), "--run-id=f", *two).code == 0
    said = mlagents_style("evaluate", "f", "--episodes=2", *three)
    assert said.code == 2
    assert "behavior 'Flock': got a group of at least 3 agents; its policy was trained for 2" in said.err
