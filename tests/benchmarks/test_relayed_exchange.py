"""The exchanges behind a relay are really made, and set beside direct ones."""

from __future__ import annotations

import pytest
import relayed_exchange
from measuring.exchange import measure_exchange


def test_the_ratio_by_hand() -> None:
    rows = relayed_exchange.table({"direct": [100.0, 300.0, 200.0], "behind a relay": [500.0]})
    assert rows[1:] == [("direct", "200", "1.00"), ("behind a relay", "500", "2.50")]


@pytest.mark.process
def test_exchanges_behind_a_relay_are_measured() -> None:
    costs = measure_exchange("sim:3dball", 2, 10)
    waits = relayed_exchange.measure(costs, 5, 0, is_relayed=True, is_secured=False)
    assert len(waits) == 5
    assert all(wait > 0 for wait in waits)
