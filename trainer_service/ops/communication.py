"""Communication in a group: mixed features, the order of messages, consensus. n agents, ordered by index."""

from __future__ import annotations

import torch
from torch import Tensor


def ring_mixing(agents: int, rounds: int, *, in_turn: bool) -> Tensor:
    """Returns M of g = M h: features h after rounds of averaging with the next agent in a ring. [n, n]

    In simultaneous rounds, g_i ← (g_i + g_{i+1})/2 for all i, so M = ((I + S)/2)^rounds. This keeps the mean. in_turn:
    agents average one after the other, so the last agent uses the features that the first has just updated.
    """
    mixed = torch.eye(agents, dtype=torch.float64)
    for _ in range(rounds):
        if in_turn:
            for agent in range(agents):
                mixed[agent] = (mixed[agent] + mixed[(agent + 1) % agents]) / 2.0
        else:
            mixed = (mixed + mixed.roll(-1, dims=0)) / 2.0
    return mixed.float()


def own_first(agents: int) -> Tensor:
    """Returns the order in which each agent reads messages: its own first, then the others' by index. int64 [n, n]"""
    return torch.tensor([[i, *(j for j in range(agents) if j != i)] for i in range(agents)])


def disagreement(heads: Tensor) -> Tensor:
    """Mean Euclidean distance between two agents' parameters, over all pairs; 0 for one agent. [n, P] to scalar"""
    if len(heads) == 1:
        return heads.new_zeros(())
    return torch.nn.functional.pdist(heads.flatten(1)).mean()


def consensus(heads: Tensor) -> Tensor:
    """Replaces all rows by their mean. [n, …], shape kept, all rows equal bit for bit."""
    return heads.mean(dim=0, keepdim=True).expand_as(heads)
