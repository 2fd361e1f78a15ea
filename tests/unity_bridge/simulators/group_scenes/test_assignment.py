from __future__ import annotations

import numpy as np
import pytest

from unity_bridge.simulators.group_scenes.assignment import MOST_TRIED, assign


def test_the_least_sum_of_costs_wins_over_the_cheapest_pair() -> None:
    # The cheapest pair, agent 0 at place 0, would leave 9 to the other one.
    costs = np.array([[[1.0, 2.0], [2.0, 9.0]], [[1.0, 9.0], [9.0, 1.0]]])
    np.testing.assert_array_equal(assign(costs), [[1, 0], [0, 1]])


@pytest.mark.parametrize("agents", [1, 3, MOST_TRIED, MOST_TRIED + 1, 9])
def test_every_agent_gets_another_place(agents: int) -> None:
    places = assign(np.random.default_rng(agents).random((20, agents, agents)))
    np.testing.assert_array_equal(np.sort(places, axis=1), np.arange(agents)[None].repeat(20, axis=0))
