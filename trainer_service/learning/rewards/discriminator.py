"""GAIL's discriminator of expert and policy steps, with an optional bottleneck."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from trainer_service.config.rewards import GAILSettings
from trainer_service.learning.networks.encoders.encoder import ObservationEncoder
from trainer_service.learning.networks.encoders.layers import kaiming_linear, make_body
from trainer_service.ops.distributions import choice_offsets, one_hot
from unity_bridge.specs import BehaviorSpec

_CODE_SIZE = 128


class DiscriminatorInput(Protocol):
    """Steps of an expert or a policy, as the discriminator takes them."""

    @property
    def executed_actions(self) -> Tensor: ...

    @property
    def discrete_actions(self) -> Tensor: ...

    @property
    def terminated(self) -> Tensor: ...


class Inputs(NamedTuple):
    """Inputs of the network for B steps. All are floats, so gradients by them exist."""

    observations: Sequence[Tensor]
    """One per sensor. Shapes [B, *sensor shape]."""

    actions: Tensor
    """Actions and the termination flag with ``use_actions``: [B, actions + 1]; otherwise [B, 0]."""


class Discriminator(nn.Module):
    """Computes the logits ln(D/(1 − D)) of steps. D is the probability that a step is an expert's.

    Goals are ordinary observations. With ``use_actions``, discrete actions are one-hot, continuous actions are those
    executed, and the termination flag is an input too: terminations often distinguish an expert from a policy.
    """

    offsets: Tensor

    def __init__(self, spec: BehaviorSpec, settings: GAILSettings) -> None:
        """Raises ValueError if the signal's network does not support a sensor."""
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
        """Builds the network's inputs. observations: of the steps, as normalized floats."""
        if not self._uses_actions:
            return Inputs(observations, steps.executed_actions[:, :0])
        parts = [steps.executed_actions, steps.terminated.float().unsqueeze(1)]
        if self._mask_size:
            parts.append(one_hot(steps.discrete_actions + self.offsets, self._mask_size))
        return Inputs(observations, torch.cat(parts, dim=1))

    def codes(self, inputs: Inputs) -> Tensor:
        """Returns the features, or with a bottleneck the means of their codes. Shape [B, Z]."""
        encoded = self.encoder.forward(inputs.observations)
        features = self.body.forward(torch.cat([encoded, inputs.actions], dim=1))
        return features if self.bottleneck is None else self.bottleneck.mean.forward(features)

    def logits(self, codes: Tensor) -> Tensor:
        """Returns the logits of D. [B, Z] to [B]."""
        return self.output.forward(codes).squeeze(1)


class Bottleneck(nn.Module):
    """A variational bottleneck, Alemi et al. 2017 (arXiv:1612.00410): it encodes features as noisy codes."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.mean = kaiming_linear(features, _CODE_SIZE, gain=0.1)
        self.sigma = nn.Parameter(torch.ones(_CODE_SIZE))

    def noisy(self, means: Tensor, noise: Tensor) -> Tensor:
        """Samples codes for training. noise: of standard deviation 1. All shapes are equal."""
        return torch.addcmul(means, noise, self.sigma)
