"""Environment parameters and samplers: their bytes, both ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from unity_bridge.errors import WireError
from unity_bridge.side_channels import (
    ENVIRONMENT_PARAMETERS,
    EnvironmentParameterMessage,
    FloatParameter,
    GaussianSampler,
    MultiRangeUniformSampler,
    UniformSampler,
    pack_records,
    parameter_records,
    parse_parameter,
)
from unity_bridge.side_channels.values import BodyWriter

EXAMPLES = [
    (FloatParameter("size", 1.0), "04000000 73697a65 00000000 0000803f"),
    (UniformSampler("g", -5, 0.5, 2.0), "01000000 67 01000000 fbffffff 00000000 0000003f 00000040"),
    (GaussianSampler("g", 3, -1.0, 0.25), "01000000 67 01000000 03000000 01000000 000080bf 0000803e"),
    (
        MultiRangeUniformSampler("g", 0, ((0.0, 1.0), (2.0, 4.0))),
        "01000000 67 01000000 00000000 02000000 04000000 00000000 0000803f 00000040 00008040",
    ),
]


def test_a_record_has_the_bytes_that_unity_expects() -> None:
    assert pack_records(parameter_records([FloatParameter("size", 1.0)])) == bytes.fromhex(
        "1e894c530f81ea11a9d0822485860400 10000000 04000000 73697a65 00000000 0000803f"
    )


@pytest.mark.parametrize(("message", "body"), EXAMPLES)
def test_every_kind_has_its_bytes_and_comes_out_again(
    message: EnvironmentParameterMessage, body: str
) -> None:
    (record,) = parameter_records([message])
    assert record.channel == ENVIRONMENT_PARAMETERS
    assert record.body == bytes.fromhex(body)
    assert parse_parameter(record.body) == message


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: FloatParameter("größe", 1.0), "environment parameter 'größe': expected ASCII text"),
        (lambda: FloatParameter("size", 1e39), "environment parameter 'size': .* 32-bit float, got 1e"),
        (lambda: UniformSampler("size", 2**31, 0, 1), "'size': .* 32 bits, got 2147483648"),
        (lambda: GaussianSampler("size", 0, 0, -1e40), "'size': .* 32-bit float, got -1e"),
        (lambda: MultiRangeUniformSampler("size", 0, ((0, 1e39),)), "'size': .* 32-bit float"),
    ],
)
def test_a_parameter_that_the_wire_cannot_carry_cannot_be_made(
    make: Callable[[], Any], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        make()


def written(*numbers: int) -> bytes:
    writer = BodyWriter().string("size")
    for number in numbers:
        writer.int32(number)
    return writer.body()


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (written(2), "environment parameter 'size': expected kind 0 or 1, got 2"),
        (written(1, 0, 3), "environment parameter 'size': expected sampler type 0, 1 or 2, got 3"),
        (written(1, 0, 2, 3, 0, 0, 0), "environment parameter 'size': expected pairs, got 3 numbers"),
        (written(0) + b"\0", "environment parameter 'size': expected 4 bytes of a float32, got 1"),
    ],
)
def test_unknown_messages_are_refused_by_name(body: bytes, complaint: str) -> None:
    with pytest.raises(WireError, match=complaint):
        parse_parameter(body)
