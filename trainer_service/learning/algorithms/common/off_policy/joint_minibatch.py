"""Minibatches of group learners: joint steps of the replay buffer as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from trainer_service.learning.algorithms.common.acting import allowed_or_none, to_tensor
from trainer_service.learning.algorithms.common.learner import Compute
from trainer_service.learning.algorithms.common.off_policy.joint_layout import joint_layout
from trainer_service.learning.algorithms.common.off_policy.replay_rewards import ReplayRewards
from trainer_service.learning.algorithms.common.off_policy.replay_sampler import ReplaySampler
from trainer_service.learning.networks.encoders.layers import observations_as_floats
from trainer_service.learning.networks.encoders.memory import Sequences
from trainer_service.learning.networks.encoders.normalizer import ObservationNormalizer
from trainer_service.learning.networks.groups.histories import GroupInput, Histories
from trainer_service.learning.replay.joint_transitions import JointSample
from unity_bridge.arrays import Bools
from unity_bridge.steps import Observation


class JointMinibatch(NamedTuple):
    """B joint steps of groups with n agents; see JointSample."""

    observations: list[Tensor]
    """The agents' own observations, normalized, zeros for absent agents: one [B, n, …] per sensor."""

    next_observations: list[Tensor]

    state: Tensor | None
    """The simulator's global state for each agent, if any. [B, n, S]"""

    next_state: Tensor | None

    present: Tensor
    """bool [B, n]"""

    next_present: Tensor

    continuous_actions: Tensor
    """[B, n, C]"""

    actions: Tensor
    """int64 [B, n, branches]"""

    allowed: Tensor | None
    """bool [B, n, K]; None where everything is allowed."""

    next_allowed: Tensor | None

    rewards: Tensor
    """Rewards times their strengths, like all rewards here. [B, n]"""

    summed_rewards: Tensor
    """[B]"""

    terminated: Tensor
    """bool [B, n]"""

    discounts: Tensor
    """[B, n]"""

    weights: Tensor | None
    """[B]"""

    share: float = 1.0
    """The share of these rows in the minibatch, which learner ranks divide."""

    present_in_all: Tensor | None = None
    """``present`` of the whole minibatch; None if these rows are all of it."""

    recurrent: tuple[GroupInput, GroupInput] | None = None
    """With memory, inputs of the decisions and of the next ones, with all earlier observations."""

    @property
    def inputs(self) -> GroupInput:
        """Inputs of the agents' networks for their decisions."""
        return GroupInput(self.observations) if self.recurrent is None else self.recurrent[0]

    @property
    def next_inputs(self) -> GroupInput:
        """Inputs of the agents' networks for the next observations."""
        return GroupInput(self.next_observations) if self.recurrent is None else self.recurrent[1]

    @property
    def decisions(self) -> Tensor:
        """Number of each agent's decisions in the whole minibatch, times the share. [n]"""
        if self.present_in_all is None:
            return self.present.float().sum(dim=0)
        return self.present_in_all.float().sum(dim=0) * self.share


class TDErrors(NamedTuple):
    """Temporal-difference errors of a minibatch of B joint steps."""

    loss: Tensor
    """The minimized loss."""

    squared: Tensor
    """The mean of δ²."""

    squared_by_agent: Tensor
    """Mean δ² of each agent of the group. [n]; [0] if there is only an error of the group."""

    absolute: Tensor
    """|δ|, averaged over agents. [B]"""

    value: Tensor
    """Mean value of the actions taken."""

    target: Tensor
    """Mean target."""


class JointMinibatchBuilder:
    """Makes minibatches with the present normalizer and rewards."""

    def __init__(
        self,
        normalizer: ObservationNormalizer,
        kept_sensors: Sequence[int],
        agent_sensors: Sequence[int],
        rewards: ReplayRewards,
        replay: ReplaySampler[JointSample],
        compute: Compute,
        *,
        team: bool,
    ) -> None:
        """kept_sensors: numbers of a sample's sensors. agent_sensors: numbers of the sensors of an agent's network.

        At most one kept sensor is not an agent's: the global state. team: whether all agents learn from the sum of
        rewards.
        """
        self._normalizer = normalizer
        self._kept_sensors = kept_sensors
        self._agent_sensors = frozenset(agent_sensors)
        self._rewards = rewards
        self._replay = replay
        self._world = compute.shard.world
        self._device = compute.device
        self._team = team

    def newest(self, sample: JointSample) -> JointMinibatch:
        """Makes the newest sample's minibatch with current model rewards; with several ranks, this rank's part."""
        if self._world == 1:
            batch = self.build(sample)
        else:
            batch = self.build(sample, self._replay.undivided, self._replay.part.share)
        if not self._rewards.models:
            return batch
        # Each agent gets its own reward, like the task's rewards.
        rewards = self._rewards.of_models(self._replay, sample.rows, *batch.rewards.shape)
        if self._team:
            return batch._replace(summed_rewards=batch.summed_rewards + rewards.sum(dim=1))
        return batch._replace(rewards=batch.rewards + rewards)

    def build(
        self, sample: JointSample, undivided: JointSample | None = None, share: float = 1.0
    ) -> JointMinibatch:
        """Makes the minibatch of a sample, with the task's rewards.

        undivided: the whole sample, if this is a share of it; otherwise None.
        """
        device, strength = self._device, self._rewards.task_strength
        observations, state = self._split(sample.observations, sample.present)
        next_observations, next_state = self._split(sample.next_observations, sample.next_present)
        return JointMinibatch(
            observations=observations,
            next_observations=next_observations,
            state=state,
            next_state=next_state,
            present=to_tensor(sample.present, device),
            next_present=to_tensor(sample.next_present, device),
            continuous_actions=to_tensor(sample.continuous_actions, device),
            actions=to_tensor(sample.discrete_actions, device),
            allowed=allowed_or_none(sample.allowed_actions, device),
            next_allowed=allowed_or_none(sample.next_allowed_actions, device),
            rewards=strength * to_tensor(sample.rewards, device),
            summed_rewards=strength * to_tensor(sample.summed_rewards, device),
            terminated=to_tensor(sample.terminated, device),
            discounts=to_tensor(sample.discounts, device),
            weights=None if sample.weights is None else to_tensor(sample.weights, device),
            share=share,
            present_in_all=None if undivided is None else to_tensor(undivided.present, device),
            recurrent=None if sample.sequences is None else self._recurrent(sample, observations),
        )

    def _recurrent(self, sample: JointSample, observations: list[Tensor]) -> tuple[GroupInput, GroupInput]:
        """Inputs with all earlier observations. observations: of the sample, normalized."""
        if sample.sequences is None:
            raise ValueError("the joint steps of this sample do not follow each other")
        device, layout = self._device, joint_layout(sample.sequences, sample.present)
        follow_present = sample.sequences.follow_present[layout.follows]
        followed, _ = self._split(
            [sensor[layout.follows] for sensor in sample.sequences.follow_observations], follow_present
        )
        present = torch.cat([to_tensor(mask, device) for mask in (sample.present, follow_present)])
        seen = [torch.cat([*both]) for both in zip(observations, followed, strict=True)]
        rows, agents, selected, next_selected = (
            to_tensor(places, device)
            for places in (layout.rows, layout.agents, layout.selected, layout.next_selected)
        )
        sequences = Sequences(to_tensor(layout.memories, device), to_tensor(layout.filled, device))
        return (
            GroupInput(seen, Histories(rows, agents, sequences, selected, present)),
            GroupInput(seen, Histories(rows, agents, sequences, next_selected, present)),
        )

    def _split(
        self, observations: Sequence[Observation], present: Bools
    ) -> tuple[list[Tensor], Tensor | None]:
        """Returns the agents' own observations, and the global state."""
        tensors = observations_as_floats([to_tensor(sensor, self._device) for sensor in observations])
        inputs = self._normalizer.some(self._kept_sensors, tensors)
        if not present.all():
            # The normalizer changed the zeros of absent agents.
            there = to_tensor(present, self._device)
            inputs = [
                torch.where(there.view(*there.shape, *[1] * (sensor.dim() - 2)), sensor, 0.0)
                for sensor in inputs
            ]
        numbered = list(zip(self._kept_sensors, inputs, strict=True))
        others = [sensor for number, sensor in numbered if number not in self._agent_sensors]
        seen = [sensor for number, sensor in numbered if number in self._agent_sensors]
        return seen, others[0] if others else None
