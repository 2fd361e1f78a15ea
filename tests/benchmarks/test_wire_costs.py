"""The costs of the wire are those of exchanges that were really made."""

from __future__ import annotations

import pytest
import wire_costs


def test_quantiles_of_wall_and_cpu_by_hand() -> None:
    windows = [(100.0 * wall, wall) for wall in range(21)]  # 0 … 2000, of which 5 % lie below 100
    assert wire_costs._quantiles(windows) == ["100", "1,000", "1", "10"]


@pytest.mark.process
def test_exchanges_after_the_first_are_measured_in_windows() -> None:
    windows = wire_costs._measure(agents=2, think_us=0, exchanges=wire_costs._WARM_UP + 30)
    assert len(windows) == 3  # the first step of the handshake counts, too
    assert all(wall > 0 and cpu > 0 for wall, cpu in windows)
