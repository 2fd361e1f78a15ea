"""Mixing among the agents of a group: features, messages and agreement. n agents, in the order of their indices."""

from __future__ import annotations

import torch
from torch import Tensor


def ring_mixing(agents: int, rounds: int, *, in_turn: bool) -> Tensor:
    """Returns M of g = M h: everyone's features h after rounds of averaging with the next in a ring. [n, n]

    At once, g_i ← (g_i + g_{i+1})/2 for all i, so M = ((I + S)/2)^rounds: it keeps the mean, and treats all alike.
    in_turn: one agent after the other, so that the last hears of the first what that has just made of the second.
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
    """Returns the order in which each agent reads messages: its own, then the others' by index. int64 [n, n]"""
    return torch.tensor([[i, *(j for j in range(agents) if j != i)] for i in range(agents)])


def disagreement(heads: Tensor) -> Tensor:
    """Mean Euclidean distance of two agents' parameters, over all pairs; 0 for a single agent. [n, P] to scalar"""
    if len(heads) == 1:
        return heads.new_zeros(())
    return torch.nn.functional.pdist(heads.flatten(1)).mean()


def consensus(heads: Tensor) -> Tensor:
    """Gives all rows their mean. [n, …], shape kept, all rows equal bit for bit."""
    return heads.mean(dim=0, keepdim=True).expand_as(heads)
