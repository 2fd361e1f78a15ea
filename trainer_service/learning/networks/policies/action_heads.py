"""Action heads: layers that map a policy's features to distributions of actions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from trainer_service.learning.networks.encoders.layers import kaiming_linear
from trainer_service.ops import distributions as dist
from unity_bridge.specs import ActionSpec

SQUASH_LIMIT = 3.0
"""Continuous actions are sent as clip(a, −3, 3)/3, so that a unit Gaussian covers [−1, 1]."""


def clip_actions(continuous: Tensor) -> Tensor:
    """Continuous actions for the simulator: clip(a, −3, 3)/3. Shape kept."""
    return continuous.clamp(-SQUASH_LIMIT, SQUASH_LIMIT) / SQUASH_LIMIT


class ActionParameters(NamedTuple):
    """Parameters of the action distribution for B agents. Tensors of absent kinds of actions are empty."""

    mean: Tensor
    """[B, continuous size]"""

    log_sigma: Tensor
    """[continuous size], independent of the observation."""

    logits: Tensor
    """Logits of every choice before masking, branches concatenated. [B, sum of branches]"""

    has_continuous: Tensor | None = None
    """1 for continuous actions that the agent has. 0 for actions that only other members of its group have; their mean
    and log σ are 0. [B, continuous size]; None if all agents have all of them."""


def in_every_row(log_sigma: Tensor | float, means: Tensor) -> Tensor:
    """Returns log σ for each of the means, in their shape. log_sigma: one number, or of shape [C] or [..., C]."""
    # A sum instead of ``expand_as`` or ``full_like``: in an exported model these take their shape from another tensor
    # at run time, which Unity's older inference engines do not support.
    return means.detach() * 0.0 + log_sigma


class ActionDistributions(nn.Module):
    """Gaussians, and a categorical per branch. Continuous actions that an agent lacks are 0 and never count."""

    offsets: Tensor
    """The index of each branch's first choice among all. int64 [branches]"""

    def __init__(self, spec: ActionSpec) -> None:
        super().__init__()
        self.branches: Sequence[int] = spec.discrete_branches
        self._is_continuous = spec.continuous_size > 0
        offsets = torch.tensor(dist.choice_offsets(self.branches), dtype=torch.int64)
        self.register_buffer("offsets", offsets, persistent=False)

    def sample(
        self, parameters: ActionParameters, allowed: Tensor | None, generator: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Samples actions. allowed: bool [B, sum of branches], or None if everything is allowed.

        Returns continuous actions [B, C] before squashing, choices int64 [B, branches], and the joint
        log-probability of each row [B].
        """
        continuous, log_sigma = parameters.mean, parameters.log_sigma
        log_prob: Tensor | None = None
        if self._is_continuous:
            noise = dist.standard_normal(continuous, generator)
            continuous = torch.addcmul(continuous, noise, log_sigma.exp())
            if parameters.has_continuous is not None:
                continuous = continuous * parameters.has_continuous
            log_prob = dist.standard_gaussian_log_prob(noise, log_sigma, parameters.has_continuous)
        if not self.branches:
            discrete = self._no_discrete(parameters)
        else:
            log_choices = dist.masked_log_softmax(parameters.logits, allowed, self.branches)
            discrete = dist.sample_categorical(log_choices, self.branches, generator)
            chosen = dist.categorical_log_prob(log_choices, discrete + self.offsets)
            log_prob = chosen if log_prob is None else log_prob + chosen
        return continuous, discrete, continuous.new_zeros(len(continuous)) if log_prob is None else log_prob

    def most_likely(
        self, parameters: ActionParameters, allowed: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the likeliest actions: the mean, and each branch's likeliest choice. Shapes as for ``sample``."""
        discrete = self._no_discrete(parameters)
        if self.branches:
            log_choices = dist.masked_log_softmax(parameters.logits, allowed, self.branches)
            discrete = dist.greedy_categorical(log_choices, self.branches)
        return parameters.mean, discrete, self.log_prob(parameters, allowed, parameters.mean, discrete)

    def log_prob(
        self, parameters: ActionParameters, allowed: Tensor | None, continuous: Tensor, discrete: Tensor
    ) -> Tensor:
        """Joint log-probability over all dimensions and branches. Shape [B]."""
        log_prob = parameters.mean.new_zeros(len(parameters.mean))
        if self._is_continuous:
            log_prob = dist.gaussian_log_prob(
                continuous, parameters.mean, parameters.log_sigma, parameters.has_continuous
            )
        if self.branches:
            log_choices = dist.masked_log_softmax(parameters.logits, allowed, self.branches)
            log_prob = log_prob + dist.categorical_log_prob(log_choices, discrete + self.offsets)
        return log_prob

    def entropy(self, parameters: ActionParameters, allowed: Tensor | None) -> Tensor:
        """Mean entropy over the batch, in ML-Agents' scale (see ops.distributions). A scalar."""
        entropy = parameters.mean.new_zeros(())
        if self._is_continuous:
            entropy = entropy + dist.gaussian_entropy(parameters.log_sigma, parameters.has_continuous)
        if self.branches:
            log_choices = dist.masked_log_softmax(parameters.logits, allowed, self.branches)
            entropy = entropy + dist.categorical_entropy(log_choices).mean()
        return entropy

    def kl_divergence(self, old: ActionParameters, new: ActionParameters, allowed: Tensor | None) -> Tensor:
        """KL divergence from older distributions of the same rows, KL(old ‖ new), over all actions. Shape [B]."""
        divergence = new.mean.new_zeros(len(new.mean))
        if self._is_continuous:
            divergence = dist.gaussian_kl(
                old.mean, old.log_sigma, new.mean, new.log_sigma, new.has_continuous
            )
        if self.branches:
            before, after = (
                dist.masked_log_softmax(each.logits, allowed, self.branches) for each in (old, new)
            )
            divergence = divergence + dist.categorical_kl(before, after)
        return divergence

    def squared_error(
        self, parameters: ActionParameters, target: Tensor, noise: Callable[[Tensor], Tensor]
    ) -> Tensor | None:
        """The expected squared error of each executed action: E[(a − target)²] = (μ/3 − target)² + (σ/3)².

        Clipping is ignored, since means beyond the limit would have no gradient. target: [B, C], in [−1, 1]. Returns
        [B, C], or None without continuous actions. Nothing is sampled.
        """
        if not self._is_continuous:
            return None
        spread = (parameters.log_sigma.exp() / SQUASH_LIMIT).square()
        return (parameters.mean / SQUASH_LIMIT - target).square() + spread

    @staticmethod
    def _no_discrete(parameters: ActionParameters) -> Tensor:
        return torch.empty((len(parameters.mean), 0), dtype=torch.int64, device=parameters.mean.device)


class ActionHeads(ActionDistributions):
    """The layers that compute the parameters. A Gaussian's deviation is a parameter, independent of observations."""

    def __init__(self, features: int, spec: ActionSpec) -> None:
        super().__init__(spec)
        self.mean = kaiming_linear(features, spec.continuous_size, gain=0.2) if spec.continuous_size else None
        self.log_sigma = nn.Parameter(torch.zeros(spec.continuous_size)) if spec.continuous_size else None
        self.logits = kaiming_linear(features, spec.mask_size, gain=0.1) if self.branches else None

    def forward(self, features: Tensor) -> ActionParameters:
        """features: [B, F]."""
        absent = features[:, :0]
        mean, log_sigma, logits = absent, features.new_empty(0), absent
        if self.mean is not None and self.log_sigma is not None:
            mean, log_sigma = self.mean.forward(features), self.log_sigma
        if self.logits is not None:
            logits = self.logits.forward(features)
        return ActionParameters(mean, log_sigma, logits)


def set_log_std(policy: nn.Module, log_std: float) -> None:
    """Sets ln σ of all continuous actions of a policy. σ is in units of the simulator's actions in [−1, 1]."""
    for heads in policy.modules():
        if isinstance(heads, ActionHeads) and heads.log_sigma is not None:
            nn.init.constant_(heads.log_sigma, log_std + math.log(SQUASH_LIMIT))
