"""Consensus of a group's value heads: they are averaged over its agents from time to time."""

from __future__ import annotations

import torch

from trainer_service.networks.flat import FlatAdam
from trainer_service.networks.groups.group_q_network import GroupQNetwork
from trainer_service.networks.groups.shared_features import SharedFeaturesNetwork
from trainer_service.ops.communication import consensus, disagreement


class HeadConsensus:
    """The averaging of value heads after every so many joint steps.

    Adam's moments of the heads are averaged with them: an averaged head must not go on where one of them was going.
    The target's heads are left alone, they are updated like all else.
    """

    def __init__(self, network: GroupQNetwork, adam: FlatAdam, every: int) -> None:
        """adam: of the network's parameters, perhaps among others. Raises ValueError for a network without heads."""
        if not isinstance(network, SharedFeaturesNetwork):
            raise ValueError("only networks of shared features have heads to agree on")
        self._network = network
        self._adam = adam
        self._every = every
        self.checked_at = 0
        """Joint steps up to which averaging was considered."""
        self._burst = (0, 1)
        """``checked_at`` when the gradient steps at hand began, and how many they are."""
        self._disagreements: list[float] = []
        """Disagreements since the last report."""

    def begin(self, due: int) -> None:
        """Begins with so many gradient steps."""
        self._burst = (self.checked_at, max(due, 1))

    def follow(self, joint_steps: int, due: int) -> None:
        """Averages after a gradient step where it is time. due: gradient steps that are left."""
        # Joint steps come in bursts, and so do gradient steps: each step stands for its share of them.
        since, count = self._burst
        joint_steps -= (joint_steps - since) * due // count
        if joint_steps // self._every > self.checked_at // self._every:
            self.average()
        self.checked_at = joint_steps

    @torch.no_grad()
    def average(self) -> None:
        """Gives all agents the mean of their heads."""
        heads = list(self._network.critic.parameters())
        together = torch.cat([head.flatten(1) for head in heads], dim=1)
        self._disagreements.append(float(disagreement(together)))
        for head in heads:
            for shares in (head, *self._adam.moments(head)):
                shares.copy_(consensus(shares))

    def metrics(self) -> dict[str, float]:
        """The mean disagreement before averaging since the last call, by tag; none where nothing was averaged."""
        found, self._disagreements = self._disagreements, []
        return {"Consensus/Disagreement": sum(found) / len(found)} if found else {}
