"""The choice of the kernel that computes a learner's gradient steps."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import nn

from trainer_service.learning.kernels import fast_paths_allowed
from trainer_service.learning.kernels.compiled.check import checked_library
from trainer_service.learning.kernels.compiled.library import CompiledLibrary, UnavailableError
from trainer_service.learning.kernels.compiled.ppo import CompiledPPO
from trainer_service.learning.kernels.compiled.sac import CompiledSAC
from trainer_service.learning.kernels.mlp_layout import layout_of, soft_layouts
from trainer_service.learning.networks.flat import (
    FlatAdam,
    FlatOptimizer,
    FlatParameters,
)
from trainer_service.learning.networks.policies.soft_actor import SoftActor, SoftCritics
from unity_bridge.specs import ActionSpec
from unity_bridge.throttled_logger import DETAIL

_MOST_THREADS = 4
"""The compiled kernel has two threads at most. With more than this, autograd is faster on large minibatches."""
_WIDEST = 512
"""Most units of SAC's networks. torch is faster with wider ones: it divides products by the sizes of the caches."""
_AUTOGRAD = "by autograd"

_logger = logging.getLogger(__name__)


class Kernel(Protocol):
    """A kernel of gradient steps."""

    name: str
    """As in the log, after "computes the gradient"."""


KernelT = TypeVar("KernelT", bound=Kernel)


class KernelChoice(Generic[KernelT]):
    """A learner's choice of kernel, made at its first update, with its log messages and its checkpoint entry."""

    def __init__(self, make: Callable[[], KernelT | None], behavior: str) -> None:
        """make: returns the kernel, or None to use autograd. behavior: its name in the log."""
        self._make = make
        self._behavior = behavior
        self._chosen: KernelT | None = None
        self._gradients = ""
        """The computation of gradients, as named in the log; empty before the first update."""
        self._until_checkpoint = ""

    @property
    def chosen(self) -> KernelT | None:
        """The learner's kernel; None for autograd. Warns once if the resumed run used another one."""
        if not self._gradients:
            # Chosen at the first update, when the parameters have their final addresses.
            self._chosen = self._make()
            self._gradients = _AUTOGRAD if self._chosen is None else self._chosen.name
            if self._behavior:
                _logger.info(
                    "'%s' computes the gradient of its updates %s.",
                    self._behavior, self._gradients, extra=DETAIL,
                )  # fmt: skip
        if self._until_checkpoint not in ("", self._gradients):
            _logger.warning(
                "Until its checkpoint '%s' computed the gradient of its updates %s: from now on results "
                "differ in their last digits.",
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
    if not _usual(optimizer):
        return None
    layout = layout_of(network, optimizer.parameters)
    if layout is None:
        return None
    if torch.get_num_threads() > _MOST_THREADS and not layout.lstms:
        return None
    library = compiled_library()
    return None if library is None else CompiledPPO(library, layout, optimizer)


def sac_kernel_for(
    policy: SoftActor,
    critics: SoftCritics,
    action_spec: ActionSpec,
    optimizers: Sequence[FlatOptimizer],
    *others: Any,
) -> CompiledSAC | None:
    """Returns the compiled kernel for gradient steps of soft actor-critic; None if autograd must compute them.

    action_spec, optimizers, others: as in ``CompiledSAC``, which has one thread and no other learner ranks.
    """
    alone = all(optimizer.parameters.shard.world == 1 for optimizer in optimizers)
    if not all(map(_usual, optimizers)) or not alone or torch.get_num_threads() > 1:
        return None
    layouts = soft_layouts(policy, critics, [optimizer.parameters for optimizer in optimizers[:2]])
    if layouts is None or layouts[0].heads[0].inputs > _WIDEST:
        return None
    library = compiled_library()
    return None if library is None else CompiledSAC(library, *layouts, action_spec, optimizers, *others)


def _usual(optimizer: FlatOptimizer) -> bool:
    """Whether a kernel may make an optimizer's steps: Adam's, on the CPU."""
    parts = (optimizer, optimizer.parameters, optimizer.rule)
    if not fast_paths_allowed() or tuple(map(type, parts)) != (FlatOptimizer, FlatParameters, FlatAdam):
        return False
    return optimizer.parameters.vector.device.type == "cpu"


@cache
def compiled_library() -> CompiledLibrary | None:
    """Returns the compiled kernel's library. None if there is no valid one; logs the reason once."""
    try:
        return checked_library()
    except UnavailableError as error:
        _logger.info("No compiled kernel: %s. Updates on vectors take 1.5 to six times as long.", error)
        return None
