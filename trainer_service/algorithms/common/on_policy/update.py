"""Epochs of gradient steps of actors that decide alone, and of a critic of their group.

An epoch is a loop over minibatches: what is learned from one of them is the algorithm's, handed over as a loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from trainer_service.algorithms.common.on_policy.group_rollout import JointStepBatch
from trainer_service.algorithms.common.on_policy.rollout import Rollout, log_prob_and_entropy
from trainer_service.algorithms.common.schedules import Scheduled
from trainer_service.networks.encoders.memory import Sequences
from trainer_service.networks.flat import FlatOptimizer
from trainer_service.networks.policies.group_actors import GroupActors
from trainer_service.networks.shard import ALONE, Shard
from trainer_service.ops.losses import clipped_surrogate_loss

ActorLoss = Callable[[Tensor, Sequences | None], tuple[Tensor, Tensor]]
"""Of a minibatch's steps, int64 [B], and how they follow each other: its loss, and its ``actor_report``."""


def actor_epoch(
    optimizer: FlatOptimizer,
    minibatches: Iterable[tuple[Tensor, Sequences | None, float]],
    loss: ActorLoss,
    learning_rate: float,
    max_grad_norm: float | None,
) -> list[Tensor]:
    """One gradient step for each minibatch (see ``shuffled``). Returns their reports, times the minibatches' shares."""
    reports: list[Tensor] = []
    for steps, sequences, share in minibatches:
        value, report = loss(steps, sequences)
        optimizer.minimize(value, learning_rate, max_grad_norm, share)
        reports.append(optimizer.parameters.shard.weighted(report, share))
    return reports


def critic_epoch(
    optimizer: FlatOptimizer,
    batches: Iterable[JointStepBatch],
    loss: Callable[[JointStepBatch], Tensor],
    learning_rate: float,
    max_grad_norm: float | None,
) -> list[Tensor]:
    """One gradient step for each minibatch of joint steps. Returns their losses.

    loss: of several learner ranks, this one's addend of it.
    """
    losses: list[Tensor] = []
    for batch in batches:
        value = loss(batch)
        optimizer.minimize(value, learning_rate, max_grad_norm)
        losses.append(value.detach())
    return losses


def surrogate(actors: GroupActors, rollout: Rollout, advantages: Tensor, scheduled: Scheduled) -> ActorLoss:
    """PPO's loss of actors without a critic, −L^CLIP − β H. advantages: of every step, [S]."""

    def loss(steps: Tensor, sequences: Sequences | None) -> tuple[Tensor, Tensor]:
        log_prob, entropy = log_prob_and_entropy(actors, rollout, steps, sequences)
        old = rollout.old_log_prob[steps]
        policy_loss = clipped_surrogate_loss(log_prob, old, advantages[steps], clip_epsilon=scheduled.epsilon)
        report = actor_report(policy_loss, entropy, log_prob.detach() - old, scheduled.epsilon)
        return policy_loss - scheduled.beta * entropy, report

    return loss


def actor_report(policy_loss: Tensor, entropy: Tensor, log_ratio: Tensor, clip_epsilon: float) -> Tensor:
    """Policy loss, entropy, fraction of clipped ratios and approximate KL of one gradient step. [4]

    log_ratio: how the log-probability of what was done has moved since it was done, [B].
    clip_epsilon: how far from 1 a ratio counts as clipped.
    """
    with torch.no_grad():
        ratio = log_ratio.exp()
        clipped = ((ratio - 1.0).abs() > clip_epsilon).float().mean()
        divergence = (ratio - 1.0 - log_ratio).mean()
        return torch.stack([policy_loss, entropy, clipped, divergence]).detach()


def mean_reports(
    reports: Sequence[Tensor], losses: Sequence[Tensor], shard: Shard = ALONE
) -> dict[str, float]:
    """Means over gradient steps of the actors' reports and the critic's losses, by tag.

    shard: adds up what each learner rank has of them.
    """
    policy_loss, entropy, clipped, divergence = shard.add_up(torch.stack(list(reports)).mean(dim=0)).tolist()
    return {
        "Losses/Policy Loss": policy_loss,
        "Losses/Value Loss": float(shard.add_up(torch.stack(list(losses)).mean())),
        "Policy/Entropy": entropy,
        "Policy/Clip Fraction": clipped,
        "Policy/KL Divergence": divergence,
    }
