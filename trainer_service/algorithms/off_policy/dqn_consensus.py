"""Deep Q-learning with shared features, in which value heads are averaged over the group from time to time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from trainer_service.algorithms.common.learner import Compute, Metrics
from trainer_service.algorithms.off_policy.dqn_share import DQNShare
from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.off_policy import ConsensusSettings
from trainer_service.networks.groups.shared_features import SharedFeaturesNetwork
from trainer_service.ops.communication import consensus, disagreement
from unity_bridge.specs import BehaviorSpec


class DQNConsensus(DQNShare):
    """A DQNShare in which agents agree on what shared features are worth, and differ in their features.

    Adam's moments of the heads are averaged with them: an averaged head must not go on where one of them was going.
    The target's heads are left alone, they are updated like all else.
    """

    _settings_type = ConsensusSettings
    _hyper: ConsensusSettings

    def __init__(self, spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> None:
        """Raises ValueError where the behavior has sensors or actions that do not fit."""
        super().__init__(spec, settings, compute)
        self._every = self._hyper.consensus_every
        self._checked_at = 0
        """Joint steps up to which averaging was considered."""
        self._burst = (0, 1)
        """``_checked_at`` when the gradient steps at hand began, and how many they are."""
        self._disagreements: list[float] = []
        """Disagreements since the last report."""

    def update(self, step: int) -> Metrics:
        """Makes the gradient steps that are due, and averages the heads after every ``consensus_every`` joint steps."""
        self._burst = (self._checked_at, max(self._replay.schedule.due, 1))
        return super().update(step)

    def _after_step(self) -> None:
        # Joint steps come in bursts, and so do gradient steps: each step stands for its share of them.
        since, count = self._burst
        left = (self._joint_steps - since) * self._replay.schedule.due // count
        joint_steps = self._joint_steps - left
        if joint_steps // self._every > self._checked_at // self._every:
            self._average_heads()
        self._checked_at = joint_steps

    @torch.no_grad()
    def _average_heads(self) -> None:
        network = self._online.network
        if not isinstance(network, SharedFeaturesNetwork):
            raise ValueError("only networks of shared features have heads to agree on")
        heads = list(network.critic.parameters())
        together = torch.cat([head.flatten(1) for head in heads], dim=1)
        self._disagreements.append(float(disagreement(together)))
        for head in heads:
            for shares in (head, *self._optimizer.adam.moments(head)):
                shares.copy_(consensus(shares))

    def _own_metrics(self) -> dict[str, float]:
        found, self._disagreements = self._disagreements, []
        metrics = super()._own_metrics()
        return {**metrics, "Consensus/Disagreement": sum(found) / len(found)} if found else metrics

    def state_dict(self) -> dict[str, Any]:
        """Everything but the replay buffer, with how far averaging has come."""
        return {**super().state_dict(), "agreed": self._checked_at}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from there with an empty buffer."""
        super().load_state_dict(state)
        self._checked_at = state["agreed"]
