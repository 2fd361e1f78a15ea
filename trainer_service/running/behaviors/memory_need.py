"""The memory that a behavior's networks need, computed before creating them, and the available memory."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from trainer_service.config import TrainerSettings
from trainer_service.learning.algorithms import Compute, make_learner
from trainer_service.learning.algorithms.common.observation_selection import selector_for, with_sharing
from unity_bridge.specs import BehaviorSpec

_META = torch.device("meta")
"""The device of tensors that have a shape and no numbers."""

_SAME = {Tensor.normal_, Tensor.uniform_, Tensor.mul, Tensor.__mul__, Tensor.log}
"""Functions whose result has the shape of their first argument."""
_LIKE = {torch.zeros_like, torch.ones_like, torch.empty_like}

_logger = logging.getLogger(__name__)


class _ShapesOnly(TorchFunctionMode):
    """A torch mode for the meta device that computes the result shapes of initialization functions.

    For these functions, torch would load its compiler first, which takes seconds and a hundred megabytes.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Calls all other functions normally."""
        if func in _SAME and not any(isinstance(other, Tensor) for other in args[1:]):
            return args[0]
        if func in _LIKE:
            return args[0].new_empty(args[0].shape)
        if func is torch.randn:
            return torch.empty(*args, **(kwargs or {}))
        if func is torch.eye:
            return torch.empty(args[0], args[0])
        if func is torch.cat and args[0][0].dim() == 1:
            return args[0][0].new_empty(sum(len(part) for part in args[0]))
        if func is torch.stack and not kwargs:
            return args[0][0].new_empty(len(args[0]), *args[0][0].shape)
        return func(*args, **(kwargs or {}))


def memory_need(spec: BehaviorSpec, settings: TrainerSettings) -> int:
    """Returns the bytes of a behavior's networks, with the state of their optimizers.

    Makes the learner on the meta device, which takes milliseconds for any shapes. Returns 0 if that fails: the
    settings do not fit the behavior, or a plugin needs numbers.
    """
    settings = with_sharing(settings, spec)
    try:
        with _META, _ShapesOnly():
            learner = make_learner(selector_for(spec, settings).spec, settings, Compute(_META, 0))
    except Exception as error:  # creating the learner later reports the reason
        _logger.debug("The networks of a behavior could not be counted:", exc_info=error)
        return 0
    return sum({id(storage): storage.nbytes() for storage in _storages(learner)}.values())


def available_memory(device: torch.device) -> int:
    """Returns the bytes that this process can still allocate: on its GPU, or on the machine or in the container.

    If the free memory is unknown, half of the machine's memory; if that is unknown too, 4 GiB.
    """
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    found = [*_of_machine(), *_of_container()]
    return min(found) if found else 4 * 2**30


def _storages(learner: object) -> Iterator[torch.UntypedStorage]:
    """Yields the storages of all tensors that an object references. A storage may occur more than once."""
    waiting: list[Any] = [learner]
    seen: dict[int, Any] = {}
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen[id(each)] = each  # so that no other object gets its id
        if isinstance(each, Tensor):
            storage = each.untyped_storage()
            seen[id(storage)] = storage
            yield storage
        elif isinstance(each, Mapping):
            waiting += each.values()
        elif isinstance(each, list | tuple | set | frozenset):
            waiting += each
        elif isinstance(each, torch.nn.Module) or not (isinstance(each, type) or callable(each)):
            waiting += getattr(each, "__dict__", {}).values()
            waiting += [
                getattr(each, name) for name in getattr(type(each), "__slots__", ()) if hasattr(each, name)
            ]


def _of_machine(meminfo: Path = Path("/proc/meminfo")) -> list[int]:
    """Returns the free memory of the machine; empty if it is unknown."""
    try:
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return [int(line.split()[1]) * 1024]
    except (OSError, ValueError, IndexError):
        pass
    try:
        return [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2]
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return []


def _of_container(group: Path = Path("/sys/fs/cgroup")) -> list[int]:
    """Returns the free memory under a container's limit; empty without a limit."""
    try:
        most, used = ((group / f"memory.{name}").read_text().strip() for name in ("max", "current"))
        return [] if most == "max" else [max(int(most) - int(used), 0)]
    except (OSError, ValueError):
        return []
