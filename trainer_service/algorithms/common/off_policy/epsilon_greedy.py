"""How much a learner of action values tries out, measured by what it has lived through."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from trainer_service.algorithms.common.schedules import linear_decay
from trainer_service.config.hyperparameters.off_policy import ExplorationSettings
from trainer_service.networks.policies.action_heads import ActionParameters
from trainer_service.networks.policies.q_network import GreedyChoices
from trainer_service.ops.q_learning import exploring
from trainer_service.rollout.trajectories import Trajectories


class EpsilonGreedy:
    """ε falls from its first value straight to its last one, over agent steps or over agents' finished episodes."""

    def __init__(self, settings: ExplorationSettings) -> None:
        self._settings = settings
        self._done = {"steps": 0, "episodes": 0}

    @property
    def epsilon(self) -> float:
        """Share of random actions now."""
        settings = self._settings
        done = self._done[settings.exploration_unit]
        return linear_decay(
            settings.exploration_initial, settings.exploration_final, done, settings.exploration_steps
        )

    def sample_actions(
        self,
        heads: GreedyChoices,
        generator: torch.Generator,
        parameters: ActionParameters,
        allowed: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As ``heads.most_likely``, but each agent for itself at random now and then."""
        continuous, best, log_probs = heads.most_likely(parameters, allowed)
        if allowed is None:
            allowed = torch.ones_like(parameters.logits, dtype=torch.bool)
        # How likely an action was is of no use to who learns off-policy.
        return continuous, exploring(best, allowed, self.epsilon, generator, heads.branches), log_probs

    def record(self, trajectories: Trajectories) -> None:
        """Counts experience in."""
        self._done["steps"] += len(trajectories)
        if trajectories.ended is not None:
            self._done["episodes"] += int(np.count_nonzero(trajectories.ended))

    def state_dict(self) -> dict[str, int]:
        """What was counted."""
        return dict(self._done)

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Goes on from there. Raises KeyError where it is no such count."""
        self._done = {unit: int(state[unit]) for unit in self._done}
