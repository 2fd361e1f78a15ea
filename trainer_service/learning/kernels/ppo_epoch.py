"""The inputs of an epoch of PPO's gradient steps, whatever computes these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from trainer_service.learning.networks.encoders.memory import Sequences
from trainer_service.ops.ppo_loss import PPOBatch, PPOSteps


class Minibatch(NamedTuple):
    """A part of an epoch's rows, as places in its order. With several learner ranks, this rank's part of it."""

    rows: slice
    """Contiguous, except that learner ranks sharing a minibatch use a step."""

    share: float
    """Weight of these rows' mean in the mean of the whole minibatch; 1 without other ranks."""

    sequences: Sequences | None = None
    """The rows' order in time, for networks with memory."""


class PPOEpoch(NamedTuple):
    """An epoch of a rollout: S rows, and the rows of each gradient step."""

    observations: Sequence[Tensor]
    """Normalized observations, one per sensor. Shapes [S, …]."""

    targets: PPOBatch
    """Columns of S rows."""

    order: Tensor
    """The row at each place. Minibatches are slices of it. int64"""

    minibatches: Sequence[Minibatch]
    steps: PPOSteps

    completed: int = 0
    """Minibatches of earlier epochs of the update, for the display of progress."""

    total: int = 0
    """Minibatches of all epochs of the update."""
