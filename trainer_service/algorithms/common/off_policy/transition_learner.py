"""The base of learners from single transitions, with one value for all rewards."""

from __future__ import annotations

from torch import Tensor

from trainer_service.algorithms.common.acting import to_tensor
from trainer_service.algorithms.common.off_policy.encoder_inputs import encoder_inputs
from trainer_service.algorithms.common.off_policy.replay_learner import ReplayLearner
from trainer_service.config.hyperparameters.off_policy import OffPolicyHyperparameters, ReplayHyperparameters
from trainer_service.networks.encoders.memory import EncoderInput
from trainer_service.replay.sequence_replay import PrioritizedSequenceReplay, SequenceReplay
from trainer_service.replay.transitions import Sample, TransitionReplay
from unity_bridge.specs import BehaviorSpec


class TransitionLearner(ReplayLearner[Sample]):
    """A learner for agents that decide alone. Its replay holds transitions: what an agent saw, did, got, saw next."""

    _hyper: OffPolicyHyperparameters

    def _make_buffer(self) -> TransitionReplay:
        return make_transition_replay(
            self._spec, self._hyper, self._policy.memory_size, n_step=self._hyper.n_step, gamma=self._gamma
        )

    def _encoder_inputs(self, sample: Sample) -> tuple[EncoderInput, EncoderInput]:
        """Inputs of the networks for decisions and for the next ones, each with those before it where it remembers."""
        device = self._device
        return encoder_inputs(
            self._normalizer.forward,
            [to_tensor(sensor, device) for sensor in sample.observations],
            [to_tensor(sensor, device) for sensor in sample.next_observations],
            sample.sequences,
            self._hyper.n_step,
        )

    def _rewards(self, sample: Sample) -> Tensor:
        """Rewards of all signals as of now, each times its strength. [B]"""
        rewards = self._task_rewards(sample)
        return rewards + self._model_rewards(sample.rows, len(rewards)) if self._reward_models else rewards

    def _task_rewards(self, sample: Sample) -> Tensor:
        """The task's rewards, times the strength of their signal. [B]"""
        return self._task_strength * to_tensor(sample.task_rewards, self._device)

    def _discounts(self, sample: Sample) -> Tensor | float:
        """Discounts of the next observations' values: γ, or γᵏ after k steps. [B]"""
        if sample.discounts is None:
            return self._gamma
        return to_tensor(sample.discounts, self._device)

    def _importance_weights(self, sample: Sample) -> Tensor | None:
        """Importance weights of prioritized rows; None where all were equally likely. [B]"""
        return None if sample.weights is None else to_tensor(sample.weights, self._device)


def make_transition_replay(
    spec: BehaviorSpec,
    hyper: ReplayHyperparameters,
    memory_size: int,
    *,
    n_step: int = 1,
    gamma: float = 1.0,
) -> TransitionReplay:
    """An empty replay of transitions, or of sequences where networks remember so many floats."""
    capacity, alpha = hyper.buffer_size, hyper.replay.priority_exponent
    if not memory_size:
        return TransitionReplay(spec, capacity, alpha=alpha, n_step=n_step, gamma=gamma)
    if alpha is None:
        return SequenceReplay(spec, capacity, memory_size, n_step=n_step, gamma=gamma)
    return PrioritizedSequenceReplay(spec, capacity, memory_size, alpha, n_step=n_step, gamma=gamma)
