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
_AUTOGRAD = "by autograd"

_logger = logging.getLogger(__name__)


class KernelChoice:
    """The choice at a learner's first update, what the log says of it, and what its checkpoints say."""

    def __init__(self, network: nn.Module, optimizer: FlatOptimizer | None, behavior: str) -> None:
        """optimizer: of all parameters of the network and nothing else; None where no kernel is wanted.

        behavior: its name in the log.
        """
        self._network = network
        self._optimizer = optimizer
        self._behavior = behavior
        self._chosen: CompiledPPO | None = None
        self._gradients = ""
        """How gradients are computed, in the words of the log; empty before the first update."""
        self._until_checkpoint = ""

    @property
    def chosen(self) -> CompiledPPO | None:
        """The one for this learner, None for autograd; where the run that goes on here had another, says so once."""
        if not self._gradients:
            # Not before the first update: then all parameters lie where they will stay.
            if self._optimizer is not None:
                self._chosen = kernel_for(self._network, self._optimizer)
            self._gradients = _AUTOGRAD if self._chosen is None else self._chosen.name
            if self._behavior:
                _logger.info("'%s' computes the gradient of its updates %s.", self._behavior, self._gradients)
        if self._until_checkpoint not in ("", self._gradients):
            _logger.warning(
                "Until its checkpoint '%s' computed the gradient of its updates %s. It goes on, but not bit for bit as "
                "there.",
                self._behavior,
                self._until_checkpoint,
            )
        self._until_checkpoint = ""
        return self._chosen

    def state(self) -> str:
        """How gradients are computed, for a checkpoint; empty before the first update of all."""
        return self._gradients or self._until_checkpoint

    def load(self, state: str) -> None:
        """Continues a run whose checkpoint says so."""
        self._until_checkpoint = state


def kernel_for(network: nn.Module, optimizer: FlatOptimizer) -> CompiledPPO | None:
    """The compiled kernel for PPO's updates of a network; None where autograd has to compute them.

    Classes derived from the network or its parts may do something else, so they have no kernel.
    """
    parts = (optimizer, optimizer.parameters, optimizer.rule)
    if not fast_paths_allowed() or tuple(map(type, parts)) != (FlatOptimizer, FlatParameters, FlatAdam):
        return None
    if optimizer.parameters.vector.device.type != "cpu":
        return None
    layout = layout_of(network, optimizer.parameters)
    if layout is None:
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
