"""A policy that acts with weights which are not learned any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer_service.algorithms.policy_network import PolicyNetwork
from trainer_service.networks.actor_critic import ActorCritic
from trainer_service.rollout.assembler import Decisions
from unity_bridge.steps import Observation


class Actor(Protocol):
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
        with torch.inference_mode():
            inputs = [self._tensor(sensor) for sensor in observations]
            if size := self._network.memory_size:
                parameters, kept = self._network.step(inputs, self._tensor(memories[:, :size]))
                memories = np.concatenate([_array(kept), memories[:, size:]], axis=1)
            else:
                parameters = self._network.forward(inputs)
            # Most often nothing is forbidden, and then there is nothing to mask.
            allowed = None if allowed_actions.all() else self._tensor(allowed_actions)
            heads = self._network.network.actions
            if deterministic:
                continuous, discrete, log_probs = heads.most_likely(parameters, allowed)
            else:
                continuous, discrete, log_probs = heads.sample(parameters, allowed, self._noise)
            return Decisions(_array(continuous), _array(discrete), _array(log_probs), memories)

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self._device)


def _array(tensor: Tensor) -> NDArray[Any]:
    array: NDArray[Any] = tensor.cpu().numpy()
    return array
