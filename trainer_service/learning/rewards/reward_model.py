"""The base of reward sources that learn: a network with its optimizer and its observation statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainer_service.config.rewards import GAILSettings, IntrinsicSettings
from trainer_service.learning.networks.encoders.layers import observations_as_floats, rows_at_once
from trainer_service.learning.networks.encoders.normalizer import ObservationNormalizer
from trainer_service.learning.networks.flat import FlatAdam, FlatParameters
from trainer_service.learning.networks.shard import Shard
from unity_bridge.specs import BehaviorSpec


class RewardModel:
    """A reward source with a network of its own, which learns by Adam with a constant learning rate."""

    learns = True

    def __init__(
        self,
        spec: BehaviorSpec,
        settings: IntrinsicSettings | GAILSettings,
        network: nn.Module,
        device: torch.device,
        shard: Shard,
    ) -> None:
        self.strength = settings.strength
        self.gamma = settings.gamma
        self._learning_rate = settings.learning_rate
        self._device = device
        self._shard = shard
        self._network = network.to(device)
        self._normalizer = ObservationNormalizer(
            spec.observation_specs, normalize=settings.network_settings.normalize
        ).to(device)
        self._parameters = FlatParameters(
            (each for each in network.parameters() if each.requires_grad), shard
        )
        self._optimizer = FlatAdam(self._parameters)
        self._chunk = rows_at_once(network)

    def _minimize(self, loss: Tensor, statistics: Mapping[str, Tensor], share: float) -> dict[str, Tensor]:
        """Makes one step of Adam. Returns the statistics, weighted by this rank's share of the minibatch."""
        self._parameters.gradient.zero_()
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no types here
        self._parameters.reduce_gradient(share)
        self._optimizer.step(self._learning_rate)
        return {tag: self._shard.weighted(value.detach(), share) for tag, value in statistics.items()}

    def state_dict(self) -> dict[str, Any]:
        """Network, observation statistics and optimizer."""
        return {
            "network": self._network.state_dict(),
            "normalizer": self._normalizer.state_dict(),
            "optimizer": self._optimizer.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the state. Raises KeyError, RuntimeError or ValueError if it does not fit."""
        self.load_weights(state)
        self._optimizer.load_state_dict(state["optimizer"])

    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Loads the network and statistics, without the optimizer's moments."""
        self._network.load_state_dict(state["network"])
        self._normalizer.load_state_dict(state["normalizer"])

    def _seen(self, observations: Sequence[Tensor]) -> list[Tensor]:
        """Converts observations to the network's inputs."""
        return observations_as_floats(self._normalizer.forward(observations))

    def _tensors(self, arrays: Sequence[NDArray[Any]]) -> list[Tensor]:
        return [torch.from_numpy(array).to(self._device) for array in arrays]
