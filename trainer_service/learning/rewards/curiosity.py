"""Curiosity: the intrinsic curiosity module of Pathak et al. 2017 (arXiv:1705.05363), with ML-Agents' settings."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer_service.config.rewards import CuriositySettings
from trainer_service.learning.networks.encoders.encoder import Trunk
from trainer_service.learning.networks.encoders.layers import kaiming_linear, xavier_linear
from trainer_service.learning.networks.shard import SINGLE_RANK, Shard
from trainer_service.learning.rewards.intrinsic import IntrinsicReward
from trainer_service.learning.rewards.transitions import Transitions
from trainer_service.ops.distributions import choice_offsets, one_hot
from trainer_service.ops.intrinsic import forward_error, inverse_error
from unity_bridge.specs import ActionSpec, BehaviorSpec

_UNITS = 256
_FORWARD_WEIGHT, _INVERSE_WEIGHT, _LOSS_WEIGHT = 0.2, 0.8, 10.0


class CuriosityReward(IntrinsicReward):
    """Rewards observations that the forward model predicts badly.

    An inverse model predicts the action from φ(s) and φ(s'), so the encoder φ keeps only features that depend on
    actions. A forward model predicts φ(s') from φ(s) and the action, and its error is the reward.
    """

    name = "curiosity"

    def __init__(
        self,
        spec: BehaviorSpec,
        settings: CuriositySettings,
        device: torch.device,
        shard: Shard = SINGLE_RANK,
    ) -> None:
        """Raises ValueError if the signal's network does not support a sensor."""
        self._models = _Models(spec, settings)
        super().__init__(spec, settings, self._models, device, shard)
        # As in ML-Agents: a step's reward, multiplied by the strength, is at most 1.
        self._most = 1.0 / settings.strength if settings.strength > 0.0 else math.inf

    def _errors(self, transitions: Transitions) -> Tensor:
        features, next_features = self._encoded(transitions)
        actions = self._models.actions(transitions.continuous_actions, transitions.discrete_actions)
        return forward_error(self._models.predict_features(features, actions), next_features)

    def _loss(self, transitions: Transitions) -> tuple[Tensor, dict[str, Tensor]]:
        models, continuous = self._models, transitions.continuous_actions
        features, next_features = self._encoded(transitions)
        actions = models.actions(continuous, transitions.discrete_actions)
        forward = forward_error(models.predict_features(features, actions), next_features).mean()
        guess, logits = models.predict_actions(features, next_features)
        discrete = transitions.discrete_actions + models.offsets
        inverse = inverse_error(guess, continuous, logits, discrete, models.branches).mean()
        loss = _LOSS_WEIGHT * (_FORWARD_WEIGHT * forward + _INVERSE_WEIGHT * inverse)
        return loss, {"Losses/Curiosity Forward Loss": forward, "Losses/Curiosity Inverse Loss": inverse}

    def _encoded(self, transitions: Transitions) -> tuple[Tensor, Tensor]:
        encoder = self._models.encoder
        return (
            encoder.forward(self._seen(transitions.observations)),
            encoder.forward(self._seen(transitions.next_observations)),
        )


class _Models(nn.Module):
    """Encoder, inverse model and forward model."""

    offsets: Tensor

    def __init__(self, spec: BehaviorSpec, settings: CuriositySettings) -> None:
        super().__init__()
        shape: ActionSpec = spec.action_spec
        self.branches = shape.discrete_branches
        self._mask_size = shape.mask_size
        self.register_buffer(
            "offsets", torch.tensor(choice_offsets(self.branches), dtype=torch.int64), persistent=False
        )
        self.encoder = Trunk(spec, settings.network_settings)
        features, action_size = self.encoder.output_size, shape.continuous_size + shape.mask_size
        self.inverse_hidden = kaiming_linear(2 * features, _UNITS)
        self.inverse_output = xavier_linear(_UNITS, action_size)
        self.forward_hidden = kaiming_linear(features + action_size, _UNITS)
        self.forward_output = xavier_linear(_UNITS, features)

    def actions(self, continuous: Tensor, discrete: Tensor) -> Tensor:
        """Concatenates continuous and one-hot discrete actions. Shape [B, continuous size + sum of branches]."""
        if not self.branches:
            return continuous
        return torch.cat([continuous, one_hot(discrete + self.offsets, self._mask_size)], dim=1)

    def predict_features(self, features: Tensor, actions: Tensor) -> Tensor:
        """Predicts φ(s') from φ(s) and the action. Shape [B, F]."""
        hidden = self.forward_hidden.forward(torch.cat([features, actions], dim=1))
        return self.forward_output.forward(functional.silu(hidden))

    def predict_actions(self, features: Tensor, next_features: Tensor) -> tuple[Tensor, Tensor]:
        """Predicts the action between two observations: the continuous part [B, C] and the logits [B, K]."""
        hidden = self.inverse_hidden.forward(torch.cat([features, next_features], dim=1))
        predicted = self.inverse_output.forward(functional.silu(hidden))
        size = predicted.shape[1] - self._mask_size
        return predicted[:, :size], predicted[:, size:]
