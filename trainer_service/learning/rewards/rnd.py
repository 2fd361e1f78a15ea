"""Random network distillation, Burda et al. 2019 (arXiv:1810.12894), with ML-Agents' settings."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainer_service.config.rewards import RNDSettings
from trainer_service.learning.networks.encoders.encoder import Trunk
from trainer_service.learning.networks.shard import SINGLE_RANK, Shard
from trainer_service.learning.rewards.intrinsic import IntrinsicReward
from trainer_service.learning.rewards.transitions import Transitions
from trainer_service.ops.intrinsic import distillation_error
from unity_bridge.specs import BehaviorSpec


class RNDReward(IntrinsicReward):
    """Rewards next observations that are novel.

    A predictor learns the output of a fixed network with random weights. The more often it has seen similar
    observations, the smaller its error.
    """

    name = "rnd"

    def __init__(
        self, spec: BehaviorSpec, settings: RNDSettings, device: torch.device, shard: Shard = SINGLE_RANK
    ) -> None:
        """Raises ValueError where a sensor does not fit the signal's network."""
        self._models = _Models(spec, settings)
        super().__init__(spec, settings, self._models, device, shard)

    def _errors(self, transitions: Transitions) -> Tensor:
        seen = self._seen(transitions.next_observations)
        with torch.no_grad():
            target = self._models.target.forward(seen)
        return distillation_error(self._models.predictor.forward(seen), target)

    def _loss(self, transitions: Transitions) -> tuple[Tensor, dict[str, Tensor]]:
        loss = self._errors(transitions).mean()
        return loss, {"Losses/RND Loss": loss}


class _Models(nn.Module):
    """Two networks of one shape: the target stays as it was born."""

    def __init__(self, spec: BehaviorSpec, settings: RNDSettings) -> None:
        super().__init__()
        self.target = Trunk(spec, settings.network_settings).requires_grad_(False)
        self.predictor = Trunk(spec, settings.network_settings)
