"""Who computes PPO's epochs: autograd, for any network, or the compiled kernel in its place."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from torch import Tensor

from trainer_service.kernels.choice import kernel_for
from trainer_service.kernels.ppo_steps import Minibatch, PPOSteps
from trainer_service.networks.encoders.memory import Sequences
from trainer_service.networks.flat import FlatOptimizer
from trainer_service.networks.policies.actor_critic import ActorCritic, batched_values
from trainer_service.ops.ppo_loss import PPOBatch

_logger = logging.getLogger(__name__)


class PPOEpochs(Protocol):
    """Computes one learner's epochs and values, on the vectors of its ``FlatOptimizer``."""

    name: str
    """How gradients are computed, in the words of the log and of checkpoints."""

    def epoch(
        self,
        observations: Sequence[Tensor],
        targets: PPOBatch,
        order: Tensor,
        minibatches: Sequence[Minibatch],
        steps: PPOSteps,
        losses: Tensor,
        progress: Callable[[int], None],
    ) -> int:
        """Makes a gradient step for each minibatch, one after the other: what ``PPO._step`` is for these rows.

        observations: one tensor [S, ...] per sensor, normalized; targets: columns of S rows; order: row of each place,
        int64, of which minibatches are slices.
        losses: float32 [5], to which each minibatch's parts of the loss are added, times its share.
        progress: is told the number of minibatches before, often enough for a display. It may raise: then what was
        learned until then stands.

        Returns how many minibatches these were.
        """

    def values(self, observations: Sequence[Tensor], sequences: Sequences | None) -> Tensor:
        """Returns a value for each reward signal, [S, signals]. sequences: how rows follow each other, with memory."""


GatheredMinibatch = tuple[list[Tensor], PPOBatch, Sequences | None, float]
"""Observations, targets, how rows follow each other, and the weight of their mean in the whole minibatch's."""


def gathered(
    observations: Sequence[Tensor], targets: PPOBatch, order: Tensor, minibatches: Sequence[Minibatch]
) -> Iterator[GatheredMinibatch]:
    """The rows of each minibatch. All arguments as ``PPOEpochs.epoch`` has them."""
    # Numbers are shuffled once as a whole, so that a minibatch is a slice and no gather. Pictures are not: a second
    # copy of them all is what memory may not have.
    shuffled = [sensor[order] if sensor.dim() == 2 else None for sensor in observations]
    columns = [column[order] for column in targets]
    for rows, share, sequences in minibatches:
        inputs = [
            sensor[order[rows]] if already is None else already[rows]
            for sensor, already in zip(observations, shuffled, strict=True)
        ]
        yield inputs, PPOBatch(*(column[rows] for column in columns)), sequences, share


class AutogradEpochs:
    """Epochs step by step, as a learner's own methods make them."""

    name = "by autograd"

    def __init__(
        self,
        policy: ActorCritic,
        gather: Callable[
            [Sequence[Tensor], PPOBatch, Tensor, Sequence[Minibatch]], Iterator[GatheredMinibatch]
        ],
        step: Callable[[list[Tensor], PPOBatch, Sequences | None, float, PPOSteps], Tensor],
    ) -> None:
        """gather, step: ``PPO._minibatches`` and ``PPO._step``."""
        self.policy = policy
        self._gather = gather
        self._step = step

    def epoch(
        self,
        observations: Sequence[Tensor],
        targets: PPOBatch,
        order: Tensor,
        minibatches: Sequence[Minibatch],
        steps: PPOSteps,
        losses: Tensor,
        progress: Callable[[int], None],
    ) -> int:
        """See ``PPOEpochs.epoch``."""
        count = 0
        for inputs, batch, sequences, share in self._gather(observations, targets, order, minibatches):
            progress(count)
            losses += self._step(inputs, batch, sequences, share, steps)
            count += 1
        return count

    def values(self, observations: Sequence[Tensor], sequences: Sequences | None) -> Tensor:
        """See ``PPOEpochs.values``."""
        return batched_values(self.policy, observations, sequences=sequences)


class EpochsChoice:
    """The choice at a learner's first update, what the log says of it, and what its checkpoints say."""

    def __init__(self, plain: AutogradEpochs, optimizer: FlatOptimizer | None, behavior: str) -> None:
        """plain: taken where no kernel is.

        optimizer: of the policy; None where plain epochs are wanted. behavior: its name in the log.
        """
        self._plain = plain
        self._optimizer = optimizer
        self._behavior = behavior
        self._chosen: PPOEpochs | None = None
        self._until_checkpoint = ""

    @property
    def chosen(self) -> PPOEpochs:
        """The one for this learner; where the run that goes on here had another, that is told once."""
        if self._chosen is None:
            # Not before the first update: then all parameters lie where they will stay.
            kernel = None if self._optimizer is None else kernel_for(self._plain.policy, self._optimizer)
            self._chosen = kernel or self._plain
            if self._behavior:
                _logger.info(
                    "'%s' computes the gradient of its updates %s.", self._behavior, self._chosen.name
                )
        if self._until_checkpoint not in ("", self._chosen.name):
            _logger.warning(
                "Until its checkpoint '%s' computed the gradient of its updates %s. It goes on, but not bit for bit as "
                "there.",
                self._behavior,
                self._until_checkpoint,
            )
        self._until_checkpoint = ""
        return self._chosen

    def state(self) -> str:
        """How gradients are computed, for a checkpoint; empty before the first update of all."""
        return self._until_checkpoint if self._chosen is None else self._chosen.name

    def load(self, state: str) -> None:
        """Continues a run whose checkpoint says so."""
        self._until_checkpoint = state
