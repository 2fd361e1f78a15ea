"""The messages of ``PolicyService`` (protos/unity_bridge/wire/policy_service.proto) as records of arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from unity_bridge.errors import BridgeError
from unity_bridge.steps import ActionBatch, Observation
from unity_bridge.wire import policy_service_pb2 as wire

MOST_CALLERS = 4096
"""Callers in one message, and in one forward pass."""


class CallRefused(BridgeError):
    """A call that is answered with a status of gRPC. The text names what was expected and what came."""

    def __init__(self, text: str, status: str = "INVALID_ARGUMENT") -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True, eq=False)
class PolicyRequest:
    """The observations of M callers, as ``ActRequest`` describes them; None and empty texts for absent fields."""

    run: str
    behavior: str
    ids: Sequence[str]
    begins: NDArray[np.bool_] | None
    sensors: Sequence[str]
    """Names of the observations."""
    observations: Sequence[Observation]
    """Read-only arrays ``[M, *sensor shape]``."""
    action_mask: NDArray[np.uint8] | None
    """Not 0 where a choice is forbidden. Shape [M × choices]"""
    agent_indices: NDArray[np.int64] | None
    groups: NDArray[np.int64] | None
    draws: bool


@dataclass(frozen=True, slots=True, eq=False)
class PolicyAnswer:
    """The actions of M callers."""

    actions: ActionBatch
    kept: NDArray[np.bool_] | None
    """Whether each caller's memory was kept, [M]; None for a policy without memory."""
    step: int


def decode(data: bytes) -> PolicyRequest:
    """Reads a message. Raises CallRefused for other bytes, and for too many callers."""
    try:
        message = wire.ActRequest.FromString(data)
    except DecodeError:
        raise CallRefused("expected a message ActRequest, got other bytes") from None
    if not message.observations:
        raise CallRefused("observations: expected one for each sensor, got none")
    return PolicyRequest(
        message.run, message.behavior, list(message.ids),
        np.array(message.begins, np.bool_) if message.begins else None,
        [each.name for each in message.observations],
        [_array(each) for each in message.observations],
        np.frombuffer(message.action_mask, np.uint8) if message.action_mask else None,
        np.array(message.agent_indices, np.int64) if message.agent_indices else None,
        np.array(message.groups, np.int64) if message.groups else None,
        message.draw,
    )  # fmt: skip


def encode(answer: PolicyAnswer) -> bytes:
    """Writes an answer."""
    return wire.ActResponse(
        continuous_actions=answer.actions.continuous.astype("<f4", copy=False).tobytes(),
        discrete_actions=answer.actions.discrete.astype("<i4", copy=False).tobytes(),
        memories=None if answer.kept is None else answer.kept.astype(int).tolist(),
        step=answer.step,
    ).SerializeToString()


def _array(message: wire.Observation) -> Observation:
    shape, name = tuple(message.shape), f"observation '{message.name}'"
    if not shape or not 0 < shape[0] <= MOST_CALLERS:
        raise CallRefused(
            f"{name}: expected a shape that begins with 1 to {MOST_CALLERS} callers, got {shape}"
        )
    kind, data = ("|u1", message.pixels) if message.HasField("pixels") else ("<f4", message.floats)
    if (expected := math.prod(shape) * int(kind[-1])) != len(data):
        raise CallRefused(f"{name}: expected {expected} bytes for shape {shape}, got {len(data)}")
    return np.frombuffer(data, kind).reshape(shape)
