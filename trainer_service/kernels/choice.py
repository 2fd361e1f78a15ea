"""The choice of the kernel that computes PPO's updates of a network."""

from __future__ import annotations

import logging
from functools import cache

import torch
from torch import nn

from trainer_service.kernels import fast_paths_allowed
from trainer_service.kernels.compiled.check import checked_library
from trainer_service.kernels.compiled.library import CompiledLibrary, UnavailableError
from trainer_service.kernels.compiled.ppo import CompiledPPO
from trainer_service.kernels.mlp_layout import layout_of
from trainer_service.networks.flat import FlatAdam, FlatOptimizer, FlatParameters

_MOST_THREADS = 4
"""The compiled kernel has one thread. With more threads than this, autograd is faster on large minibatches."""

_logger = logging.getLogger(__name__)


def kernel_for(network: nn.Module, optimizer: FlatOptimizer) -> CompiledPPO | None:
    """The compiled kernel for PPO's updates of a network; None where autograd has to compute them.

    optimizer: of all parameters of the network, and nothing else. Classes derived from it or its parts may do
    something else, so they have no kernel.
    """
    parts = (optimizer, optimizer.parameters, optimizer.adam)
    if not fast_paths_allowed() or tuple(map(type, parts)) != (FlatOptimizer, FlatParameters, FlatAdam):
        return None
    layout = layout_of(network, optimizer.parameters)
    if layout is None or optimizer.parameters.vector.device.type != "cpu":
        return None
    if torch.get_num_threads() > _MOST_THREADS and not layout.lstms:
        return None
    library = compiled_library()
    return None if library is None else CompiledPPO(library, layout, optimizer)


@cache
def compiled_library() -> CompiledLibrary | None:
    """The compiled kernel's library, None where there is none fit for use; says once why there is none."""
    try:
        return checked_library()
    except UnavailableError as error:
        _logger.info("No compiled kernel: %s. Updates on vectors take two to six times as long.", error)
        return None
