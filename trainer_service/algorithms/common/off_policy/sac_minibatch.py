"""Minibatches of soft actor-critic: transitions or sequences from the replay buffer as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from trainer_service.algorithms.common.acting import allowed_or_none, to_tensor
from trainer_service.algorithms.common.off_policy.encoder_inputs import encoder_inputs
from trainer_service.algorithms.common.off_policy.replay_rewards import as_transitions
from trainer_service.networks.encoders.layers import observations_as_floats
from trainer_service.networks.encoders.memory import EncoderInput
from trainer_service.networks.encoders.normalizer import ObservationNormalizer
from trainer_service.replay.transitions import Sample
from trainer_service.rewards import RewardSource


class SACMinibatch(NamedTuple):
    """B transitions, S reward signals."""

    inputs: EncoderInput
    """Inputs of the decisions."""

    next_inputs: EncoderInput
    """Inputs of the next decisions."""

    continuous_actions: Tensor

    discrete_actions: Tensor
    """Choices, counted from the first of all branches. int64 [B, branches]"""

    allowed: Tensor
    """bool [B, K]"""

    allowed_or_none: Tensor | None
    """``allowed``, or None where everything is."""

    next_allowed_or_none: Tensor | None

    rewards: Tensor
    """Rewards as the sources see them now, times their strengths. [B, S]"""

    continues: Tensor
    """0 where the next value does not count, else 1. [B, S]"""

    weights: Tensor | None
    """[B]"""


class SACMinibatchBuilder:
    """Builder of minibatches, with normalizer and reward sources as they are now."""

    def __init__(
        self,
        normalizer: ObservationNormalizer,
        rewards: Sequence[RewardSource],
        offsets: Tensor,
        device: torch.device,
    ) -> None:
        """offsets: where each branch's choices start among all. int64 [branches]"""
        self._normalizer = normalizer
        self._rewards = rewards
        self._offsets = offsets
        self._device = device
        self._ends = to_tensor(np.array([not source.ignores_end for source in rewards], np.float32), device)

    def build(self, sample: Sample) -> SACMinibatch:
        """The minibatch of a sample, with rewards as of now."""
        transitions = as_transitions(sample, self._device)
        rewards = [source.strength * source.rewards(transitions) for source in self._rewards]
        terminated = transitions.terminated.unsqueeze(-1)
        inputs, next_inputs = encoder_inputs(
            self._inputs, transitions.observations, transitions.next_observations, sample.sequences
        )
        return SACMinibatch(
            inputs=inputs,
            next_inputs=next_inputs,
            continuous_actions=transitions.continuous_actions,
            discrete_actions=transitions.discrete_actions + self._offsets,
            allowed=to_tensor(sample.allowed_actions, self._device),
            allowed_or_none=allowed_or_none(sample.allowed_actions, self._device),
            next_allowed_or_none=allowed_or_none(sample.next_allowed_actions, self._device),
            rewards=torch.stack(rewards, dim=-1),
            continues=1.0 - terminated * self._ends,
            weights=None if sample.weights is None else to_tensor(sample.weights, self._device),
        )

    def _inputs(self, observations: Sequence[Tensor]) -> list[Tensor]:
        return observations_as_floats(self._normalizer.forward(observations))
