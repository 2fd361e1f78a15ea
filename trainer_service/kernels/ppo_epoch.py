"""What an epoch of PPO's gradient steps takes in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from trainer_service.networks.encoders.memory import Sequences
from trainer_service.ops.ppo_loss import PPOBatch, PPOSteps


class Minibatch(NamedTuple):
    """A part of an epoch's rows, counted in its order; of several learner ranks, this one's rows of it."""

    rows: slice
    """With a step where learner ranks share a minibatch, else contiguous."""

    share: float
    """The weight of these rows' mean in that of the whole minibatch: 1 for a learner without others."""

    sequences: Sequences | None = None
    """How the rows follow each other, for networks with memory."""


class PPOEpoch(NamedTuple):
    """An epoch of a rollout: S rows, and which of them each gradient step is on."""

    observations: Sequence[Tensor]
    """Normalized, one per sensor. Shapes [S, …]."""

    targets: PPOBatch
    """Columns of S rows."""

    order: Tensor
    """The row of each place, of which minibatches are slices. int64"""

    minibatches: Sequence[Minibatch]
    steps: PPOSteps
