"""Heterogeneous-agent PPO, Kuba et al. 2022 (arXiv:2109.11251): MAPPO with agents that learn in turn.

Each agent's surrogate is weighted by the probability ratios of agents that were updated before it. So every step
improves the whole group, in any order of agents.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.on_policy import HAPPOSettings
from trainer_service.learning.algorithms.common.checks import require_settings
from trainer_service.learning.algorithms.common.learner import Compute, Metrics
from trainer_service.learning.algorithms.common.on_policy.central_critic import central_critic_parts
from trainer_service.learning.algorithms.common.on_policy.learner import OnPolicyLearner
from trainer_service.learning.algorithms.common.on_policy.rollout import log_prob_and_entropy
from trainer_service.learning.algorithms.common.on_policy.update import surrogate
from unity_bridge.specs import BehaviorSpec


class HAPPO(OnPolicyLearner):
    """PPO with a central critic and an actor for each agent, updated in a random order."""

    _hyper: HAPPOSettings

    def __init__(self, spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> None:
        """Raises ValueError if the networks do not support the behavior's sensors or actions."""
        hyper = require_settings(settings, HAPPOSettings)
        self._actors, self.critic, parts = central_critic_parts(spec, settings, compute, hyper)
        self._evaluate = partial(log_prob_and_entropy, self._actors)
        super().__init__(settings, compute, parts)

    def update(self, step: int) -> Metrics:
        """Makes ``num_epoch`` passes of each actor and the critic over collected experience, then discards it."""
        hyper = self._hyper
        epochs = self.begin_group_update(step, self._actors, hyper.num_agents)
        rollout, scheduled = epochs.rollout, epochs.scheduled
        targets = self.critic.estimate(rollout, scheduled.epsilon)
        weighted = rollout.weighted(targets.advantages).clone()
        loss = surrogate(self._evaluate, rollout, weighted, scheduled.epsilon, scheduled.beta)
        joint_steps = rollout.joint_steps
        of_step = torch.from_numpy(joint_steps.of_step).to(self._device)
        factor = torch.ones(len(joint_steps), device=self._device)
        deviations: list[float] = []
        agents = self._agent_order()
        for position, agent in enumerate(agents):
            segments = joint_steps.agent_of_segment == agent
            if not segments.any():
                continue
            rows = torch.from_numpy(np.flatnonzero(joint_steps.agent_of_step == agent)).to(self._device)
            # A positive factor may move inside the minimum, since it scales both of its arguments.
            weighted[rows] *= factor[of_step[rows]]
            sampler = self.sampler(rollout.trajectories.select(segments))
            for epoch in range(position * hyper.num_epoch, (position + 1) * hyper.num_epoch):
                total = 2 * len(agents) * hyper.num_epoch
                epochs.actors(loss, epoch, total, sampler, rows)
            with torch.no_grad():
                log_prob, _ = self._evaluate(rollout, rows, sampler.sequences)
                factor[of_step[rows]] *= (log_prob - rollout.old_log_prob[rows]).exp()
            deviations.append(float(factor.std(correction=0)))
        value_loss = partial(self.critic.loss, rollout, targets)
        for epoch in range(hyper.num_epoch, 2 * hyper.num_epoch):
            epochs.critic(value_loss, epoch, 2 * hyper.num_epoch)
        return {
            **epochs.metrics(),
            "Policy/Factor Deviation": float(np.mean(deviations)),
            **targets.metrics,
            **self.finish_update(rollout, scheduled, step),
        }

    def _agent_order(self) -> list[int]:
        if self._hyper.fixed_order:
            return list(range(self._hyper.num_agents))
        order = torch.randperm(self._hyper.num_agents, generator=self._shuffling)
        agents: list[int] = order.tolist()
        return agents
