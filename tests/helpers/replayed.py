"""Gradient steps of learners from a replay buffer on minibatches of a test's own making."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from trainer_service.learning.algorithms.common.learner import Metrics
from trainer_service.learning.algorithms.common.off_policy.replay_learner import ReplayLearner
from unity_bridge.arrays import Rows


def learn_from(learner: ReplayLearner[Any], *batches: Any, rate: float = 0.0) -> Metrics:
    """Makes one gradient step on each minibatch, at this learning rate. Returns what ``update`` says."""
    begin = learner.begin_update

    def at_rate(step: int) -> Any:
        updates = begin(step)
        updates.rate = rate
        return updates

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learner.replay, "minibatches", lambda rng: iter(batches))
        patch.setattr(learner, "minibatch", lambda batch: batch)
        patch.setattr(learner, "begin_update", at_rate)
        return learner.update(0)


def whole_sequences(learner: ReplayLearner[Any], *chosen: int) -> Any:
    """A sample of these sequences of a learner's replay buffer, or of all, in order."""
    replay: Any = learner.replay.buffer
    return replay._gather_whole(np.array(chosen) if chosen else np.arange(len(replay._starts) - 1), None)


def gathered(buffer: Any, rows: Rows | None = None) -> Any:
    """A sample of these rows of a buffer, or of all in their order."""
    return buffer._gather(np.arange(len(buffer)) if rows is None else rows, None)
