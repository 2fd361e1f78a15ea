"""A network's slower self, for targets that do not run away from who learns them."""

from __future__ import annotations

import copy
from typing import Generic, TypeVar

from torch import nn

from trainer_service.networks.flat import FlatParameters

Network = TypeVar("Network", bound=nn.Module)


class Target(Generic[Network]):
    """A copy of a network that follows it."""

    def __init__(self, network: Network) -> None:
        self.network = copy.deepcopy(network).requires_grad_(False)
        self._vector = FlatParameters(self.network.parameters()).vector

    def soft_update(self, online: FlatParameters, tau: float) -> None:
        """θ' ← θ' + τ (θ − θ'); with a τ of 1 a copy, with 0 nothing. online: of the network that it is a copy of."""
        if tau == 1.0:
            self._vector.copy_(online.vector)
        elif tau:
            self._vector.lerp_(online.vector, tau)
