"""Bodies and payloads of side channels, read by either side."""

from __future__ import annotations

import random

import pytest
from fuzzing import DICE, examples
from hypothesis import given
from hypothesis import strategies as st
from mutations import mutated_bytes, require_fit_to_print, side_channel

from unity_bridge.errors import WireError
from unity_bridge.side_channels import (
    EngineConfiguration,
    FloatParameter,
    FloatProperty,
    UniformSampler,
    engine_records,
    parameter_records,
    parse_parameter,
    parse_property,
    parse_stat,
    property_record,
    unpack_records,
)

PARSERS = (parse_stat, parse_parameter, parse_property)
BODIES = [
    *(record.body for record in engine_records(EngineConfiguration())),
    *(
        record.body
        for record in parameter_records([FloatParameter("mass", 1.0), UniformSampler("size", 7, 0.5, 2.0)])
    ),
    property_record(FloatProperty("gravity", -9.8)).body,
    unpack_records(side_channel(random.Random(1)))[0].body,
]


@examples(600)
@given(DICE)
def test_a_payload_that_was_changed(dice: random.Random) -> None:
    payload = b"".join(side_channel(dice) for _ in range(dice.randint(1, 3)))
    try:
        records = unpack_records(mutated_bytes(dice, payload))
    except WireError as error:
        require_fit_to_print(str(error))
    else:
        assert sum(len(record.body) for record in records) <= 10 * len(payload) + 400


@pytest.mark.parametrize("parse", PARSERS)
@examples(300)
@given(dice=DICE, anything=st.binary(max_size=40))
def test_a_body_that_was_changed(parse, dice: random.Random, anything: bytes) -> None:
    body = anything if dice.random() < 0.2 else mutated_bytes(dice, dice.choice(BODIES))
    try:
        parse(body)
    except WireError as error:
        require_fit_to_print(str(error))
