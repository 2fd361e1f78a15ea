"""Joint steps sorted by their number of agents, so that those of one size are computed together, without gaps."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class GroupsBySize(NamedTuple):
    """F joint steps with R agents in all, and N results: for each the group's, every agent's and perhaps one more.

    Sorted means by number of agents, then as the joint steps came.
    """

    rows: Tensor
    """Agents that are there, sorted, by index within a joint step: row numbers as they were given. int64 [R]"""

    sizes: list[tuple[int, int]]
    """Smaller groups first: (agents, joint steps with so many)."""

    agents: Tensor
    """The number of agents in each result's group, sorted. int64 [N]"""

    found: Tensor
    """Where the results of the group, and of every agent, are among the sorted; of absent ones the one
    more, or −1. int64 [1 + n, F]"""


def sorted_by_size(members: Tensor, *, one_more: bool) -> GroupsBySize:
    """Sorts joint steps. members: int64 [F, n], each agent's row, −1 if absent; every joint step has an agent."""
    present = members >= 0
    agents = present.sum(dim=1)
    order = torch.argsort(agents, stable=True)
    results = agents + (2 if one_more else 1)
    before = torch.empty_like(results)
    before[order] = results[order].cumsum(dim=0) - results[order]
    absent = before + results - 1 if one_more else torch.full_like(before, -1)
    of_agents = torch.where(present, before.unsqueeze(1) + present.cumsum(dim=1), absent.unsqueeze(1))
    counted = torch.bincount(agents).tolist()
    return GroupsBySize(
        members[order][present[order]],
        [(size, count) for size, count in enumerate(counted) if count],
        agents[order].repeat_interleave(results[order]),
        torch.cat([before.unsqueeze(0), of_agents.T]),
    )
