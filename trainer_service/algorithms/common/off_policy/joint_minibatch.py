"""Minibatches of learners of groups: joint steps from the replay buffer as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from trainer_service.algorithms.common.acting import allowed_or_none, to_tensor
from trainer_service.networks.encoders.layers import observations_as_floats
from trainer_service.networks.encoders.normalizer import ObservationNormalizer
from trainer_service.replay.joint_transitions import JointSample
from unity_bridge.steps import Observation


class JointMinibatch(NamedTuple):
    """B joint steps of groups with n agents; see JointSample."""

    observations: list[Tensor]
    """The agents' own observations, normalized, zeros for absent agents: one [B, n, …] per sensor."""

    next_observations: list[Tensor]

    state: Tensor | None
    """The simulator's global state as each agent got it, where there is one. [B, n, S]"""

    next_state: Tensor | None

    present: Tensor
    """bool [B, n]"""

    next_present: Tensor

    actions: Tensor
    """int64 [B, n, branches]"""

    next_allowed: Tensor | None
    """bool [B, n, K]; None where everything is allowed."""

    rewards: Tensor
    """Rewards times the strength of their signal, as all rewards here. [B, n]"""

    team_rewards: Tensor
    """[B]"""

    terminated: Tensor
    """bool [B, n]"""

    discounts: Tensor
    """[B, n]"""

    weights: Tensor | None
    """[B]"""

    share: float = 1.0
    """The share of the minibatch that these rows are, where learner ranks divide it."""

    present_in_all: Tensor | None = None
    """``present`` of the whole minibatch; None where these rows are all of it."""

    @property
    def decisions(self) -> Tensor:
        """How often each agent decides: of the whole minibatch, times the share. [n]"""
        if self.present_in_all is None:
            return self.present.float().sum(dim=0)
        return self.present_in_all.float().sum(dim=0) * self.share


class JointMinibatchBuilder:
    """Builder of minibatches, with the normalizer as it is now."""

    def __init__(
        self,
        normalizer: ObservationNormalizer,
        kept_sensors: Sequence[int],
        agent_sensors: Sequence[int],
        strength: float,
        device: torch.device,
    ) -> None:
        """kept_sensors: those of the learner that a sample has; agent_sensors: those that an agent's network sees.

        At most one is kept that is not seen: the global state. strength: what rewards are multiplied with.
        """
        self._normalizer = normalizer
        self._kept_sensors = kept_sensors
        self._agent_sensors = frozenset(agent_sensors)
        self._strength = strength
        self._device = device

    def build(
        self, sample: JointSample, undivided: JointSample | None = None, share: float = 1.0
    ) -> JointMinibatch:
        """The minibatch of a sample. undivided: the sample of which it is a share; None where it is all."""
        device = self._device
        present, next_present = (to_tensor(mask, device) for mask in (sample.present, sample.next_present))
        observations, state = self._split(sample.observations, present)
        next_observations, next_state = self._split(sample.next_observations, next_present)
        return JointMinibatch(
            observations=observations,
            next_observations=next_observations,
            state=state,
            next_state=next_state,
            present=present,
            next_present=next_present,
            actions=to_tensor(sample.discrete_actions, device),
            next_allowed=allowed_or_none(sample.next_allowed_actions, device),
            rewards=self._strength * to_tensor(sample.rewards, device),
            team_rewards=self._strength * to_tensor(sample.team_rewards, device),
            terminated=to_tensor(sample.terminated, device),
            discounts=to_tensor(sample.discounts, device),
            weights=None if sample.weights is None else to_tensor(sample.weights, device),
            share=share,
            present_in_all=None if undivided is None else to_tensor(undivided.present, device),
        )

    def _split(
        self, observations: Sequence[Observation], present: Tensor
    ) -> tuple[list[Tensor], Tensor | None]:
        """The agents' own observations, and the global state."""
        tensors = observations_as_floats([to_tensor(sensor, self._device) for sensor in observations])
        # The normalizer would shift the zeros of absent agents away from zero.
        inputs = [
            torch.where(present.view(*present.shape, *[1] * (sensor.dim() - 2)), sensor, 0.0)
            for sensor in self._normalizer.some(self._kept_sensors, tensors)
        ]
        numbered = list(zip(self._kept_sensors, inputs, strict=True))
        others = [sensor for number, sensor in numbered if number not in self._agent_sensors]
        seen = [sensor for number, sensor in numbered if number in self._agent_sensors]
        return seen, others[0] if others else None
