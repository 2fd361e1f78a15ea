"""Heterogeneous-agent PPO, Kuba et al. 2022 (arXiv:2109.11251): MAPPO with agents that learn in turn.

Each agent's surrogate is weighted by how much those before it have changed what they do since. So every step improves
the team as a whole, whichever agent's turn it is.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from trainer_service.algorithms.common.group_metrics import mean_actor_metrics
from trainer_service.algorithms.common.on_policy.group_rollout import GroupRollout
from trainer_service.algorithms.common.schedules import Scheduled
from trainer_service.algorithms.on_policy.mappo import MAPPO
from trainer_service.config.hyperparameters.on_policy import HAPPOSettings


class HAPPO(MAPPO):
    """MAPPO with an actor for each agent, updated in a random order."""

    _settings_type = HAPPOSettings
    _hyper: HAPPOSettings

    def _update_actors(
        self, rollout: GroupRollout, advantages: Tensor, scheduled: Scheduled
    ) -> dict[str, float]:
        agent_indices, joint_steps = rollout.joint_steps.agent_of_step, rollout.joint_steps
        factor = torch.ones(len(joint_steps), device=self._device)
        of_step = self._tensor(joint_steps.of_step)
        weighted = advantages.clone()
        parts: list[Tensor] = []
        deviations: list[float] = []
        epochs, agents = self._hyper.num_epoch, self._agent_order()
        for position, agent in enumerate(agents):
            segments = joint_steps.agent_of_segment == agent
            if not segments.any():
                continue
            rows = torch.from_numpy(np.flatnonzero(agent_indices == agent)).to(self._device)
            # A positive factor may as well stand inside the minimum: it scales both of its sides.
            weighted[rows] = factor[of_step[rows]] * advantages[rows]
            sampler = self._sampler(rollout.trajectories.select(segments))
            for epoch in range(position * epochs, (position + 1) * epochs):
                for steps, sequences, share in self._with_progress(
                    self._minibatches(sampler), epoch, len(agents) * epochs
                ):
                    parts.append(
                        self._actor_step(rollout, weighted, rows[steps], sequences, share, scheduled)
                    )
            with torch.no_grad():
                log_prob, _ = self._log_prob_and_entropy(rollout, rows, sampler.sequences)
                factor[of_step[rows]] *= (log_prob - rollout.old_log_prob[rows]).exp()
            deviations.append(float(factor.std(correction=0)))
        return {
            **mean_actor_metrics(parts, self._shard),
            "Policy/Factor Deviation": float(np.mean(deviations)),
        }

    def _agent_order(self) -> list[int]:
        if self._hyper.fixed_order:
            return list(range(self._hyper.num_agents))
        order = torch.randperm(self._hyper.num_agents, generator=self._shuffling)
        agents: list[int] = order.tolist()
        return agents
