"""Tensors and plain values, as files of them hold, and their comparison."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

_TYPES = (
    torch.float64, torch.float32, torch.float16, torch.bfloat16,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
)  # fmt: skip

PLAIN_VALUES: Mapping[str, Any] = {
    "texts": ["", "x" * 300, "Größe \udc80", "$"],
    "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, (2, [3]))],
    "nested": {"a": {1: [{"b": ({},)}]}, "c": {None: 1, 2.5: 2}},
    "types": [torch.arange(4).to(kind) for kind in _TYPES],
    "flags": torch.tensor([True, False]),
    "shapes": [torch.tensor(3.5), torch.zeros(0), torch.zeros(2, 0, 3), torch.arange(6).view(2, 3).t()],
    "part": torch.arange(10)[2:8:2],
    "parameter": torch.nn.Parameter(torch.ones(2)),
}


def same(ours: Any, theirs: Any) -> bool:
    """Whether both are equal in types, order of keys, and every bit."""
    if isinstance(theirs, torch.Tensor):
        return ours.dtype == theirs.dtype and ours.shape == theirs.shape and torch.equal(ours, theirs)
    if isinstance(theirs, dict):
        return list(ours) == list(theirs) and all(same(ours[key], theirs[key]) for key in theirs)
    if isinstance(theirs, list | tuple):
        return type(ours) is type(theirs) and len(ours) == len(theirs) and all(map(same, ours, theirs))
    return type(ours) is type(theirs) and repr(ours) == repr(theirs)
