"""Trainer to simulator: environment parameters, as numbers or as samplers.

A sampler draws inside the simulator, on every reading of its parameter. The trainer only sends its distribution.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from unity_bridge.errors import WireError
from unity_bridge.side_channels.framing import SideChannelRecord
from unity_bridge.side_channels.values import BodyReader, BodyWriter
from unity_bridge.untrusted_text import quoted

ENVIRONMENT_PARAMETERS = UUID("534c891e-810f-11ea-a9d0-822485860400")


class _Kind(enum.IntEnum):
    FLOAT = 0
    SAMPLER = 1


class _SamplerKind(enum.IntEnum):
    UNIFORM = 0
    GAUSSIAN = 1
    MULTI_RANGE_UNIFORM = 2


@dataclass(frozen=True, slots=True)
class FloatParameter:
    """A parameter that is a number. ValueError where the wire cannot carry it, as for all of these."""

    name: str
    """ASCII."""
    value: float
    """Travels as a float32."""

    def __post_init__(self) -> None:
        _body(self)


@dataclass(frozen=True, slots=True)
class UniformSampler:
    """A parameter between two numbers, each as likely."""

    name: str
    seed: int
    """An int32, for the simulator's random generator."""
    min_value: float
    max_value: float

    def __post_init__(self) -> None:
        _body(self)


@dataclass(frozen=True, slots=True)
class GaussianSampler:
    """A parameter that is normally distributed."""

    name: str
    seed: int
    mean: float
    st_dev: float

    def __post_init__(self) -> None:
        _body(self)


@dataclass(frozen=True, slots=True)
class MultiRangeUniformSampler:
    """A parameter in one of several intervals; an interval is as likely as it is long."""

    name: str
    seed: int
    intervals: tuple[tuple[float, float], ...]
    """Lowest and highest value of each."""

    def __post_init__(self) -> None:
        _body(self)


EnvironmentParameterMessage = FloatParameter | UniformSampler | GaussianSampler | MultiRangeUniformSampler


def parameter_records(messages: Iterable[EnvironmentParameterMessage]) -> list[SideChannelRecord]:
    """The parameters as messages on their channel, in this order."""
    return [SideChannelRecord(ENVIRONMENT_PARAMETERS, _body(message)) for message in messages]


def parse_parameter(body: bytes) -> EnvironmentParameterMessage:
    """Parses a message on the channel.

    Raises:
        WireError: a kind of parameter or sampler that we do not know, or a body that is cut.
    """
    reader = BodyReader(body, "environment parameter")
    name = reader.string()
    reader.where = f"environment parameter {quoted(name)}"
    kind = reader.int32()
    if kind == _Kind.FLOAT:
        return FloatParameter(name, reader.float32())
    if kind == _Kind.SAMPLER:
        return _parse_sampler(name, reader)
    raise WireError(f"{reader.where}: expected kind 0 or 1, got {kind}")


def _parse_sampler(name: str, reader: BodyReader) -> EnvironmentParameterMessage:
    seed, kind = reader.int32(), reader.int32()
    match kind:
        case _SamplerKind.UNIFORM:
            return UniformSampler(name, seed, reader.float32(), reader.float32())
        case _SamplerKind.GAUSSIAN:
            return GaussianSampler(name, seed, reader.float32(), reader.float32())
        case _SamplerKind.MULTI_RANGE_UNIFORM:
            ends = reader.float32_list()
            if len(ends) % 2:
                raise WireError(f"{reader.where}: expected pairs, got {len(ends)} numbers")
            return MultiRangeUniformSampler(name, seed, tuple(zip(ends[::2], ends[1::2], strict=True)))
    raise WireError(f"{reader.where}: expected sampler type 0, 1 or 2, got {kind}")


def _body(message: EnvironmentParameterMessage) -> bytes:
    try:
        return _write(message).body()
    except ValueError as error:
        raise ValueError(f"environment parameter '{message.name}': {error}") from None


def _write(message: EnvironmentParameterMessage) -> BodyWriter:
    writer = BodyWriter().string(message.name)
    if isinstance(message, FloatParameter):
        return writer.int32(_Kind.FLOAT).float32(message.value)
    writer.int32(_Kind.SAMPLER).int32(message.seed)
    match message:
        case UniformSampler(min_value=low, max_value=high):
            return writer.int32(_SamplerKind.UNIFORM).float32(low).float32(high)
        case GaussianSampler(mean=mean, st_dev=st_dev):
            return writer.int32(_SamplerKind.GAUSSIAN).float32(mean).float32(st_dev)
        case MultiRangeUniformSampler(intervals=intervals):
            ends = [end for interval in intervals for end in interval]
            return writer.int32(_SamplerKind.MULTI_RANGE_UNIFORM).float32_list(ends)
