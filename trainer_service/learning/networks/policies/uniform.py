"""A policy of uniformly random actions, which ignores observations."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from trainer_service.learning.networks.policies.action_heads import ActionParameters
from trainer_service.ops import distributions as dist
from trainer_service.ops.q_learning import random_choices
from unity_bridge.specs import ActionSpec, BehaviorSpec


class UniformHeads:
    """Continuous actions uniform in [−1, 1], discrete actions uniform among the allowed choices."""

    def __init__(self, spec: ActionSpec, stream: torch.Generator) -> None:
        """stream: for sampling the likeliest actions, since all actions are equally likely."""
        self.branches = spec.discrete_branches
        self._stream = stream

    def sample(
        self, parameters: ActionParameters, allowed: Tensor | None, generator: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Returns continuous actions [B, C], discrete ones int64 [B, branches], and joint log-densities [B]."""
        logits = parameters.logits
        if allowed is None:
            allowed = torch.ones_like(logits, dtype=torch.bool)
        continuous = dist.uniform(parameters.mean, -1.0, 1.0, generator)
        discrete = logits.new_empty((len(logits), 0), dtype=torch.int64)
        log_prob = logits.new_full((len(logits),), -math.log(2.0) * continuous.shape[1])
        if self.branches:
            discrete = random_choices(allowed, self.branches, generator)
            for part in torch.split(allowed, list(self.branches), dim=-1):
                log_prob = log_prob - part.sum(dim=-1).clamp(min=1).log()
        return continuous, discrete, log_prob

    def most_likely(
        self, parameters: ActionParameters, allowed: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Samples too, since all actions are equally likely."""
        return self.sample(parameters, allowed, self._stream)


class UniformNetwork(nn.Module):
    """A network without weights, which only stores the sizes of actions."""

    memory_size = policy_memory_size = 0

    def __init__(self, spec: BehaviorSpec, stream: torch.Generator) -> None:
        """stream: see UniformHeads."""
        super().__init__()
        self.actions = UniformHeads(spec.action_spec, stream)
        self._seen = spec.observation_specs[0].size
        self._sizes = (spec.action_spec.continuous_size, spec.action_spec.mask_size)

    def policy(self, observations: Sequence[Tensor]) -> ActionParameters:
        """Returns zeros for every agent. observations: one tensor [B, …] per sensor."""
        # Computed from the observations, so that a traced model has the same rows, with operators that every engine
        # supports.
        nothing = observations[0].reshape(-1, self._seen)[:, :1].float() * 0.0
        mean, logits = (nothing @ nothing.new_zeros((1, size)) for size in self._sizes)
        return ActionParameters(mean, mean.new_zeros(mean.shape[1]), logits)

    def step(self, observations: Sequence[Tensor], memories: Tensor) -> tuple[ActionParameters, Tensor]:
        """Raises ValueError: the policy has no memory."""
        raise ValueError("there is no memory to step on")
