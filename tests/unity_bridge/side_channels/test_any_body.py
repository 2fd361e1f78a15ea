"""Whatever bytes a body has, it is understood or refused by name; nothing else comes of it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unity_bridge.errors import WireError
from unity_bridge.side_channels import (
    Aggregation,
    EngineConfiguration,
    GaussianSampler,
    MultiRangeUniformSampler,
    StatMessage,
    TrainingEnvironmentInitialized,
    analytics_records,
    apply_engine_message,
    engine_records,
    parameter_records,
    parse_notice,
    parse_parameter,
    parse_property,
    parse_stat,
    stat_records,
)

GOOD_BODIES = [
    record.body
    for record in (
        *engine_records(EngineConfiguration()),
        *parameter_records(
            [
                GaussianSampler("size", 1, 2.0, 3.0),
                MultiRangeUniformSampler("mass", 1, ((0.0, 1.0), (2.0, 3.0))),
            ]
        ),
        *stat_records([StatMessage("Goals", 1.0, Aggregation.HISTOGRAM)]),
        *analytics_records([TrainingEnvironmentInitialized(num_envs=3, run_options="{}")]),
    )
]
SPOILT = st.builds(
    lambda body, position, bits: bytes(
        byte ^ bits if index == position % len(body) else byte for index, byte in enumerate(body)
    ),
    st.sampled_from(GOOD_BODIES),
    st.integers(0, 1000),
    st.integers(1, 255),
)
CUT = st.builds(lambda body, end: body[:end], st.sampled_from(GOOD_BODIES), st.integers(0, 60))


@pytest.mark.parametrize(
    "parse",
    [
        functools.partial(apply_engine_message, EngineConfiguration()),
        parse_parameter,
        parse_stat,
        parse_property,
        parse_notice,
    ],
)
@given(body=st.binary(max_size=60) | SPOILT | CUT)
def test_a_body_is_understood_or_refused(parse: Callable[[bytes], object], body: bytes) -> None:
    with contextlib.suppress(WireError):
        assert parse(body) is not None
