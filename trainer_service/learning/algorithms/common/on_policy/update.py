"""Epochs of gradient steps of decentralized actors, and of a critic of their group.

An epoch is a loop over minibatches. The algorithm passes the loss of a minibatch as a function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor

from trainer_service.learning.algorithms.common.on_policy.group_rollout import (
    JointStepBatch,
    joint_step_batches,
)
from trainer_service.learning.algorithms.common.on_policy.kl_control import KLControl
from trainer_service.learning.algorithms.common.on_policy.rollout import GroupRollout, MinibatchSampler
from trainer_service.learning.algorithms.common.schedules import Scheduled
from trainer_service.learning.networks.encoders.memory import Sequences
from trainer_service.learning.networks.flat import FlatOptimizer
from trainer_service.ops.losses import clipped_surrogate_loss

_T = TypeVar("_T")

ActionEvaluation = Callable[[GroupRollout, Tensor, Sequences | None], tuple[Tensor, Tensor]]
"""Returns log-probabilities of taken actions at some steps under the present policy, [B], and its mean entropy."""

ActorLoss = Callable[[Tensor, Sequences | None], tuple[Tensor, Tensor]]
"""Returns the loss of a minibatch's steps, int64 [B], and their order in time; and a report without gradients: policy
loss, entropy, fraction of clipped ratios and approximate KL divergence, [4]."""


@dataclass(frozen=True, slots=True, eq=False)
class GroupEpochs:
    """The epochs of one update, with means of the statistics of their gradient steps."""

    rollout: GroupRollout
    scheduled: Scheduled
    critic_learning_rate: float

    optimizers: Mapping[str, FlatOptimizer]
    """Optimizers of actors and critic, from ``group_parts``."""

    max_grad_norm: float | None

    generator: torch.Generator
    """Random stream of the minibatches."""

    progress: Callable[[int, int], None]
    """As in ``Compute``."""

    kl_control: KLControl | None = None
    """Control of the actors' learning rate and epochs by the KL divergence. The critic's are not controlled."""

    reports: list[Tensor] = field(default_factory=list)
    """Reports of the actors' gradient steps."""

    losses: list[Tensor] = field(default_factory=list)
    """Losses of the critic's gradient steps."""

    def actors(
        self, loss: ActorLoss, epoch: int, of: int, sampler: MinibatchSampler, rows: Tensor | None = None
    ) -> None:
        """Makes one gradient step of the actors for each minibatch, in epoch ``epoch`` of ``of``.

        rows: numbers of the sampler's steps in the rollout; None for all. Does nothing after the KL divergence ended
        the epochs.
        """
        control, rate = self.kl_control, self.scheduled.learning_rate
        if control is not None:
            if control.sampler is not sampler:
                control.begin(self.rollout, sampler, rows)
            if control.ended:
                return
            rate = control.learning_rate(rate)
        steps, minibatches = sampler.shuffle(self.generator)
        steps = steps if rows is None else rows[steps]
        for minibatch, share, sequences in self._announced(minibatches, epoch, of):
            value, report = loss(steps[minibatch], sequences)
            self.optimizers["actor_optimizer"].minimize(value, rate, self.max_grad_norm, share)
            self.reports.append(sampler.shard.weighted(report, share))
        if control is not None:
            control.end_epoch()

    def critic(self, loss: Callable[[JointStepBatch], Tensor], epoch: int, of: int) -> None:
        """Makes one gradient step of the critic for each minibatch of joint steps.

        loss: with several learner ranks, returns this rank's addend.
        """
        rollout, rate = self.rollout, self.critic_learning_rate
        batches = joint_step_batches(rollout.joint_steps, rollout.sampler, self.generator)
        for batch in self._announced(batches, epoch, of):
            value = loss(batch)
            self.optimizers["critic_optimizer"].minimize(value, rate, self.max_grad_norm)
            self.losses.append(value.detach())

    def one_after_the_other(
        self, loss: ActorLoss, value_loss: Callable[[JointStepBatch], Tensor], num_epoch: int
    ) -> None:
        """Makes all epochs of the actors, then as many of the critic."""
        for epoch in range(num_epoch):
            self.actors(loss, epoch, 2 * num_epoch, self.rollout.sampler)
        for epoch in range(num_epoch, 2 * num_epoch):
            self.critic(value_loss, epoch, 2 * num_epoch)

    def metrics(self) -> dict[str, float]:
        """Means over all gradient steps, by tag."""
        shard = self.rollout.sampler.shard
        reports = shard.add_up(torch.stack(self.reports).mean(dim=0))
        policy_loss, entropy, clipped, divergence = reports.tolist()
        return {
            "Losses/Policy Loss": policy_loss,
            "Losses/Value Loss": float(shard.add_up(torch.stack(self.losses).mean())),
            "Policy/Entropy": entropy,
            "Policy/Clip Fraction": clipped,
            "Policy/KL Divergence": divergence,
        }

    def _announced(self, minibatches: Sequence[_T], epoch: int, of: int) -> Iterator[_T]:
        for number, minibatch in enumerate(minibatches):
            self.progress(epoch * len(minibatches) + number, of * len(minibatches))
            yield minibatch


def surrogate(
    evaluate: ActionEvaluation,
    rollout: GroupRollout,
    advantages: Tensor,
    clip_epsilon: float | None,
    beta: float,
) -> ActorLoss:
    """Makes the loss −L − β H of actors without a critic: L^CLIP of PPO, or the policy gradient's E[A ln π].

    advantages: of every step, [S]. clip_epsilon: clip range of ratios; None for the plain policy gradient.
    """

    def loss(steps: Tensor, sequences: Sequences | None) -> tuple[Tensor, Tensor]:
        log_prob, entropy = evaluate(rollout, steps, sequences)
        old, advantage = rollout.old_log_prob[steps], advantages[steps]
        if clip_epsilon is None:
            policy_loss = -(advantage * log_prob).mean()
        else:
            policy_loss = clipped_surrogate_loss(log_prob, old, advantage, clip_epsilon=clip_epsilon)
        with torch.no_grad():
            log_ratio = log_prob - old
            ratio = log_ratio.exp()
            clipped = ((ratio - 1.0).abs() > (clip_epsilon or math.inf)).float().mean()
            report = torch.stack([policy_loss, entropy, clipped, (ratio - 1.0 - log_ratio).mean()])
        return policy_loss - beta * entropy, report

    return loss
