"""Copies of a learner that act as it does, wherever they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from every_trainer import actions_of, make_behavior, settings_for
from short_episodes import ShortEpisodes

from trainer_service.learning.algorithms import Learner
from trainer_service.learning.algorithms.common.actor import ActRequest
from trainer_service.learning.rollout.assembler import Decisions
from trainer_service.learning.rollout.trajectories import Trajectories

KINDS = ("ppo", "mappo", "happo", "poca", "coma", "sac", "dqn", "qmix")


def decided(algorithm: Learner, seen: Trajectories) -> Decisions:
    return algorithm.actor.act(ActRequest(seen.observations, seen.allowed_actions, seen.memories))


def rows_seen(algorithm: Learner) -> int:
    """Rows that the normalizer has counted."""
    return int(algorithm.actor.state_dict()["normalizer"]["_normalizers.0.rows"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_decides_as_the_learner_does(
    live: Callable[..., None], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    settings = settings_for(kind, None, False)
    actions = actions_of(settings)
    behavior = make_behavior(settings, actions, seed=1)
    learner, copy = behavior.learner, make_behavior(settings, actions, seed=2).learner
    recorded: list[Trajectories] = []
    record = learner.record
    monkeypatch.setattr(learner, "record", lambda seen: (recorded.append(seen), record(seen)))
    live(behavior, ShortEpisodes(actions), 2)

    def assert_equal_decisions() -> None:
        ours, theirs = decided(learner, recorded[0]), decided(copy, recorded[0])
        np.testing.assert_array_equal(ours.discrete_actions, theirs.discrete_actions)
        np.testing.assert_allclose(ours.log_probs, theirs.log_probs, rtol=1e-6)

    algorithms: tuple[Any, ...] = (copy, learner)
    for algorithm in algorithms:
        algorithm.actor.load_state_dict(learner.actor.state_dict(), seed=5)
    assert_equal_decisions()
    # What the learner records moves its normalizer; a copy that sees it too goes on deciding alike.
    before = rows_seen(copy)
    for algorithm in algorithms:
        algorithm.actor.update_normalizer(recorded[0])
    assert rows_seen(learner) == rows_seen(copy) == before + len(recorded[0])
    assert_equal_decisions()
