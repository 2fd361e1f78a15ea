"""Statistics of simulators: their bytes, both ways, and nonsense."""

from __future__ import annotations

import pytest

from unity_bridge.errors import WireError
from unity_bridge.side_channels import STATS, Aggregation, StatMessage, parse_stat, stat_records


def test_a_statistic_has_the_bytes_that_unity_sends() -> None:
    (record,) = stat_records([StatMessage("Goals", 2.0, Aggregation.SUM)])
    assert record.channel == STATS
    assert record.body == bytes.fromhex("05000000 476f616c73 00000040 02000000")


@pytest.mark.parametrize("aggregation", Aggregation)
def test_every_aggregation_comes_out_again(aggregation: Aggregation) -> None:
    message = StatMessage("Agent/Speed", -0.5, aggregation)
    (record,) = stat_records([message])
    assert parse_stat(record.body) == message


def test_a_statistic_without_an_aggregation_is_averaged() -> None:
    (record,) = stat_records([StatMessage("Goals", 2.0, Aggregation.SUM)])
    assert parse_stat(record.body[:-4]) == StatMessage("Goals", 2.0, Aggregation.AVERAGE)


@pytest.mark.parametrize("aggregation", [-1, 4])
def test_an_unknown_aggregation_is_refused_by_name(aggregation: int) -> None:
    (record,) = stat_records([StatMessage("Goals", 2.0, Aggregation.SUM)])
    body = record.body[:-4] + aggregation.to_bytes(4, "little", signed=True)
    with pytest.raises(
        WireError, match=f"statistic 'Goals': expected an aggregation from 0 to 3, got {aggregation}"
    ):
        parse_stat(body)
