"""The base of learners from single transitions and the task's rewards."""

from __future__ import annotations

from torch import Tensor

from trainer_service.algorithms.common.acting import to_tensor
from trainer_service.algorithms.common.off_policy.replay_learner import ReplayLearner
from trainer_service.config.hyperparameters.off_policy import OffPolicyHyperparameters
from trainer_service.replay.transitions import Sample, TransitionReplay


class TransitionLearner(ReplayLearner[Sample]):
    """A learner for agents that decide alone. Its replay holds transitions: what an agent saw, did, got, saw next."""

    _hyper: OffPolicyHyperparameters

    def _make_buffer(self) -> TransitionReplay:
        hyper = self._hyper
        return TransitionReplay(
            self._spec,
            hyper.buffer_size,
            alpha=hyper.replay.priority_exponent,
            n_step=hyper.n_step,
            gamma=self._settings.reward_signals["extrinsic"].gamma,
        )

    def _rewards(self, sample: Sample) -> Tensor:
        """Rewards, times the strength of the signal. [B]"""
        strength = self._settings.reward_signals["extrinsic"].strength
        return strength * to_tensor(sample.task_rewards, self._device)

    def _discounts(self, sample: Sample) -> Tensor | float:
        """Discounts of the next observations' values: γ, or γᵏ after k steps. [B]"""
        if sample.discounts is None:
            return self._settings.reward_signals["extrinsic"].gamma
        return to_tensor(sample.discounts, self._device)

    def _importance_weights(self, sample: Sample) -> Tensor | None:
        """Importance weights of prioritized rows; None where all were equally likely. [B]"""
        return None if sample.weights is None else to_tensor(sample.weights, self._device)
