"""Heterogeneous-agent PPO, Kuba et al. 2022 (arXiv:2109.11251): MAPPO with agents that learn in turn.

Each agent's surrogate is weighted by how much those before it have changed what they do since. So every step improves
the team as a whole, whichever agent's turn it is.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

from trainer_service.algorithms.common.checks import require_settings
from trainer_service.algorithms.common.learner import Compute, Metrics
from trainer_service.algorithms.common.on_policy.central_critic import central_critic_parts
from trainer_service.algorithms.common.on_policy.learner import OnPolicyLearner
from trainer_service.algorithms.common.on_policy.rollout import (
    decouple,
    log_prob_and_entropy,
)
from trainer_service.algorithms.common.on_policy.update import GroupEpochs, surrogate
from trainer_service.algorithms.common.schedules import critic_learning_rate_at, scheduled_at
from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.on_policy import HAPPOSettings
from unity_bridge.specs import BehaviorSpec


class HAPPO(OnPolicyLearner):
    """PPO with a central critic and an actor for each agent, updated in a random order."""

    _hyper: HAPPOSettings

    def __init__(self, spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> None:
        """Raises ValueError where the behavior has sensors or actions that the networks cannot take."""
        hyper = require_settings(settings, HAPPOSettings)
        self._actors, self.critic, parts = central_critic_parts(spec, settings, compute, hyper)
        super().__init__(settings, compute, parts)

    def update(self, step: int) -> Metrics:
        """``num_epoch`` passes of each actor and of the critic over everything collected, which is then thrown away."""
        hyper = self._hyper
        scheduled = scheduled_at(hyper, step, self._settings.max_steps)
        critic_rate = critic_learning_rate_at(hyper, step, self._settings.max_steps)
        rollout = self.take_group_rollout(hyper.num_agents)
        if self._decoupled:
            rollout = decouple(rollout, self._actors)
        targets = self.critic.estimate(rollout, scheduled.epsilon)
        evaluate = partial(log_prob_and_entropy, self._actors, rollout)
        epochs = GroupEpochs(self.optimizers, self._shuffling, self._progress, hyper.max_grad_norm)
        weighted = rollout.weighted(targets.advantages).clone()
        loss = surrogate(evaluate, rollout, weighted, scheduled.epsilon, scheduled.beta)
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
            # A positive factor may as well stand inside the minimum: it scales both of its sides.
            weighted[rows] *= factor[of_step[rows]]
            sampler = self.sampler(rollout.trajectories.select(segments))
            for epoch in range(position * hyper.num_epoch, (position + 1) * hyper.num_epoch):
                total = 2 * len(agents) * hyper.num_epoch
                epochs.actors(sampler, loss, scheduled.learning_rate, epoch, total, rows)
            with torch.no_grad():
                log_prob, _ = evaluate(rows, sampler.sequences)
                factor[of_step[rows]] *= (log_prob - rollout.old_log_prob[rows]).exp()
            deviations.append(float(factor.std(correction=0)))
        value_loss = partial(self.critic.loss, rollout, targets)
        for epoch in range(hyper.num_epoch, 2 * hyper.num_epoch):
            epochs.critic(rollout, value_loss, critic_rate, epoch, 2 * hyper.num_epoch)
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
