"""The assignment of agents to as many places at small cost, for experts."""

from __future__ import annotations

from itertools import permutations

import numpy as np

from unity_bridge.arrays import Floats, Integers

MOST_TRIED = 5
"""Maximum number of agents for which every assignment is tried."""


def assign(costs: Floats) -> Integers:
    """The place for each agent, all different, with the least sum of costs; with a small one if agents are many.

    Args:
        costs: of each agent at each place. Shape [C, N, N].

    Returns:
        Places, shape [C, N].
    """
    agents = costs.shape[1]
    return _best(costs) if agents <= MOST_TRIED else _greedy(costs)


def _best(costs: Floats) -> Integers:
    agents = costs.shape[1]
    every = np.array(list(permutations(range(agents))))
    sums = costs[:, np.arange(agents), every].sum(axis=2)
    cheapest: Integers = every[sums.argmin(axis=1)]
    return cheapest


def _greedy(costs: Floats) -> Integers:
    """Assigns the cheapest pair that is left, again and again."""
    left = costs.copy()
    copies, agents, _ = costs.shape
    everywhere = np.arange(copies)
    places = np.zeros((copies, agents), np.int64)
    for _ in range(agents):
        agent, place = np.divmod(left.reshape(copies, -1).argmin(axis=1), agents)
        places[everywhere, agent] = place
        left[everywhere, agent] = np.inf
        left[everywhere, :, place] = np.inf
    return places
