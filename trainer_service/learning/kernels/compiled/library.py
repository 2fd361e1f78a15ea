"""The compiled library: its file, the match with the source, and the instruction sets that this processor has."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from ctypes import POINTER, Structure, c_double, c_int, c_int64, c_uint32, c_void_p
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from trainer_service.learning.kernels.compiled import build

_NAMES = {"neon": (1, "NEON"), "avx2": (2, "AVX2"), "avx512": (4, "AVX-512")}
"""The bit of each instruction set in the result of the library's ``instruction_sets``, and its name; slow to fast."""

_COMMAND = "python -m trainer_service.learning.kernels.compiled.build"


class UnavailableError(Exception):
    """There is no compiled kernel here. The message is one line."""


class Layer(Structure):
    """``Layer`` of network.h."""

    _fields_: ClassVar = [(name, c_int64) for name in ("weight", "bias", "inputs", "outputs")]


class Lstm(Structure):
    """``Lstm`` of network.h."""

    _fields_: ClassVar = [("from_features", Layer), ("from_memory", Layer)]


class Network(Structure):
    """``Network`` of network.h."""

    _fields_: ClassVar = [
        ("parameters", c_int64),
        ("depth", c_int64),
        ("actor", POINTER(Layer)),
        ("critic", POINTER(Layer)),
        ("heads", Layer * 3),
        ("lstms", POINTER(Lstm)),
        ("log_sigma", c_int64),
        ("branches", c_int64),
        ("choices", POINTER(c_int64)),
    ]


class Sequences(Structure):
    """``Sequences`` of network.h."""

    _fields_: ClassVar = [
        ("steps", c_int64),
        ("active", c_void_p),
        ("memories", c_void_p),
        ("memory_size", c_int64),
    ]


class Rows(Structure):
    """``Rows`` of ppo_update.c."""

    _fields_: ClassVar = [
        ("observations", c_void_p),
        ("continuous_actions", c_void_p),
        ("discrete_actions", c_void_p),
        ("allowed_actions", c_void_p),
        ("old_log_prob", c_void_p),
        ("advantage", c_void_p),
        ("old_value", c_void_p),
        ("returns", c_void_p),
    ]


class Rates(Structure):
    """``Rates`` of ppo_update.c."""

    _fields_: ClassVar = [
        ("clip_epsilon", c_double),
        ("value_coefficient", c_double),
        ("entropy_coefficient", c_double),
        ("max_norm", c_double),
        ("learning_rate", c_double),
        ("beta_1", c_double),
        ("beta_2", c_double),
        ("epsilon", c_double),
        ("weight_decay", c_double),
        ("value_clip_range", POINTER(c_double)),
    ]


class Learned(Structure):
    """``Learned`` of ppo_update.c."""

    _fields_: ClassVar = [
        ("parameters", c_void_p),
        ("gradient", c_void_p),
        ("mean", c_void_p),
        ("square", c_void_p),
        ("steps", c_int64),
    ]


@dataclass(frozen=True)
class CompiledLibrary:
    """The exported functions of one instruction set. Each returns 0 if memory runs out, otherwise 1."""

    name: str
    """Name of the instruction set."""

    steps: Any
    values: Any


def pointer(tensor: Tensor, dtype: torch.dtype, count: int) -> int:
    """The address of a tensor's numbers, for C. Raises TypeError unless they are ``count`` of this type, on the CPU."""
    fits = tensor.dtype == dtype and tensor.numel() == count
    if not (fits and tensor.device.type == "cpu" and tensor.is_contiguous()):
        got = f"{tensor.dtype} {[*tensor.shape]} on {tensor.device}, strides {tensor.stride()}"
        raise TypeError(f"the compiled kernel: expected {count} x {dtype} side by side on the CPU, got {got}")
    return tensor.data_ptr()


@cache
def load(path: Path = build.LIBRARY) -> Mapping[str, CompiledLibrary]:
    """Returns the library's functions for each instruction set of this processor, by key, from slow to fast.

    Raises UnavailableError if there is none.
    """
    if not path.is_file():
        raise UnavailableError(f"none was built; where a C compiler is, this builds it: {_COMMAND}")
    try:
        library = ctypes.CDLL(str(path))
        library.source_digest.restype = c_uint32
        if library.source_digest() != build.source_digest():
            raise UnavailableError(
                f"it was built from another version of its source; build it anew: {_COMMAND}"
            )
        found = library.instruction_sets()
        usable = [
            key for key, (bit, _) in _NAMES.items() if found & bit and hasattr(library, f"ppo_steps_{key}")
        ]
        if not usable:
            raise UnavailableError("this processor has none of the instruction sets that it was built for")
        return {key: _functions(library, key) for key in usable}
    except (OSError, AttributeError) as error:
        raise UnavailableError(f"it cannot be loaded: {error}") from None


def _functions(library: ctypes.CDLL, key: str) -> CompiledLibrary:
    steps, values = library[f"ppo_steps_{key}"], library[f"ppo_values_{key}"]
    network, rows, rates, learned = POINTER(Network), POINTER(Rows), POINTER(Rates), POINTER(Learned)
    count, numbers, losses, sequences = c_int64, c_void_p, POINTER(c_double), POINTER(Sequences)
    steps.argtypes = [network, rows, numbers, count, count, sequences, rates, learned, losses, count]
    values.argtypes = [network, numbers, numbers, numbers, count, sequences, numbers, count]
    for function in (steps, values):
        function.restype = c_int
    return CompiledLibrary(_NAMES[key][1], steps, values)
