"""The random actions of the probe."""

from __future__ import annotations

import numpy as np

from trainer_service.commands.suggest.probe import random_actions
from unity_bridge.simulators.scene import concatenate, step_batch
from unity_bridge.specs import ActionSpec
from unity_bridge.steps import StepBatch

SPEC = ActionSpec(1, (3, 2))


def rows(count: int, allowed: list[bool], **ends: bool) -> StepBatch:
    return step_batch(
        [np.zeros((count, 1), np.float32)],
        np.zeros(count, np.float32),
        agent_ids=np.arange(count),
        allowed_actions=np.tile(allowed, (count, 1)),
        **{how: np.full(count, ended) for how, ended in ends.items()},
    )


def test_random_actions_are_all_that_waiting_agents_may_do() -> None:
    ended = rows(5, [False, True, False, True, False], terminated=True)
    waiting = rows(200, [True, False, True, False, True])
    actions = random_actions(concatenate(ended, waiting), SPEC, np.random.default_rng(1))
    assert [set(branch) for branch in actions.discrete.T.tolist()] == [{0, 2}, {1}]
    assert actions.continuous.shape == (200, 1)
    assert -1.0 <= actions.continuous.min() < -0.9 < 0.9 < actions.continuous.max() <= 1.0
