"""The networks on which the targets of value learners depend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from short_episodes import SENSOR, ShortEpisodes

CONTROL: dict[str, Any] = {"continuous": 2}
CHOICES: dict[str, Any] = {"branches": (3,)}


@pytest.mark.parametrize(
    ("trainer_type", "actions", "expected"),
    [
        ("ddpg", CONTROL, {"target_actor", "target_critic"}),
        ("dqn", {**CHOICES, "double": False}, {"target"}),
        ("dqn", CHOICES, {"network", "target"}),  # one chooses, the other judges
    ],
)
def test_targets_depend_on_slow_copies(
    small, live, trainer_type: str, actions: dict[str, Any], expected: set[str]
) -> None:
    sizes = {"batch_size": 16, "buffer_size": 60, "buffer_init_steps": 24, "steps_per_update": 4}
    behavior = small(trainer_type, sizes=(SENSOR,), **sizes, **actions)
    live(behavior, ShortEpisodes(behavior.spec.action_spec), 2)
    learner = behavior.learner
    batch, moved = learner.minibatch(learner.replay.buffer.sample(32, np.random.default_rng(0))), set()

    for name, network in learner.networks.items():
        before = learner.targets(batch)
        with torch.no_grad():
            for weight in network.parameters():
                weight.add_(torch.randn(weight.shape))
        if not torch.equal(learner.targets(batch), before):
            moved.add(name)
    assert moved == expected
