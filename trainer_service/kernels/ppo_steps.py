"""What PPO's gradient steps on the minibatches of an epoch depend on beside the rollout."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from trainer_service.networks.encoders.memory import Sequences


class PPOSteps(NamedTuple):
    """What all gradient steps of an epoch have in common."""

    learning_rate: float
    clip_epsilon: float
    value_clip_range: Tensor
    """[signals]"""

    value_coefficient: float
    entropy_coefficient: float
    max_grad_norm: float | None
    """The gradient's length is cut down to it, norm + 1e-6 as in ``FlatParameters.clip_gradient``; None: never."""


class Minibatch(NamedTuple):
    """A part of an epoch's rows, counted in its order; of several learner ranks, this one's rows of it."""

    rows: slice
    """With a step where learner ranks share a minibatch, else contiguous."""

    share: float
    """The weight of these rows' mean in that of the whole minibatch: 1 for a learner without others."""

    sequences: Sequences | None = None
    """How the rows follow each other, for networks with memory."""
