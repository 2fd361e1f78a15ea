"""PPO's loss row by row: what is known of it before an epoch, what each minibatch adds, and its parts afterwards.

Of the operations of ``ops.ppo_gradient`` a third only reports, and another third does not depend on the network. Here
both are done once an epoch. B rows of a minibatch, S of an epoch in the order of its M minibatches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from trainer_service.kernels.ppo_kernel import MinibatchSpan, PPOSteps
from trainer_service.kernels.torch_network import Outputs
from trainer_service.ops import distributions as dist
from trainer_service.ops.losses import PPOBatch

_HALF_LOG_TAU = 0.5 * math.log(2.0 * math.pi)


class Minibatch(NamedTuple):
    """What the gradient of B rows depends on beside the network; ``output_gradient`` writes the last four."""

    observations: Tensor
    continuous_actions: Tensor
    discrete_actions: Tensor
    allowed_actions: Tensor

    offset: Tensor
    """−ln π_old − C ½ ln 2π: what ln ρ consists of beside z and σ. [B]"""

    by_ratio: Tensor
    """−A / B: the gradient by ρ where it is not clipped. [B]"""

    side: Tensor
    """The sign of A: ρ is clipped where side ρ > side + ε. [B]"""

    limit: Tensor
    """side + ε. [B]"""

    return_: Tensor
    """[B, signals]"""

    slack: Tensor
    """|V_old − R| − range: where |V − R| is less, the clipped term is larger and flat in V. [B, signals]"""

    log_ratio: Tensor
    """ln ρ. [B]"""

    error: Tensor
    """V − R. [B, signals]"""

    entropy: Tensor
    """Of all branches together. [B]"""

    log_sigma: Tensor
    """Σ ln σ. []"""


class EpochRows:
    """The rows of an epoch, shuffled as a whole, so that a minibatch is a slice of each column and no gather."""

    def __init__(
        self,
        observations: Tensor,
        targets: PPOBatch,
        order: Tensor,
        minibatches: Sequence[MinibatchSpan],
        steps: PPOSteps,
    ) -> None:
        """As ``PPOKernel.epoch`` has them."""
        targets = PPOBatch(*(column[order] for column in targets))
        means, shares = _weights(len(order), minibatches)
        self._targets = targets
        self._steps = steps
        self._spans = minibatches
        self._shares = shares.to(order.device)
        advantage, side = targets.advantage, targets.advantage.sign()
        zeros = torch.zeros_like
        sums = advantage.new_zeros(len(minibatches))
        self._columns = Minibatch(
            observations=observations[order],
            continuous_actions=targets.continuous_actions,
            discrete_actions=targets.discrete_actions,
            allowed_actions=targets.allowed_actions,
            offset=-targets.old_log_prob - _HALF_LOG_TAU * targets.continuous_actions.shape[1],
            by_ratio=advantage * -means.to(order.device),
            side=side,
            limit=side + steps.clip_epsilon,
            return_=targets.return_,
            slack=(targets.old_value - targets.return_).abs() - steps.value_clip_range,
            log_ratio=zeros(advantage),
            error=zeros(targets.return_),
            entropy=zeros(advantage),
            log_sigma=sums,
        )

    def minibatches(self) -> Iterator[Minibatch]:
        """Views of the columns, a minibatch at a time."""
        spans = [span.rows for span in self._spans]
        *columns, sums = self._columns
        return map(Minibatch, *(_pieces(column, spans) for column in columns), sums.unbind())

    def losses(self) -> Tensor:
        """The sum of ``PPOGradient.losses`` over all minibatches, by what the steps have written."""
        rows, targets, steps = self._columns, self._targets, self._steps
        ratio = rows.log_ratio.exp()
        clipped_ratio = ratio.clamp(1.0 - steps.clip_epsilon, 1.0 + steps.clip_epsilon)
        surrogate = torch.minimum(ratio * targets.advantage, clipped_ratio * targets.advantage)
        moved = rows.error + (targets.return_ - targets.old_value)
        reach = steps.value_clip_range
        clipped = moved.clamp(-reach, reach) + (targets.old_value - targets.return_)
        by_row = torch.stack(
            [
                -surrogate,
                torch.maximum(rows.error.square(), clipped.square()).mean(dim=1),
                rows.entropy,
                (ratio != clipped_ratio).float(),
                ratio - 1.0 - rows.log_ratio,
            ]
        )
        losses = by_row @ self._shares
        if numbers := targets.continuous_actions.shape[1]:
            shares = rows.log_sigma.new_tensor([span.share for span in self._spans])
            losses[2] += ((rows.log_sigma / numbers + (_HALF_LOG_TAU + 0.5)) * shares).sum()
        return losses


def output_gradient(
    rows: Minibatch,
    outputs: Outputs,
    log_sigma: Tensor | None,
    by_log_sigma: Tensor | None,
    branches: Sequence[int],
    steps: PPOSteps,
) -> Outputs:
    """Gradient of ``ppo_loss`` by the network's outputs, by the equations of ``ops.ppo_gradient``.

    log_sigma: [C]; by_log_sigma: where the gradient by it belongs.
    """
    z = log_choices = None
    if outputs.mean is not None and log_sigma is not None:
        inverse_sigma = torch.exp(-log_sigma)
        z = (rows.continuous_actions - outputs.mean).mul_(inverse_sigma)
        squares = z * z
        halves = squares.new_full((squares.shape[1],), -0.5)
        torch.addmv(rows.offset, squares, halves, out=rows.log_ratio)
        rows.log_ratio.sub_(torch.sum(log_sigma, 0, out=rows.log_sigma))
    else:
        rows.log_ratio.copy_(rows.offset)
    if outputs.logits is not None:
        log_choices = dist.masked_log_softmax(outputs.logits, rows.allowed_actions, branches)
        rows.log_ratio.add_(log_choices.gather(1, rows.discrete_actions).sum(dim=1))
    ratio = rows.log_ratio.exp()
    by_log_prob = (ratio * rows.by_ratio).masked_fill_(ratio.mul_(rows.side) > rows.limit, 0.0)
    by_each = by_log_prob.unsqueeze(1)

    by_mean = by_logits = None
    if z is not None and by_log_sigma is not None:
        torch.mv(squares.t(), by_log_prob, out=by_log_sigma)
        by_log_sigma.sub_(by_log_prob.sum().add_(steps.entropy_coefficient / len(by_log_sigma)))
        by_mean = z.mul_(inverse_sigma).mul_(by_each)
    if log_choices is not None:
        by_logits = _by_logits(log_choices, rows, by_each, branches, steps.entropy_coefficient)
    torch.sub(outputs.values, rows.return_, out=rows.error)
    flat = rows.error.abs() < rows.slack
    scale = 2.0 * steps.value_coefficient / rows.error.numel()
    return Outputs(by_mean, by_logits, (rows.error * scale).masked_fill_(flat, 0.0))


def _by_logits(
    log_choices: Tensor, rows: Minibatch, by_log_prob: Tensor, branches: Sequence[int], entropy: float
) -> Tensor:
    """Gradient by logits: ∂L/∂ln π (1[chosen] − p) + β/B p (ln p + H_branch). by_log_prob: [B, 1]."""
    choices = log_choices.exp()
    surprise = choices * log_choices
    gradient = log_choices
    for part, logs in zip(
        torch.split(surprise, list(branches), 1), torch.split(gradient, list(branches), 1), strict=True
    ):
        branch_entropy = part.sum(dim=1, keepdim=True).neg_()
        rows.entropy.add_(branch_entropy.squeeze(1))
        logs.add_(branch_entropy)
    gradient.mul_(entropy / len(gradient)).sub_(by_log_prob).mul_(choices)
    return gradient.scatter_add_(1, rows.discrete_actions, by_log_prob.expand_as(rows.discrete_actions))


def _weights(rows: int, minibatches: Sequence[MinibatchSpan]) -> tuple[Tensor, Tensor]:
    """The weight of each row in the mean of its minibatch, without and with its share; 0 for rows of other ranks."""
    means, shares = np.zeros((2, rows), np.float32)
    for span, share, _ in minibatches:
        count = len(range(*span.indices(rows)))
        means[span] = 1.0 / count
        shares[span] = share / count
    return torch.from_numpy(means), torch.from_numpy(shares)


def _pieces(column: Tensor, spans: Sequence[slice]) -> Sequence[Tensor]:
    """The rows of each span."""
    sizes = [span.stop - span.start for span in spans]
    contiguous = sum(sizes) == len(column) and all(span.step in (None, 1) for span in spans)
    return torch.split(column, sizes) if contiguous else [column[span] for span in spans]
