"""Probes of agents that communicate: each needs to know what only others see. Seeds 1, 2 and 3, not picked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from seeds import seeds

from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of
from trainer_service.running.policy import Policy
from unity_bridge.simulators.scene import concatenate, step_batch
from unity_bridge.steps import ActionBatch, StepBatch

pytestmark = pytest.mark.probe

COPIES = 8
TYPES = ["dqn_share", "dqn_consensus", "sic"]


class Neighbors:
    """Everyone sees a cue, 0 or 1, and the group is paid for each agent that names the cue of the next one."""

    def __init__(self, agents: int, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.agents = agents
        self.ids = np.arange(agents * COPIES)
        self.cues = np.zeros((COPIES, agents), np.int64)

    def rows(self, *, paid: np.ndarray | None = None) -> StepBatch:
        ended = paid is not None
        return step_batch(
            [self.cues.reshape(-1, 1).astype(np.float32)],
            np.zeros(len(self.ids), np.float32),
            agent_ids=self.ids,
            allowed_actions=np.ones((len(self.ids), 2), np.bool_),
            group_ids=1 + self.ids // self.agents,
            group_rewards=np.repeat(paid, self.agents).astype(np.float32) if ended else None,
            terminated=np.full(len(self.ids), ended),
        )

    def begin(self) -> StepBatch:
        self.cues = self.rng.integers(2, size=self.cues.shape)
        return self.rows()

    def step(self, actions: ActionBatch) -> StepBatch:
        right = actions.discrete[:, 0].reshape(self.cues.shape) == np.roll(self.cues, -1, axis=1)
        return concatenate(self.rows(paid=right.mean(axis=1)), self.begin())


def settings_of(trainer_type: str, agents: int, **changes: Any) -> dict[str, Any]:
    return {
        "trainer_type": trainer_type,
        "hyperparameters": {
            "batch_size": 32,
            "buffer_size": 2000,
            "learning_rate": 0.02,
            "steps_per_update": 2 * agents,
            "exploration_steps": 300 * agents,
            "group_size": agents,
            **changes,
        },
        "network_settings": {"hidden_units": 16, "num_layers": 1},
        "reward_signals": {"extrinsic": {"gamma": 0.9, "strength": 1.0}},
        "time_horizon": 16,
        "max_steps": 10**6,
    }


def share_right(policy: Policy, agents: int) -> float:
    """The share of right choices over all combinations of cues."""
    cues = np.stack(np.meshgrid(*[[0, 1]] * agents), axis=-1).reshape(-1, agents)
    seen, groups = cues.reshape(-1, 1).astype(np.float32), np.repeat(np.arange(len(cues)), agents)
    agent_indices = np.tile(np.arange(agents), len(cues))
    chosen = policy.act(seen, agent_indices=agent_indices, groups=groups).discrete.reshape(cues.shape)
    return float((chosen == np.roll(cues, -1, axis=1)).mean())


def learn(
    make_behavior, live, trainer_type: str, agents: int, seed: int, updates: int, **changes
) -> Behavior:
    behavior: Behavior = make_behavior(seed=seed, **settings_of(trainer_type, agents, **changes))
    live(behavior, Neighbors(agents, seed), updates)
    return behavior


@seeds(1, 2)
@pytest.mark.parametrize("trainer_type", TYPES)
def test_they_learn_what_only_the_other_sees(make_behavior, live, trainer_type: str, seed: int) -> None:
    behavior = learn(make_behavior, live, trainer_type, 2, seed, 80)
    assert share_right(Policy(checkpoint_of(behavior)), 2) == 1.0


@pytest.mark.parametrize("trainer_type", TYPES)
def test_three_learn_it_too(make_behavior, live, trainer_type: str) -> None:
    behavior = learn(make_behavior, live, trainer_type, 3, 1, 100)
    assert share_right(Policy(checkpoint_of(behavior)), 3) > 0.9


def test_who_shares_nothing_cannot_know(make_behavior, live) -> None:
    behavior = learn(make_behavior, live, "dqn_share", 2, 1, 5, share_iterations=0)
    assert share_right(Policy(checkpoint_of(behavior)), 2) == 0.5
