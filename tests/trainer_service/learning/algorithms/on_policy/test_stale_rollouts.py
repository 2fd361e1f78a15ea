"""Learning from what a policy of eight updates ago collected, as Hilton et al. 2021 (arXiv:2110.00641) probed it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from trainer_service.learning.rollout.trajectories import Trajectories
from trainer_service.running.behaviors.behavior import Behavior
from unity_bridge.simulators.scene import concatenate, step_batch
from unity_bridge.steps import ActionBatch, StepBatch

pytestmark = pytest.mark.probe

AGENTS, SIGNS, LAG = 8, 4, 8


class Signs:
    """Episodes of one decision: the sign that is seen is to be chosen."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(1)
        self.right: list[float] = []

    def begin(self) -> StepBatch:
        self.sign = np.repeat(self.rng.integers(SIGNS, size=AGENTS // 2), 2)
        return self.rows(np.zeros(AGENTS))

    def step(self, actions: ActionBatch) -> StepBatch:
        right = actions.discrete[:, 0] == self.sign
        self.right.append(float(right.mean()))
        return concatenate(self.rows(right, terminated=np.ones(AGENTS, np.bool_)), self.begin())

    def rows(self, rewards: np.ndarray, **ends: Any) -> StepBatch:
        return step_batch(
            [np.eye(SIGNS, dtype=np.float32)[self.sign]],
            rewards.astype(np.float32),
            agent_ids=np.arange(AGENTS),
            allowed_actions=np.ones((AGENTS, SIGNS), np.bool_),
            **ends,
        )


def delay(behavior: Behavior, lag: int) -> None:
    """Lets a behavior learn from the rollout before the last ``lag`` ones, or the first there was."""
    waiting: deque[Trajectories] = deque()
    buffer: Any = behavior.learner.buffer  # type: ignore[attr-defined]
    drain = buffer.drain

    def stale() -> Trajectories:
        waiting.append(drain())
        return waiting.popleft() if len(waiting) > lag else waiting[0]

    buffer.drain = stale


@pytest.fixture
def learned(small: Callable[..., Behavior], live: Any) -> Callable[..., float]:
    """The share of right choices between the tenth and the twentieth update."""
    sizes = {"batch_size": 64, "buffer_size": 256, "num_epoch": 4, "units": 16}
    rates = {"learning_rate": 0.005, "beta": 0.001, "learning_rate_schedule": "constant"}

    def run(*, decoupled: bool) -> float:
        body = {"sizes": (SIGNS,), "branches": (SIGNS,), "decoupled": decoupled}
        behavior = small("ppo", **body, **sizes, **rates)
        delay(behavior, LAG)
        world = Signs()
        live(behavior, world, 20)
        return float(np.mean(world.right[len(world.right) // 2 :]))

    return run


def test_a_policy_of_eight_updates_ago_teaches_as_well(learned) -> None:
    assert learned(decoupled=True) > 0.9


def test_without_the_correction_it_teaches_less(learned) -> None:
    assert learned(decoupled=False) < 0.8
