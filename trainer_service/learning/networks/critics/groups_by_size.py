"""Joint steps sorted by their number of agents, so that steps of one size are computed together, without padding."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class GroupsBySize(NamedTuple):
    """F joint steps with R agents in total, and N results: the group's, every agent's, and optionally one more.

    They are sorted by number of agents, then in the order of joint steps.
    """

    rows: Tensor
    """Row numbers of present agents, sorted, by index within a joint step. int64 [R]"""

    sizes: list[tuple[int, int]]
    """Pairs (number of agents, joint steps with this number), smaller groups first."""

    agents: Tensor
    """Number of agents in each result's group, sorted. int64 [N]"""

    found: Tensor
    """Positions of the group's and every agent's results in the sorted order. For absent agents, the position of the
    additional result, or −1. int64 [1 + n, F]"""


def sorted_by_size(members: Tensor, *, one_more: bool) -> GroupsBySize:
    """Sorts joint steps. members: int64 [F, n], each agent's row, −1 if absent. Every joint step has an agent."""
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
