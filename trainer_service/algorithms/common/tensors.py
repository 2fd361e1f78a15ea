"""The way of arrays to where a learner computes, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def to_tensor(array: NDArray[Any], device: torch.device) -> Tensor:
    """On a CPU the array's own memory, elsewhere a copy."""
    tensor = torch.from_numpy(array)
    return tensor if device.type == "cpu" else tensor.to(device)


def to_array(tensor: Tensor) -> NDArray[Any]:
    """Of a tensor without gradient. From a CPU the tensor's own memory, else a copy."""
    array: NDArray[Any] = (tensor if tensor.device.type == "cpu" else tensor.cpu()).numpy()
    return array


def allowed_or_none(allowed: NDArray[np.bool_], device: torch.device) -> Tensor | None:
    """Most often nothing is forbidden, and then there is nothing to mask: None. bool [B, K]"""
    return None if allowed.all() else to_tensor(allowed, device)
