"""Proximal policy optimization, Schulman et al. 2017 (arXiv:1707.06347), with ML-Agents' settings.

Top to bottom as in the paper's algorithm 1: act with the old policy, estimate advantages, then take some
epochs of minibatch steps on the clipped surrogate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer_service.algorithms.common import reward_models
from trainer_service.algorithms.common.acting import clip_actions, sample_actions
from trainer_service.algorithms.common.algorithm import Compute, Metrics
from trainer_service.algorithms.common.checks import require_settings
from trainer_service.algorithms.common.cloning import BehavioralCloning
from trainer_service.algorithms.common.on_policy.minibatches import (
    MinibatchSampler,
    make_sampler,
    with_progress,
)
from trainer_service.algorithms.common.on_policy.trajectory_state import from_tensors, to_tensors
from trainer_service.algorithms.common.policy_network import PolicyNetwork
from trainer_service.algorithms.common.schedules import Scheduled, scheduled_at
from trainer_service.algorithms.common.tensors import to_tensor
from trainer_service.config import PPOSettings, TrainerSettings
from trainer_service.networks.encoders.memory import Sequences
from trainer_service.networks.encoders.normalizer import ObservationNormalizer
from trainer_service.networks.flat import FlatAdam, FlatParameters
from trainer_service.networks.policies.action_heads import executed
from trainer_service.networks.policies.actor_critic import ActorCritic, batched_values
from trainer_service.ops.losses import PPOBatch, ppo_gradients
from trainer_service.ops.returns import ragged_generalized_advantage, standardize
from trainer_service.rewards import Experience
from trainer_service.rollout.assembler import Decisions
from trainer_service.rollout.trajectories import OnPolicyBuffer, Trajectories
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import Observation

_VALUE_COEFFICIENT = 0.5


class PPO:
    """One behavior's policy, critic and update rule."""

    def __init__(self, spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> None:
        """Raises ValueError where the behavior has sensors or actions that the networks cannot take."""
        hyper = require_settings(settings, PPOSettings)
        self._spec = spec
        self._settings = settings
        self._hyper = hyper
        self.horizon = settings.time_horizon
        self._device = compute.device
        self._progress = compute.progress
        network = settings.network_settings
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(compute.seed)
            self._network = ActorCritic(
                spec,
                network,
                value_heads=len(settings.reward_signals),
                shared_critic=hyper.shared_critic,
            ).to(self._device)
            self._rewards = reward_models.make_reward_sources(spec, settings, self._device)
        self._learned_rewards = [source for source in self._rewards if source.learns]
        self._heads_zero_at_end = np.array([not source.ignores_end for source in self._rewards])
        self.memory_size = self._network.memory_size
        self._normalizer = ObservationNormalizer(spec.observation_specs, normalize=network.normalize)
        self._normalizer.to(self._device)
        self._parameters = FlatParameters(self._network.parameters())
        self._optimizer = FlatAdam(self._parameters)
        # Acting and shuffling draw from streams of their own, so that neither depends on how often the
        # other was called.
        self._acting = torch.Generator(self._device).manual_seed(compute.seed + 1)
        self._shuffling = torch.Generator(self._device).manual_seed(compute.seed + 2)
        self._buffer = OnPolicyBuffer()
        self._cloning: BehavioralCloning | None = None
        if settings.behavioral_cloning is not None:
            self._cloning = BehavioralCloning(
                spec, settings, self._network, self._parameters, self._normalizer, compute
            )

    def prepare(self, step: int) -> None:
        """Reads demonstrations where something is still learned from them. Raises UserError where they are no good."""
        reward_models.read_demonstrations(self._rewards, self._cloning, step)

    def act(
        self,
        observations: Sequence[Observation],
        allowed_actions: NDArray[np.bool_],
        memories: NDArray[np.float32],
        *,
        deterministic: bool,
    ) -> Decisions:
        """Decides for M agents in one forward pass.

        ``memories`` may be the policy's part alone (see ActorCritic.step), if nothing is learned from this.
        """
        heads = self._network.actions
        return sample_actions(
            self._network,
            self._normalizer.forward,
            observations,
            allowed_actions,
            memories,
            device=self._device,
            sample=heads.most_likely if deterministic else partial(heads.sample, generator=self._acting),
        )

    def env_actions(self, decisions: Decisions) -> NDArray[np.float32]:
        """Between −1 and 1."""
        return clip_actions(decisions)

    def record(self, trajectories: Trajectories) -> None:
        """Adds experience of the present policy, and lets the normalizer see it."""
        self._buffer.add(trajectories)
        self._normalizer.update([self._tensor(sensor) for sensor in trajectories.observations])

    def ready(self) -> bool:
        """``buffer_size`` steps are there."""
        return len(self._buffer) >= self._hyper.buffer_size

    def collected(self) -> tuple[int, int]:
        """Of ``buffer_size``."""
        return len(self._buffer), self._hyper.buffer_size

    def update(self, step: int) -> Metrics:
        """``num_epoch`` passes over everything collected, which is then thrown away."""
        scheduled = scheduled_at(self._hyper, step, self._settings.max_steps)
        experience = Experience(self._buffer.drain(), self._device, executed)
        rollout = self._as_tensors(experience)
        losses = torch.zeros(5, device=self._device)
        minibatches = 0
        estimates: list[Metrics] = []
        for epoch in range(self._hyper.num_epoch):
            # Advantages come anew with each epoch's better critic (Andrychowicz et al. 2021, arXiv:2006.05990,
            # section 3.5). On 3dball that saves about a tenth of the steps to a mean return of 90.
            targets, estimate = self._estimate(rollout)
            estimates.append(estimate)
            value_clip_range = scheduled.epsilon * _return_range(targets)
            for inputs, batch, sequences in self._minibatches(rollout, targets, epoch):
                losses += self._step(inputs, batch, sequences, scheduled, value_clip_range)
                minibatches += 1
        policy_loss, value_loss, entropy, clipped, kl = (losses / minibatches).tolist()
        return {
            "Losses/Policy Loss": policy_loss,
            "Losses/Value Loss": value_loss,
            "Policy/Entropy": entropy,
            "Policy/Learning Rate": scheduled.learning_rate,
            "Policy/Epsilon": scheduled.epsilon,
            "Policy/Beta": scheduled.beta,
            "Policy/Clip Fraction": clipped,
            "Policy/KL Divergence": kl,
            **estimates[0],
            **self._update_reward_models(experience),
            **({} if self._cloning is None else self._cloning.update(step)),
        }

    def _update_reward_models(self, experience: Experience) -> Metrics:
        """As often as the policy learned, from minibatches as large."""
        hyper = self._hyper
        return reward_models.update(
            self._learned_rewards,
            experience,
            epochs=hyper.num_epoch,
            batch_size=hyper.batch_size,
            generator=self._shuffling,
        )

    def _as_tensors(self, experience: Experience) -> _Rollout:
        """What stays the same over all epochs of an update."""
        trajectories = experience.trajectories
        return _Rollout(
            trajectories=trajectories,
            rewards=[source.strength * source.record(experience) for source in self._rewards],
            observations=self._normalizer.forward(
                [self._tensor(sensor) for sensor in trajectories.observations]
            ),
            final=self._normalizer.forward(
                [self._tensor(sensor) for sensor in trajectories.final_observations]
            ),
            continuous_actions=self._tensor(trajectories.continuous_actions),
            discrete_actions=self._tensor(trajectories.discrete_actions) + self._network.actions.offsets,
            allowed_actions=self._tensor(trajectories.allowed_actions),
            old_log_prob=self._tensor(trajectories.log_probs),
            order=self._order(trajectories),
        )

    def _order(self, trajectories: Trajectories) -> MinibatchSampler:
        memory = self._settings.network_settings.memory
        return make_sampler(trajectories, memory, self._hyper.batch_size, self._device)

    def _estimate(self, rollout: _Rollout) -> tuple[PPOBatch, Metrics]:
        """Advantages and returns by the critic as it is now."""
        trajectories = rollout.trajectories
        order = rollout.order
        values = batched_values(self._network, rollout.observations, sequences=order.sequences).cpu().numpy()
        bootstrap = (
            batched_values(self._network, rollout.final, sequences=order.final_sequences).cpu().numpy()
        )
        bootstrap[trajectories.terminated[:, None] & self._heads_zero_at_end] = 0.0
        advantages = np.empty_like(values)
        metrics: dict[str, float] = {}
        for head, (source, rewards) in enumerate(zip(self._rewards, rollout.rewards, strict=True)):
            advantages[:, head] = ragged_generalized_advantage(
                rewards,
                values[:, head],
                bootstrap[:, head],
                trajectories.lengths,
                discount=source.gamma,
                gae_lambda=self._hyper.lambd,
            )
            label = source.name.capitalize()
            metrics[f"Policy/{label} Value Estimate"] = float(values[:, head].mean())
            metrics[f"Policy/{label} Reward"] = float(rewards.sum() / len(trajectories.lengths))
        targets = PPOBatch(
            continuous_actions=rollout.continuous_actions,
            discrete_actions=rollout.discrete_actions,
            allowed_actions=rollout.allowed_actions,
            old_log_prob=rollout.old_log_prob,
            # Normalized over the rollout: in small minibatches the mean would be mostly noise. Signals add
            # up before that, so their strengths decide how they weigh against each other.
            advantage=self._tensor(standardize(advantages.sum(axis=1))),
            old_value=self._tensor(values),
            return_=self._tensor(advantages + values),
        )
        return targets, metrics

    def _minibatches(
        self, rollout: _Rollout, targets: PPOBatch, epoch: int
    ) -> Iterator[tuple[list[Tensor], PPOBatch, Sequences | None]]:
        """One epoch in random order."""
        observations = rollout.observations
        order, minibatches = rollout.order.shuffle(self._shuffling)
        # Numbers are shuffled once as a whole, so that a minibatch is a slice and no gather. Pictures are not:
        # a second copy of them all is what memory may not have.
        shuffled = [sensor[order] if sensor.dim() == 2 else None for sensor in observations]
        columns = [column[order] for column in targets]
        for chunk, sequences in with_progress(minibatches, epoch, self._hyper.num_epoch, self._progress):
            yield (
                [
                    sensor[order[chunk]] if already is None else already[chunk]
                    for sensor, already in zip(observations, shuffled, strict=True)
                ],
                PPOBatch(*(column[chunk] for column in columns)),
                sequences,
            )

    def _step(
        self,
        observations: list[Tensor],
        batch: PPOBatch,
        sequences: Sequences | None,
        scheduled: Scheduled,
        value_clip_range: Tensor,
    ) -> Tensor:
        """One gradient step; returns the loss in its parts."""
        parameters, values = self._network.policy_and_values(observations, sequences)
        with torch.no_grad():
            gradients = ppo_gradients(
                *parameters,
                values,
                batch,
                branches=self._network.actions.branches,
                clip_epsilon=scheduled.epsilon,
                value_clip_range=value_clip_range,
                value_coefficient=_VALUE_COEFFICIENT,
                entropy_coefficient=scheduled.beta,
            )
        outputs = [(values, gradients.values)]
        if parameters.mean.shape[1]:
            outputs += [(parameters.mean, gradients.mean), (parameters.log_sigma, gradients.log_sigma)]
        if parameters.logits.shape[1]:
            outputs.append((parameters.logits, gradients.logits))
        self._parameters.zero_gradient()
        torch.autograd.backward([tensor for tensor, _ in outputs], [gradient for _, gradient in outputs])
        if self._hyper.max_grad_norm is not None:
            self._parameters.clip_gradient(self._hyper.max_grad_norm)
        self._optimizer.step(scheduled.learning_rate)
        return gradients.losses

    def state_dict(self) -> dict[str, Any]:
        """Networks, normalizer, optimizer, random streams and what was collected for the next update."""
        collected = self._buffer.peek()
        return {
            "network": self._network.state_dict(),
            "normalizer": self._normalizer.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "acting": self._acting.get_state(),
            "shuffling": self._shuffling.get_state(),
            **reward_models.state_dict(self._rewards, self._cloning),
            "collected": None if collected is None else to_tensors(collected),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        reward_models.require_same_signals(self._rewards, state)
        self.load_weights(state)
        reward_models.load_state_dict(self._rewards, self._cloning, state)
        self._optimizer.load_state_dict(state["optimizer"])
        self._acting.set_state(state["acting"].cpu())
        self._shuffling.set_state(state["shuffling"].cpu())
        self._buffer = OnPolicyBuffer()
        if state["collected"] is not None:
            self._buffer.add(from_tensors(state["collected"]))

    def replay_state(self) -> None:
        """None: what was collected serves once, and is in ``state_dict`` until then."""

    def load_replay_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """There is none."""

    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Reward signals are known by their names: what the state does not know of begins anew."""
        self._network.load_state_dict({**state["network"], **self._value_heads(state)})
        self._normalizer.load_state_dict(state["normalizer"])
        reward_models.load_weights(self._rewards, state)

    def _value_heads(self, state: Mapping[str, Any]) -> dict[str, Tensor]:
        """Weights and biases of our value heads, each from the state's head of the same signal if there is one."""
        theirs, network = reward_models.names_in_checkpoint(state), self._network.state_dict()
        heads = {key: network[key].clone() for key in ("value.weight", "value.bias")}
        for head, source in enumerate(self._rewards):
            if source.name in theirs:
                for key, values in heads.items():
                    values[head] = state["network"][key][theirs.index(source.name)]
        return heads

    def policy_network(self) -> PolicyNetwork:
        """Normalizer and actor as they are now, to be exported."""
        return PolicyNetwork(self._normalizer, self._network)

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return to_tensor(array, self._device)


def _return_range(targets: PPOBatch) -> Tensor:
    """From the lowest to the highest of all returns and values, by reward signal. Shape [value heads].

    ε clips values to a share of it: taken as a number of reward units it would freeze the critic of a task with
    large returns. (A share of the standard deviation: 3dball learns later.) The values count too, or a critic
    that is wrong about a return which never varies could not move at all.
    """
    both = torch.cat([targets.return_, targets.old_value])
    return both.amax(dim=0) - both.amin(dim=0)


class _Rollout(NamedTuple):
    """Everything collected for one update: S steps of P trajectories."""

    trajectories: Trajectories

    rewards: Sequence[NDArray[np.float32]]
    """Of each source, its strength included. Shapes [S]."""

    observations: Sequence[Tensor]
    """Normalized, one per sensor. Shapes [S, …]."""

    final: Sequence[Tensor]
    """Normalized observations after the last steps. Shapes [P, …]."""

    continuous_actions: Tensor
    discrete_actions: Tensor
    allowed_actions: Tensor
    old_log_prob: Tensor

    order: MinibatchSampler
