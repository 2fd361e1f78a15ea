"""PPO's loss, its parts, and its gradient in closed form, which replaces autograd."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from trainer_service.ops import distributions as dist


class PPOBatch(NamedTuple):
    """A minibatch of PPO: actions, their advantages and returns, and the values of the old critic."""

    continuous_actions: Tensor
    """[B, C]"""

    discrete_actions: Tensor
    """int64 [B, branches], each counted from the start of all K choices (see choice_indices)."""

    allowed_actions: Tensor
    """bool [B, K]"""

    old_log_prob: Tensor
    """[B]"""

    advantage: Tensor
    """[B]"""

    old_value: Tensor
    """[B, signals]"""

    return_: Tensor
    """[B, signals]"""


class PPOSteps(NamedTuple):
    """Constants of all gradient steps of an epoch."""

    learning_rate: float
    clip_epsilon: float
    value_clip_range: Tensor
    """[signals]"""

    value_coefficient: float
    entropy_coefficient: float
    max_grad_norm: float | None
    """The maximum norm of the gradient, norm + 1e-6 as in ``FlatParameters.reduce_gradient``; None without clipping."""


def return_range(batch: PPOBatch) -> Tensor:
    """The range of all returns and values, by reward signal. Shape [value heads].

    ε clips values to a share of this range. As a number of reward units, it would freeze the critic of a task with
    large returns. (With a share of the standard deviation, 3dball learns later.) The range includes the values.
    Otherwise a critic that is wrong about a constant return could not change.
    """
    both = torch.cat([batch.return_, batch.old_value])
    return both.amax(dim=0) - both.amin(dim=0)


class _PPOLoss(torch.autograd.Function):
    """PPO's loss for autograd, with its gradient by the network's outputs.

    On minibatches of 64 rows, autograd through densities, ratios and clips costs more than the network itself. This
    form needs a third of the operations. ρ is the probability ratio, z = (a − μ)/σ, and p are the choices'
    probabilities:

        ∂L/∂log π = −ρ A / B   if the unclipped term is the smaller one, else 0
        ∂log π/∂μ = z/σ,   ∂log π/∂log σ = z² − 1,   ∂log π/∂logit = 1[chosen] − p
        ∂H/∂log σ = 1/C,   ∂H/∂logit = −p (log p + H_branch)
        ∂L_V/∂V = 2/(B·signals) · (V − R, or V_clip − R inside the range, or 0 outside: whichever term is larger)
    """

    @staticmethod
    def forward(
        ctx: Any,
        mean: Tensor,
        log_sigma: Tensor,
        logits: Tensor,
        values: Tensor,
        batch: PPOBatch,
        steps: PPOSteps,
        branches: Sequence[int],
    ) -> tuple[Tensor, Tensor]:
        log_prob = torch.zeros_like(batch.advantage)
        entropy = values.new_zeros(())
        ctx.gaussian = ctx.categorical = None
        if mean.shape[1]:
            inverse_sigma = torch.exp(-log_sigma)
            z = (batch.continuous_actions - mean) * inverse_sigma
            log_prob = dist.standard_gaussian_log_prob(z, log_sigma)
            entropy = dist.gaussian_entropy(log_sigma)
            ctx.gaussian = z, inverse_sigma
        if logits.shape[1]:
            log_choices = dist.masked_log_softmax(logits, batch.allowed_actions, branches)
            log_prob = log_prob + dist.categorical_log_prob(log_choices, batch.discrete_actions)
            choices = log_choices.exp()
            surprise = choices * log_choices
            summed, spread = _branch_entropies(surprise, branches)
            entropy = entropy + summed / len(values)
            ctx.categorical = choices, surprise, spread, batch.discrete_actions

        log_ratio = log_prob - batch.old_log_prob
        ratio = log_ratio.exp()
        clipped_ratio = ratio.clamp(1.0 - steps.clip_epsilon, 1.0 + steps.clip_epsilon)
        unclipped, clipped = ratio * batch.advantage, clipped_ratio * batch.advantage
        policy_loss = -torch.minimum(unclipped, clipped).mean()

        error = values - batch.return_
        moved = values - batch.old_value
        kept = torch.clamp(moved, -steps.value_clip_range, steps.value_clip_range)
        squared, clipped_squared = error.square(), (batch.old_value + kept - batch.return_).square()
        value_loss = torch.maximum(squared, clipped_squared).mean()

        ctx.slope = torch.where(unclipped <= clipped, unclipped, 0.0)
        # Outside the range the larger term is constant in V; inside it both terms are equal.
        ctx.error = torch.where((clipped_squared > squared) & (kept != moved), 0.0, error)
        ctx.steps = steps
        clip_fraction = (ratio != clipped_ratio).float().mean()
        parts = torch.stack(
            [policy_loss, value_loss, entropy, clip_fraction, (ratio - 1.0 - log_ratio).mean()]
        )
        ctx.mark_non_differentiable(parts)
        loss = policy_loss + steps.value_coefficient * value_loss - steps.entropy_coefficient * entropy
        return loss, parts

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        rows = len(ctx.slope)
        grad_log_prob = (ctx.slope * (-1.0 / rows)).unsqueeze(1)
        grad_mean = grad_log_sigma = grad_logits = None
        if ctx.gaussian is not None:
            z, inverse_sigma = ctx.gaussian
            grad_mean = grad_log_prob * (z * inverse_sigma)
            grad_log_sigma = (grad_log_prob * (z * z - 1.0)).sum(dim=0)
            grad_log_sigma -= ctx.steps.entropy_coefficient / z.shape[1]
        if ctx.categorical is not None:
            choices, surprise, spread, chosen = ctx.categorical
            grad_logits = (ctx.steps.entropy_coefficient / rows) * (surprise + choices * spread)
            grad_logits -= grad_log_prob * choices
            grad_logits.scatter_add_(1, chosen, grad_log_prob.expand(-1, chosen.shape[1]))
        grad_values = ctx.error * (2.0 * ctx.steps.value_coefficient / ctx.error.numel())
        gradients = [grad_mean, grad_log_sigma, grad_logits, grad_values]
        return (*[None if each is None else each * grad_loss for each in gradients], *[None] * 3)


ppo_loss: Callable[
    [Tensor, Tensor, Tensor, Tensor, PPOBatch, PPOSteps, Sequence[int]], tuple[Tensor, Tensor]
] = _PPOLoss.apply
"""PPO's whole loss, eq. 9 of Schulman et al. 2017 (arXiv:1707.06347): −L^CLIP + c_v L_V − β H.

Arguments: μ [B, C], log σ [C], logits [B, K] before masking and values [B, signals]; batch, steps and branches.

Returns the loss, a scalar, and its parts without gradients, [5]: policy loss, value loss, entropy, fraction of clipped
ratios, approximate KL divergence.
"""


def _branch_entropies(surprise: Tensor, branches: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Entropies of all branches: their sum, a scalar, and each one at its branch's choices. surprise: p log p, [B, K].

    The second result is [B, K], or broadcasts to it.
    """
    if len(branches) == 1:
        entropies = (-surprise).sum(dim=-1, keepdim=True)
        return entropies.sum(), entropies
    parts = torch.split(-surprise, list(branches), dim=-1)
    sums = [part.sum(dim=-1, keepdim=True) for part in parts]
    spread = [entropy.expand_as(part) for entropy, part in zip(sums, parts, strict=True)]
    return torch.cat(sums, dim=-1).sum(), torch.cat(spread, dim=-1)
