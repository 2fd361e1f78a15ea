"""Multi-agent PPO, Yu et al. 2022 (arXiv:2103.01955): PPO with a critic of all agents' observations.

Advantages are estimated once per update, as in the authors' code, or again for every epoch. The critic's outputs are in
units of the running scale of returns. Unlike in the authors' code, nothing is stored for dead agents: an absent agent
is in no loss, and the critic's inputs have zeros for it.
"""

from __future__ import annotations

from functools import partial

from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.on_policy import MAPPOSettings
from trainer_service.learning.algorithms.common.checks import require_settings
from trainer_service.learning.algorithms.common.learner import Compute, Metrics
from trainer_service.learning.algorithms.common.on_policy.central_critic import central_critic_parts
from trainer_service.learning.algorithms.common.on_policy.learner import OnPolicyLearner
from trainer_service.learning.algorithms.common.on_policy.rollout import log_prob_and_entropy
from trainer_service.learning.algorithms.common.on_policy.update import surrogate
from unity_bridge.specs import BehaviorSpec


class MAPPO(OnPolicyLearner):
    """PPO with a central critic and decentralized actors."""

    _hyper: MAPPOSettings

    def __init__(self, spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> None:
        """Raises ValueError if the networks do not support the behavior's sensors or actions."""
        hyper = require_settings(settings, MAPPOSettings)
        self._actors, self.critic, parts = central_critic_parts(spec, settings, compute, hyper)
        self._evaluate = partial(log_prob_and_entropy, self._actors)
        super().__init__(settings, compute, parts)

    def update(self, step: int) -> Metrics:
        """Makes ``num_epoch`` passes of actors and critic over the collected experience, which is then discarded."""
        hyper = self._hyper
        epochs = self.begin_group_update(step, self._actors, hyper.num_agents)
        rollout, scheduled = epochs.rollout, epochs.scheduled
        targets = self.critic.estimate(rollout, scheduled.epsilon)
        metrics, total = targets.metrics, 2 * hyper.num_epoch
        for epoch in range(total):
            # Actors and critic alternate, or all epochs of the actors come first, with the unchanged critic.
            if epoch % 2 == 0 if hyper.estimates_every_epoch else epoch < hyper.num_epoch:
                if epoch and hyper.estimates_every_epoch:
                    targets = self.critic.estimate(rollout, scheduled.epsilon)
                weighted = rollout.weighted(targets.advantages)
                loss = surrogate(self._evaluate, rollout, weighted, scheduled.epsilon, scheduled.beta)
                epochs.actors(loss, epoch, total, rollout.sampler)
            else:
                value_loss = partial(self.critic.loss, rollout, targets)
                epochs.critic(value_loss, epoch, total)
        return {
            **epochs.metrics(),
            **metrics,
            **self.finish_update(rollout, scheduled, step),
        }
