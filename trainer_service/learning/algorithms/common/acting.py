"""Acting: one forward pass from observations to action parameters, and a sample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer_service.learning.networks.policies.action_heads import ActionParameters
from trainer_service.learning.rollout.assembler import Decisions
from unity_bridge.steps import Observation

ActionSampler = Callable[[ActionParameters, Tensor | None], tuple[Tensor, Tensor, Tensor]]
"""Samples actions from distributions and action masks: continuous [M, C], discrete [M, branches], ln π [M]."""


class ActionDistribution(Protocol):
    """Distributions of actions by a network's outputs: the likeliest or sampled actions, as from ``ActionHeads``."""

    @property
    def branches(self) -> Sequence[int]: ...

    def most_likely(
        self, parameters: ActionParameters, allowed: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]: ...

    def sample(
        self, parameters: ActionParameters, allowed: Tensor | None, generator: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor]: ...


class ActorNetwork(Protocol):
    """A network that computes action parameters, with or without memory, and its action heads."""

    memory_size: int

    @property
    def actions(self) -> ActionDistribution: ...

    def policy(self, observations: Sequence[Tensor]) -> ActionParameters: ...

    def step(self, observations: Sequence[Tensor], memories: Tensor) -> tuple[ActionParameters, Tensor]: ...


def sample_actions(
    network: ActorNetwork,
    normalize: Callable[[Sequence[Tensor]], Sequence[Tensor]],
    observations: Sequence[Observation],
    allowed_actions: NDArray[np.bool_],
    memories: NDArray[np.float32],
    *,
    device: torch.device,
    sample: ActionSampler,
) -> Decisions:
    """Samples actions for M agents: one array [M, …] per sensor, bool [M, choices], and their memories.

    A network without a critic changes only the policy's part of the memories, which comes first.
    """
    with torch.inference_mode():
        inputs = normalize([to_tensor(sensor, device) for sensor in observations])
        if network.memory_size:
            parameters, kept = network.step(inputs, to_tensor(memories, device))
            rest = memories[:, kept.shape[1] :]
            memories = np.concatenate([to_array(kept), rest], axis=1) if rest.size else to_array(kept)
        else:
            parameters = network.policy(inputs)
        continuous, discrete, log_probs = sample(parameters, allowed_or_none(allowed_actions, device))
        return Decisions(to_array(continuous), to_array(discrete), to_array(log_probs), memories)


def to_tensor(array: NDArray[Any], device: torch.device) -> Tensor:
    """Converts an array to a tensor: on a CPU it shares the array's memory, elsewhere it is a copy."""
    tensor = torch.from_numpy(array)
    return tensor if device.type == "cpu" else tensor.to(device)


def to_array(tensor: Tensor) -> NDArray[Any]:
    """Converts a tensor without gradient to an array: on a CPU it shares the tensor's memory, else it is a copy."""
    array: NDArray[Any] = (tensor if tensor.device.type == "cpu" else tensor.cpu()).numpy()
    return array


def allowed_or_none(allowed: NDArray[np.bool_], device: torch.device) -> Tensor | None:
    """The action mask, bool [B, K]; None if all choices are allowed, which is the usual case."""
    return None if allowed.all() else to_tensor(allowed, device)
