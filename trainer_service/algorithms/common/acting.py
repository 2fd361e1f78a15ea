"""Acting: one forward pass from what agents see to the parameters of their actions, and a draw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer_service.networks.policies.action_heads import ActionParameters
from trainer_service.rollout.assembler import Decisions
from unity_bridge.steps import Observation

ActionSampler = Callable[[ActionParameters, Tensor | None], tuple[Tensor, Tensor, Tensor]]
"""A choice from distributions and what is allowed: continuous actions [M, C], choices [M, branches], ln π [M]."""


class ActorNetwork(Protocol):
    """A network that gives the parameters of actions, with memory or without."""

    memory_size: int

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
    """Decides for M agents: one array [M, …] per sensor, bool [M, choices], and what they remember.

    A network without a critic changes only the policy's part of what they remember, which comes first.
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
    """The array as a tensor: on a CPU its own memory, elsewhere a copy."""
    tensor = torch.from_numpy(array)
    return tensor if device.type == "cpu" else tensor.to(device)


def to_array(tensor: Tensor) -> NDArray[Any]:
    """A tensor without gradient as an array: from a CPU the tensor's own memory, else a copy."""
    array: NDArray[Any] = (tensor if tensor.device.type == "cpu" else tensor.cpu()).numpy()
    return array


def allowed_or_none(allowed: NDArray[np.bool_], device: torch.device) -> Tensor | None:
    """The mask of allowed choices, bool [B, K]; None where nothing is forbidden, which is most often."""
    return None if allowed.all() else to_tensor(allowed, device)
