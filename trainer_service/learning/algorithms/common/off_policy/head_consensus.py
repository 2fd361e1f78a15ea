"""Consensus of a group's value heads, which are averaged over agents at intervals."""

from __future__ import annotations

import torch

from trainer_service.learning.networks.flat import FlatAdam
from trainer_service.learning.networks.groups.agent_networks import AgentNetworks
from trainer_service.learning.networks.groups.shared_features import SharedFeaturesNetwork
from trainer_service.ops.communication import consensus, disagreement


class HeadConsensus:
    """Averages value heads at intervals of joint steps.

    Adam's moments of the heads are averaged too, since an averaged head must not continue in one head's direction. The
    target's heads are not averaged, only updated as usual.
    """

    def __init__(self, network: AgentNetworks, adam: FlatAdam, every: int) -> None:
        """adam: of the network's parameters, optionally with others. Raises ValueError for a network without heads."""
        if not isinstance(network, SharedFeaturesNetwork):
            raise ValueError("only networks of shared features have heads to agree on")
        self._network = network
        self._adam = adam
        self._every = every
        self.checked_at = 0
        """Joint steps up to which averaging was checked."""
        self._burst = (0, 1)
        """``checked_at`` at the start of the present gradient steps, and their number."""
        self._disagreements: list[float] = []
        """Disagreements since the last report."""

    def begin(self, due: int) -> None:
        """Starts a number of gradient steps."""
        self._burst = (self.checked_at, max(due, 1))

    def follow(self, joint_steps: int, due: int) -> None:
        """Averages after a gradient step if it is due. due: remaining gradient steps."""
        # Joint steps and gradient steps both come in bursts, so each gradient step counts for its share of joint steps.
        since, count = self._burst
        joint_steps -= (joint_steps - since) * due // count
        if joint_steps // self._every > self.checked_at // self._every:
            self.average()
        self.checked_at = joint_steps

    @torch.no_grad()
    def average(self) -> None:
        """Replaces all agents' heads by their mean."""
        heads = list(self._network.critic.parameters())
        together = torch.cat([head.flatten(1) for head in heads], dim=1)
        self._disagreements.append(float(disagreement(together)))
        for head in heads:
            for shares in (head, *self._adam.moments(head)):
                shares.copy_(consensus(shares))

    def metrics(self) -> dict[str, float]:
        """The mean disagreement before averaging since the last call, by tag; empty without averaging."""
        found, self._disagreements = self._disagreements, []
        return {"Consensus/Disagreement": sum(found) / len(found)} if found else {}
