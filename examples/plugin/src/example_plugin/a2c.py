"""Advantage actor-critic, Mnih et al. 2016 (arXiv:1602.01783), on all simulators in step.

From top to bottom: networks and actor, collecting, learning, saving. ``Learner`` has what is not here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from example_plugin.settings import A2CSettings
from trainer_service.config import TrainerSettings
from trainer_service.learning.algorithms.common import reward_models
from trainer_service.learning.algorithms.common.acting import to_tensor
from trainer_service.learning.algorithms.common.actor import Actor
from trainer_service.learning.algorithms.common.checks import require_settings
from trainer_service.learning.algorithms.common.learner import Compute, Learner, Metrics
from trainer_service.learning.algorithms.common.on_policy.learner import from_tensors, to_tensors
from trainer_service.learning.algorithms.common.schedules import learning_rate_at
from trainer_service.learning.networks.encoders.normalizer import ObservationNormalizer
from trainer_service.learning.networks.policies.action_heads import clip_actions
from trainer_service.learning.networks.policies.actor_critic import ActorCritic
from trainer_service.learning.networks.random_streams import random_stream, restore_streams, seeded
from trainer_service.learning.rewards import Experience
from trainer_service.learning.rollout.trajectories import OnPolicyBuffer, Trajectories
from trainer_service.ops.returns import ragged_generalized_advantage, standardize
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import Observation


class A2C(Learner):
    """One behavior's policy and critic, learned by plain policy gradients."""

    def __init__(self, spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> None:
        """Raises ValueError where the behavior has sensors or actions that the networks cannot take."""
        if compute.shard.world > 1:
            raise ValueError("a2c learns on one learner rank: expected num_learners 1")
        self._hyper = require_settings(settings, A2CSettings)
        self._settings = settings
        self._device = compute.device
        self.horizon = settings.time_horizon
        with seeded(compute.seed):  # weights follow from the seed, and nobody else's draws move
            self._network = ActorCritic(spec, settings.network_settings, value_heads=1, shared_critic=False)
            self._network.to(self._device)
            self._rewards = reward_models.make_reward_sources(spec, settings, self._device)
        self._learned_rewards = [source for source in self._rewards if source.learns]
        self._normalizer = ObservationNormalizer(
            spec.observation_specs, normalize=settings.network_settings.normalize
        ).to(self._device)
        self._optimizer = torch.optim.Adam(self._network.parameters(), self._hyper.learning_rate)
        self.actor = Actor(self._network, self._normalizer, random_stream(compute.seed + 1), self._device)
        self._shuffling = random_stream(compute.seed + 2)
        self._buffer = OnPolicyBuffer()

    def record(self, trajectories: Trajectories) -> None:
        """Adds experience for the next update, and lets the normalizer see it."""
        self._buffer.add(trajectories)
        self.actor.update_normalizer(trajectories)

    def ready(self) -> bool:
        """Whether ``buffer_size`` steps are there."""
        return len(self._buffer) >= self._hyper.buffer_size

    def collected(self) -> tuple[int, int]:
        """Steps in the buffer, and ``buffer_size``."""
        return len(self._buffer), self._hyper.buffer_size

    def update(self, step: int) -> Metrics:
        """One pass over everything collected, which is then thrown away."""
        rate = learning_rate_at(self._hyper, step, self._settings.max_steps)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        trajectories = self._buffer.drain()
        experience = Experience(trajectories, self._device, clip_actions)
        observations = self._normalized(trajectories.observations)
        advantages, returns = self._estimate(trajectories, experience, observations)
        continuous = self._tensor(trajectories.continuous_actions)
        discrete = self._tensor(trajectories.discrete_actions)
        allowed = self._tensor(trajectories.allowed_actions)
        losses = []
        order = torch.randperm(len(trajectories), generator=self._shuffling).to(self._device)
        for rows in order.split(self._hyper.batch_size):
            seen = [sensor[rows] for sensor in observations]
            parameters, values = self._network.policy_and_values(seen)
            heads = self._network.actions
            log_prob = heads.log_prob(parameters, allowed[rows], continuous[rows], discrete[rows])
            policy_loss = -(log_prob * advantages[rows]).mean()
            value_loss = (values[:, 0] - returns[rows]).square().mean()
            entropy = heads.entropy(parameters, allowed[rows])
            self._step(policy_loss + self._hyper.value_coefficient * value_loss - self._hyper.beta * entropy)
            losses.append(torch.stack([policy_loss, value_loss, entropy]).detach())
        policy_loss, value_loss, entropy = torch.stack(losses).mean(dim=0).tolist()
        return {
            "Losses/Policy Loss": policy_loss,
            "Losses/Value Loss": value_loss,
            "Policy/Entropy": entropy,
            "Policy/Learning Rate": rate,
            **self._update_rewards(experience),
        }

    def _estimate(
        self, trajectories: Trajectories, experience: Experience, observations: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Standardized advantages and returns by the critic as it is now. Shapes [S]."""
        rewards = np.zeros(len(trajectories), np.float32)
        for source in self._rewards:
            rewards += source.strength * source.record(experience)
        values = self._network.values(observations)[:, 0].cpu().numpy()
        bootstrap = self._network.values(self._normalized(trajectories.final_observations))
        at_end = np.where(trajectories.terminated, 0.0, bootstrap[:, 0].cpu().numpy())
        advantages = ragged_generalized_advantage(
            rewards,
            values,
            at_end.astype(np.float32),
            trajectories.lengths,
            discount=self._rewards[0].gamma,
            gae_lambda=self._hyper.lambd,
        )
        return self._tensor(standardize(advantages)), self._tensor(advantages + values)

    def _step(self, loss: Tensor) -> None:
        self._optimizer.zero_grad()
        loss.backward()
        if self._hyper.max_grad_norm is not None:
            torch.nn.utils.clip_grad_norm_(self._network.parameters(), self._hyper.max_grad_norm)
        self._optimizer.step()

    def _update_rewards(self, experience: Experience) -> Metrics:
        """Lets curiosity and the like learn from the rollout, once."""
        return reward_models.update(
            self._learned_rewards,
            experience,
            epochs=1,
            batch_size=self._hyper.batch_size,
            generator=self._shuffling,
        )

    def state_dict(self) -> dict[str, Any]:
        """The state of a resumed run, which continues bit for bit."""
        collected = self._buffer.peek()
        return {
            "network": self._network.state_dict(),
            "normalizer": self._normalizer.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "acting": self.actor.stream.get_state(),
            "shuffling": self._shuffling.get_state(),
            "collected": None if collected is None else to_tensors(collected),
            **reward_models.state_dict(self._rewards, None),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from there."""
        reward_models.require_same_signals(self._rewards, state)
        self.load_weights(state)
        reward_models.load_state_dict(self._rewards, None, state)
        self._optimizer.load_state_dict(state["optimizer"])
        restore_streams({"acting": self.actor.stream, "shuffling": self._shuffling}, state)
        self._buffer = OnPolicyBuffer()
        if state["collected"] is not None:
            self._buffer.add(from_tensors(state["collected"]))

    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Takes networks and normalizer only."""
        self._network.load_state_dict(state["network"])
        self._normalizer.load_state_dict(state["normalizer"])
        reward_models.load_weights(self._rewards, state)

    def _normalized(self, observations: Sequence[Observation]) -> list[Tensor]:
        return self._normalizer.forward([self._tensor(sensor) for sensor in observations])

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return to_tensor(array, self._device)
