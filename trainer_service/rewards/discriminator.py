"""GAIL's discriminator, which tells an expert's steps from a policy's, with or without a bottleneck."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from trainer_service.config.rewards import GAILSettings
from trainer_service.networks.encoders.encoder import ObservationEncoder
from trainer_service.networks.encoders.layers import kaiming_linear, make_body
from trainer_service.ops.distributions import choice_offsets, one_hot
from unity_bridge.specs import BehaviorSpec

_CODE_SIZE = 128


class DiscriminatorInput(Protocol):
    """Steps as the discriminator takes them, an expert's or a policy's."""

    @property
    def executed_actions(self) -> Tensor: ...

    @property
    def discrete_actions(self) -> Tensor: ...

    @property
    def terminated(self) -> Tensor: ...


class Inputs(NamedTuple):
    """Inputs of the network for B steps, all of them floats that a gradient can be taken by."""

    observations: Sequence[Tensor]
    """One per sensor. Shapes [B, *sensor shape]."""

    actions: Tensor
    """Actions and whether the task ended, where they count: [B, actions + 1], otherwise [B, 0]."""


class Discriminator(nn.Module):
    """ln(D/(1 − D)) of steps, D being how likely they are an expert's.

    Goals are observations like any others to it. Actions come one-hot, or as they were executed; where they count,
    so does whether the task ended with the step: an end is often what sets an expert apart.
    """

    offsets: Tensor

    def __init__(self, spec: BehaviorSpec, settings: GAILSettings) -> None:
        """Raises ValueError where a sensor does not fit the signal's network."""
        super().__init__()
        network, actions = settings.network_settings, spec.action_spec
        self._uses_actions = settings.use_actions
        self._mask_size = actions.mask_size
        offsets = torch.tensor(choice_offsets(actions.discrete_branches), dtype=torch.int64)
        self.register_buffer("offsets", offsets, persistent=False)
        action_size = actions.continuous_size + self._mask_size + 1 if settings.use_actions else 0
        self.encoder = ObservationEncoder(spec.observation_specs, network)
        self.body = make_body(self.encoder.output_size + action_size, network)
        self.bottleneck = Bottleneck(network.hidden_units) if settings.use_vail else None
        features = _CODE_SIZE if settings.use_vail else network.hidden_units
        self.output = kaiming_linear(features, 1, gain=0.2)

    def inputs(self, observations: Sequence[Tensor], steps: DiscriminatorInput) -> Inputs:
        """observations: of the steps, as floats, normalized already."""
        if not self._uses_actions:
            return Inputs(observations, steps.executed_actions[:, :0])
        parts = [steps.executed_actions, steps.terminated.float().unsqueeze(1)]
        if self._mask_size:
            parts.append(one_hot(steps.discrete_actions + self.offsets, self._mask_size))
        return Inputs(observations, torch.cat(parts, dim=1))

    def codes(self, inputs: Inputs) -> Tensor:
        """Returns what the logits depend on: features, or the means of their codes. Shape [B, Z]."""
        encoded = self.encoder.forward(inputs.observations)
        features = self.body.forward(torch.cat([encoded, inputs.actions], dim=1))
        return features if self.bottleneck is None else self.bottleneck.mean.forward(features)

    def logits(self, codes: Tensor) -> Tensor:
        """Logits of D. [B, Z] to [B]."""
        return self.output.forward(codes).squeeze(1)


class Bottleneck(nn.Module):
    """Features as codes with noise, Alemi et al. 2017 (arXiv:1612.00410): what little is let through must count."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.mean = kaiming_linear(features, _CODE_SIZE, gain=0.1)
        self.sigma = nn.Parameter(torch.ones(_CODE_SIZE))

    def noisy(self, means: Tensor, noise: Tensor) -> Tensor:
        """Codes as they are drawn while learning, with noise of deviation 1. All shapes are equal."""
        return torch.addcmul(means, noise, self.sigma)
