"""A policy that acts with weights which are not learned any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from trainer_service.algorithms.common.acting import sample_actions
from trainer_service.algorithms.common.policy_network import PolicyNetwork
from trainer_service.networks.policies.actor_critic import ActorCritic
from trainer_service.rollout.assembler import Decisions
from unity_bridge.steps import Observation


class ActingPolicy(Protocol):
    """Who decides: an algorithm, or a frozen policy of its."""

    def act(
        self,
        observations: Sequence[Observation],
        allowed_actions: NDArray[np.bool_],
        memories: NDArray[np.float32],
        *,
        deterministic: bool,
    ) -> Decisions: ...


def without_critic(network: PolicyNetwork) -> PolicyNetwork:
    """The same, less what only learning needs."""
    if isinstance(network.network, ActorCritic):
        network.network.critic = None
    return network


class FrozenPolicy:
    """Decides as an algorithm does, with weights that somebody else has chosen."""

    def __init__(self, network: PolicyNetwork, device: torch.device, noise: torch.Generator) -> None:
        """network: without a critic; noise: what actions are drawn with."""
        self._network = network.to(device)
        self._device = device
        self._noise = noise

    def load(self, weights: Mapping[str, Any]) -> None:
        """Acts with these from now on: a ``state_dict`` of such a network."""
        self._network.load_state_dict(weights)

    def act(
        self,
        observations: Sequence[Observation],
        allowed_actions: NDArray[np.bool_],
        memories: NDArray[np.float32],
        *,
        deterministic: bool,
    ) -> Decisions:
        """Decides for M agents in one forward pass. Of what they remember only the policy's part changes."""
        network = self._network.network
        heads = network.actions
        return sample_actions(
            network,
            self._network.seen,
            observations,
            allowed_actions,
            memories,
            device=self._device,
            sample=heads.most_likely if deterministic else partial(heads.sample, generator=self._noise),
        )
