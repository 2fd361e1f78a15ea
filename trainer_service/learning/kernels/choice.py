"""The choice of the kernel that computes PPO's updates of a network."""

from __future__ import annotations

import logging
from functools import cache

import torch
from torch import nn

from trainer_service.learning.kernels import fast_paths_allowed
from trainer_service.learning.kernels.compiled.check import checked_library
from trainer_service.learning.kernels.compiled.library import CompiledLibrary, UnavailableError
from trainer_service.learning.kernels.compiled.ppo import CompiledPPO
from trainer_service.learning.kernels.mlp_layout import layout_of
from trainer_service.learning.networks.flat import FlatAdam, FlatOptimizer, FlatParameters

_MOST_THREADS = 4
"""The compiled kernel has two threads at most. With more than this, autograd is faster on large minibatches."""
_AUTOGRAD = "by autograd"

_logger = logging.getLogger(__name__)


class KernelChoice:
    """A learner's choice of kernel, made at its first update, with its log messages and its checkpoint entry."""

    def __init__(self, network: nn.Module, optimizer: FlatOptimizer | None, behavior: str) -> None:
        """optimizer: of exactly the network's parameters; None to use autograd.

        behavior: its name in the log.
        """
        self._network = network
        self._optimizer = optimizer
        self._behavior = behavior
        self._chosen: CompiledPPO | None = None
        self._gradients = ""
        """The computation of gradients, as named in the log; empty before the first update."""
        self._until_checkpoint = ""

    @property
    def chosen(self) -> CompiledPPO | None:
        """The learner's kernel; None for autograd. Warns once if the resumed run used another one."""
        if not self._gradients:
            # Chosen at the first update, when the parameters have their final addresses.
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
        """The computation of gradients, for a checkpoint; empty before the first update of a new run."""
        return self._gradients or self._until_checkpoint

    def load(self, state: str) -> None:
        """Loads the checkpoint's entry, which is compared at the next update."""
        self._until_checkpoint = state


def kernel_for(network: nn.Module, optimizer: FlatOptimizer) -> CompiledPPO | None:
    """Returns the compiled kernel for PPO's updates of a network; None if autograd must compute them.

    Subclasses of the network or its parts may compute something else, so they have no kernel.
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
    """Returns the compiled kernel's library. None if there is no valid one; logs the reason once."""
    try:
        return checked_library()
    except UnavailableError as error:
        _logger.info("No compiled kernel: %s. Updates on vectors take two to six times as long.", error)
        return None
