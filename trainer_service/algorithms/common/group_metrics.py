"""Metrics of the gradient steps of learners of groups."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trainer_service.networks.shard import ALONE, Shard


def actor_step_metrics(
    policy_loss: Tensor, entropy: Tensor, log_ratio: Tensor, clip_epsilon: float
) -> Tensor:
    """Policy loss, entropy, fraction of clipped ratios and approximate KL of one gradient step. [4]

    log_ratio: how the log-probability of what was done has moved since it was done, [B].
    clip_epsilon: how far from 1 a ratio counts as clipped.
    """
    with torch.no_grad():
        ratio = log_ratio.exp()
        clipped = ((ratio - 1.0).abs() > clip_epsilon).float().mean()
        divergence = (ratio - 1.0 - log_ratio).mean()
        return torch.stack([policy_loss, entropy, clipped, divergence]).detach()


def mean_actor_metrics(reports: Sequence[Tensor], shard: Shard = ALONE) -> dict[str, float]:
    """Means over gradient steps of ``actor_step_metrics``, by tag. shard: adds up what each rank has of them."""
    means = shard.add_up(torch.stack(list(reports)).mean(dim=0))
    policy_loss, entropy, clipped, divergence = means.tolist()
    return {
        "Losses/Policy Loss": policy_loss,
        "Policy/Entropy": entropy,
        "Policy/Clip Fraction": clipped,
        "Policy/KL Divergence": divergence,
    }


def value_loss_by_agent(losses: Sequence[float]) -> dict[str, float]:
    """Value losses of each agent of the group, by tag. losses: by agent index."""
    return {f"Losses/Agent {agent} Value Loss": loss for agent, loss in enumerate(losses)}
