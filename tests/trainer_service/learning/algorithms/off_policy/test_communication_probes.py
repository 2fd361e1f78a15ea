"""Probes of agents that communicate: each needs to know what only others see."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pair_worlds import Pairs

from trainer_service.running.behaviors.saving import checkpoint_of
from trainer_service.running.policy import Policy
from unity_bridge.steps import ActionBatch, StepBatch

pytestmark = pytest.mark.probe

COPIES = 8


class OthersCue(Pairs):
    """Each of two sees a cue, 0 or 1, and both are paid for each that names the other's."""

    def see(self) -> np.ndarray:
        return self.rng.integers(2, size=len(self.ids)).astype(float)

    def step(self, actions: ActionBatch) -> StepBatch:
        cues = self.seen.reshape(self.copies, 2)
        right = (actions.discrete[:, 0].reshape(self.copies, 2) == cues[:, ::-1]).mean(axis=1)
        return self.ended(right, group=np.repeat(right, 2))


SETTINGS = {
    "batch_size": 32,
    "buffer_size": 2000,
    "steps_per_update": 4,
    "exploration_steps": 600,
    "group_size": 2,
}


def share_right(small, live, trainer_type: str, updates: int, **changes: Any) -> float:
    """The share of right choices over all combinations of cues, after so many updates."""
    behavior = small(trainer_type, units=16, gamma=0.9, learning_rate=0.02, **SETTINGS, **changes)
    live(behavior, OthersCue(1, COPIES), updates)
    cues = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float32)
    policy, indices = Policy(checkpoint_of(behavior)), np.tile([0, 1], 4)
    chosen = policy.act(
        cues.reshape(-1, 1), agent_indices=indices, groups=np.repeat(np.arange(4), 2)
    ).discrete
    return float((chosen.reshape(4, 2) == cues[:, ::-1]).mean())


@pytest.mark.parametrize("trainer_type", ["dqn_share", "dqn_consensus", "sic"])
def test_they_learn_what_only_the_other_sees(small, live, trainer_type: str) -> None:
    assert share_right(small, live, trainer_type, 80) == 1.0


def test_agents_that_share_nothing_cannot_know(small, live) -> None:
    assert share_right(small, live, "dqn_share", 5, share_iterations=0) == 0.5
