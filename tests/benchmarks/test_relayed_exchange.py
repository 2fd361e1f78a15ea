"""The exchanges behind a relay are really made, and set beside direct ones."""

from __future__ import annotations

import pytest
import relayed_exchange
from measuring.exchange import measure_exchange


def test_the_ratios_by_hand() -> None:
    direct = [100.0 * each for each in range(21)]  # 0 … 2000, of which 5 % lie below 100
    rows = relayed_exchange.table({"direct": direct, "behind a relay": [200.0] * 21})
    assert rows[1:] == [
        ("direct", "100", "1,000", "1.00", "1.00"),
        ("behind a relay", "200", "200", "2.00", "0.20"),
    ]


@pytest.mark.process
def test_exchanges_behind_a_relay_are_measured() -> None:
    costs = measure_exchange("sim:3dball", 2, 10)
    waits = relayed_exchange.measure(costs, 5, 0, is_relayed=True, is_secured=False)
    assert len(waits) == 5
    assert all(wait > 0 for wait in waits)
