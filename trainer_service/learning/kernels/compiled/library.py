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


def _fields(kind: Any, names: str) -> list[tuple[str, Any]]:
    """Fields of one type, by their names."""
    return [(name, kind) for name in names.split()]


class Layer(Structure):
    """``Layer`` of network.h."""

    _fields_: ClassVar = _fields(c_int64, "weight bias inputs outputs")


class Lstm(Structure):
    """``Lstm`` of network.h."""

    _fields_: ClassVar = _fields(Layer, "from_features from_memory")


class Network(Structure):
    """``Network`` of network.h."""

    _fields_: ClassVar = [
        *_fields(c_int64, "parameters depth"),
        *_fields(POINTER(Layer), "actor critic"),
        ("heads", Layer * 3),
        ("lstms", POINTER(Lstm)),
        *_fields(c_int64, "log_sigma branches"),
        ("choices", POINTER(c_int64)),
    ]


class Sequences(Structure):
    """``Sequences`` of network.h."""

    _fields_: ClassVar = [("steps", c_int64), *_fields(c_void_p, "active memories"), ("memory_size", c_int64)]


class Rows(Structure):
    """``Rows`` of ppo_update.c."""

    _fields_: ClassVar = _fields(
        c_void_p,
        "observations continuous_actions discrete_actions allowed_actions old_log_prob advantage old_value returns",
    )


class Rates(Structure):
    """``Rates`` of ppo_update.c."""

    _fields_: ClassVar = [
        *_fields(c_double, "clip_epsilon value_coefficient entropy_coefficient max_norm"),
        *_fields(c_double, "learning_rate beta_1 beta_2 epsilon weight_decay"),
        ("value_clip_range", POINTER(c_double)),
    ]


class Learned(Structure):
    """``Learned`` of ppo_update.c."""

    _fields_: ClassVar = [*_fields(c_void_p, "parameters gradient mean square"), ("steps", c_int64)]


class Stack(Structure):
    """``Stack`` of dense.h."""

    _fields_: ClassVar = [
        *_fields(c_int64, "networks depth heads relu turned"),
        ("layers", POINTER(Layer)),
        *_fields(c_void_p, "theta gradient"),
    ]


class Columns(Structure):
    """``Columns`` of dense.h."""

    _fields_: ClassVar = [("at", c_void_p), ("width", c_int64)]


class Norm(Structure):
    """``Norm`` of batch_norm.h."""

    _fields_: ClassVar = [*_fields(c_int64, "weight bias"), *_fields(c_void_p, "mean variance batches")]


class Soft(Structure):
    """``Soft`` of sac_step.h."""

    _fields_: ClassVar = [
        *_fields(Stack, "policy critics"),
        *_fields(Learned, "policy_learned critics_learned alpha_learned"),
        ("rates", POINTER(Rates)),
        ("target_parameters", c_void_p),
        ("norms", POINTER(Norm)),
        *_fields(c_int64, "policy_parameters critic_parameters"),
        ("tau", c_double),
        *_fields(c_void_p, "discounts ends"),
        *_fields(c_int64, "sensors actions signals branches choices"),
        ("sizes", POINTER(c_int64)),
    ]


class Transitions(Structure):
    """``Transitions`` of sac_step.h."""

    _fields_: ClassVar = [
        ("rows", c_int64),
        *_fields(POINTER(Columns), "seen next"),
        *_fields(c_void_p, "rewards terminated weights next_noise noise chosen allowed next_allowed"),
        ("improves", c_int64),
    ]


@dataclass(frozen=True)
class CompiledLibrary:
    """The exported functions of one instruction set. Each returns 0 if memory runs out, otherwise 1."""

    name: str
    """Name of the instruction set."""

    steps: Any
    values: Any
    sac_step: Any


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
                f"it was built from another version of its source; build it again: {_COMMAND}"
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
    names = ("ppo_steps", "ppo_values", "sac_step")
    steps, values, sac_step = functions = [library[f"{name}_{key}"] for name in names]
    network, rows, rates, learned = POINTER(Network), POINTER(Rows), POINTER(Rates), POINTER(Learned)
    count, numbers, losses, sequences = c_int64, c_void_p, POINTER(c_double), POINTER(Sequences)
    steps.argtypes = [network, rows, numbers, count, count, sequences, rates, learned, losses, count]
    values.argtypes = [network, numbers, numbers, numbers, count, sequences, numbers, count]
    sac_step.argtypes = [POINTER(Soft), POINTER(Transitions), losses, numbers]
    for function in functions:
        function.restype = c_int
    return CompiledLibrary(_NAMES[key][1], *functions)
