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
    """An algorithm, or a frozen policy of one: whatever can act."""

    def act(
        self,
        observations: Sequence[Observation],
        allowed_actions: NDArray[np.bool_],
        memories: NDArray[np.float32],
        *,
        deterministic: bool,
    ) -> Decisions: ...


def without_critic(network: PolicyNetwork) -> PolicyNetwork:
    """The network, less what only learning needs."""
    if isinstance(network.network, ActorCritic):
        network.network.critic = None
    return network


class FrozenPolicy:
    """A policy that acts as its algorithm does, with weights that are loaded into it."""

    def __init__(self, network: PolicyNetwork, device: torch.device, generator: torch.Generator) -> None:
        """network: without a critic; generator: the random stream that actions are drawn from."""
        self._network = network.to(device)
        self._device = device
        self._generator = generator

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
            self._network.inputs,
            observations,
            allowed_actions,
            memories,
            device=self._device,
            sample=heads.most_likely if deterministic else partial(heads.sample, generator=self._generator),
        )
