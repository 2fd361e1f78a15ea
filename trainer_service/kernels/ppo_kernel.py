"""What a kernel of PPO does: gradient steps of an epoch, and values. S steps of a rollout, K choices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from trainer_service.networks.encoders.layers import observations_as_floats
from trainer_service.networks.encoders.memory import Sequences
from trainer_service.ops.losses import PPOBatch


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


class MinibatchSpan(NamedTuple):
    """The rows of a minibatch, counted in the order of an epoch."""

    rows: slice
    """With a step where learner ranks share a minibatch, else contiguous."""

    share: float
    """The weight of these rows' mean in that of the whole minibatch: 1 for a learner without others."""

    sequences: Sequences | None = None
    """How the rows follow each other, for networks with memory."""


class PPOKernel(Protocol):
    """Computes the usual network's updates in place of autograd, on the vectors of a ``FlatOptimizer``.

    A kernel is made for one network (see ``kernel_for``) and keeps nothing between calls that matters to the next one:
    parameters are in ``FlatParameters.vector``, Adam's state in ``FlatAdam``. Both may be replaced in place between
    calls. The same inputs give the same bits.
    """

    name: str
    """What it computes with, in the words of the log line that names it."""

    def epoch(
        self,
        observations: Tensor,
        targets: PPOBatch,
        order: Tensor,
        minibatches: Sequence[MinibatchSpan],
        steps: PPOSteps,
        progress: Callable[[int], None],
    ) -> Tensor:
        """Makes a gradient step for each minibatch, one after the other.

        A step is what ``PPO._step`` is for these rows: the gradient of ``ops.losses.ppo_loss``, added up over learner
        ranks (``FlatParameters.reduce_gradient``), cut to ``max_grad_norm``, one step of ``FlatAdam``.

        observations: [S, inputs], float32, the sensors side by side, normalized.
        targets: columns of S rows. Each is contiguous; columns of absent kinds of actions have no width.
        order: row of each place, int64; minibatches are slices of it.
        progress: to be called with the number of minibatches before, for the first one and then at least every tenth
            of a second or so. It may raise: then what was learned until then must stand.

        Returns the losses of ``PPOGradient.losses``, each the sum over minibatches of their means times their shares.
        Float32 [5], on the parameters' device. What is not finite stays so: the caller looks at it.
        """

    def values(self, observations: Tensor, sequences: Sequences | None = None) -> Tensor:
        """Returns a value for each reward signal, [S, signals].

        observations: [S, inputs], as for ``epoch``; sequences: how they follow each other, for networks with memory.
        """


def side_by_side(sensors: Sequence[Tensor]) -> Tensor:
    """Observations as kernels take them: [S, inputs], from one tensor per sensor, vectors all of them."""
    observations = observations_as_floats(sensors)
    return observations[0] if len(observations) == 1 else torch.cat(observations, dim=1)
