"""Copies of a learner that act as it does, wherever they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from trainer_service.learning.algorithms import Learner
from trainer_service.learning.algorithms.common.actor import ActRequest
from trainer_service.learning.rollout.assembler import Decisions
from trainer_service.learning.rollout.trajectories import Trajectories
from trainer_service.running.behaviors.behavior import Behavior
from unity_bridge.simulators.scene import concatenate, step_batch
from unity_bridge.steps import ActionBatch, StepBatch

AGENTS, CHOICES = 8, 3
KINDS = ("ppo", "mappo", "happo", "poca", "coma", "sac", "dqn", "qmix")


class FarAway:
    """Pairs of agents that see numbers around 50, for two steps."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(1)
        self.second = False

    def begin(self) -> StepBatch:
        return self.rows()

    def step(self, actions: ActionBatch) -> StepBatch:
        self.second = not self.second
        if self.second:
            return self.rows()
        return concatenate(self.rows(terminated=np.ones(AGENTS, np.bool_)), self.rows())

    def rows(self, **ends: Any) -> StepBatch:
        return step_batch(
            [self.rng.normal(50.0, 20.0, size=(AGENTS, 2)).astype(np.float32)],
            self.rng.normal(size=AGENTS).astype(np.float32),
            agent_ids=np.arange(AGENTS),
            allowed_actions=np.ones((AGENTS, CHOICES), np.bool_),
            group_ids=1 + np.arange(AGENTS) // 2,
            **ends,
        )


def decided(algorithm: Learner, seen: Trajectories) -> Decisions:
    return algorithm.actor.act(ActRequest(seen.observations, seen.allowed_actions, seen.memories))


def rows_seen(algorithm: Learner) -> int:
    """Rows that the normalizer has counted."""
    return int(algorithm.actor.state_dict()["normalizer"]["_normalizers.0.rows"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_decides_as_the_learner_does(
    make_behavior: Callable[..., Behavior], live: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    group = {} if kind in ("ppo", "sac", "dqn") else {"group_size": 2}
    exploration = {"exploration_steps": 200} if kind in ("coma", "dqn", "qmix") else {}

    def make(seed: int) -> Learner:
        behavior = behaviors[seed] = make_behavior(
            sizes=(2,),
            branches=(CHOICES,),
            seed=seed,
            trainer_type=kind,
            hyperparameters={
                "batch_size": 16,
                "buffer_size": 64,
                "learning_rate": 0.01,
                **group,
                **exploration,
            },
            network_settings={"hidden_units": 16, "num_layers": 1, "normalize": True},
            max_steps=10**6,
        )
        algorithm: Learner = behavior.learner
        return algorithm

    behaviors: dict[int, Behavior] = {}
    learner, copy = make(1), make(2)
    recorded: list[Trajectories] = []
    record = learner.record
    monkeypatch.setattr(learner, "record", lambda seen: (recorded.append(seen), record(seen)))
    live(behaviors[1], FarAway(), 2)

    def assert_equal_decisions() -> None:
        ours, theirs = decided(learner, recorded[0]), decided(copy, recorded[0])
        np.testing.assert_array_equal(ours.discrete_actions, theirs.discrete_actions)
        np.testing.assert_allclose(ours.log_probs, theirs.log_probs, rtol=1e-6)

    for algorithm in (copy, learner):
        algorithm.actor.load_state_dict(learner.actor.state_dict(), seed=5)
    assert_equal_decisions()
    # What the learner records moves its normalizer; a copy that sees it too goes on deciding alike.
    before = rows_seen(copy)
    for algorithm in (copy, learner):
        algorithm.actor.update_normalizer(recorded[0])
    assert rows_seen(learner) == rows_seen(copy) == before + len(recorded[0])
    assert_equal_decisions()
