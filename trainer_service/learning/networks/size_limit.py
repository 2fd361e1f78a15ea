"""A limit on the size of networks, for settings from a file of unknown origin."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

_TIMES, _NUMBERS, _TENSORS = 2, 2**22, 2_000
"""New tensors may be this many times as large as the existing ones, plus a constant for small networks."""

_SIZED = {torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn, torch.eye}
_SIZED_LIKE = {Tensor.new_empty, Tensor.new_zeros, Tensor.new_ones, Tensor.new_full}


class SizeLimit(TorchFunctionMode):
    """A torch mode that limits new tensors to a small multiple of existing ones.

    Tensors are counted before their creation, so networks of a billion units cost nothing.
    """

    def __init__(self, state: Mapping[str, Any]) -> None:
        """state: the existing tensors, at any depth."""
        super().__init__()
        tensors = list(_tensors(state))
        self._numbers = _TIMES * sum(tensor.numel() for tensor in tensors) + _NUMBERS
        self._tensors = _TIMES * len(tensors) + _TENSORS

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Raises ValueError if the limit would be exceeded."""
        if func in _SIZED or func in _SIZED_LIKE:
            self._tensors -= 1
            self._numbers -= _size(args[1:] if func in _SIZED_LIKE else args, kwargs or {}, func is torch.eye)
            if self._numbers < 0 or self._tensors < 0:
                raise ValueError("its settings describe networks that are far larger than its weights")
        return func(*args, **(kwargs or {}))


def _size(args: Sequence[Any], named: Mapping[str, Any], square: bool) -> int:
    """Returns the numbers in a tensor of ``empty(2, 3)``, ``empty((2, 3))`` or ``empty(size=(2, 3))``."""
    sizes = args or [named.get("size", ())]
    shape = sizes[0] if isinstance(sizes[0], Sequence) else [each for each in sizes if isinstance(each, int)]
    numbers = math.prod(shape)
    return numbers * numbers if square and len(shape) == 1 else numbers


def _tensors(state: Any) -> Any:
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, Mapping):
        for part in state.values():
            yield from _tensors(part)
    elif isinstance(state, list | tuple):
        for part in state:
            yield from _tensors(part)
