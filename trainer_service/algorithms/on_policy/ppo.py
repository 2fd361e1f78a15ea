"""Proximal policy optimization, Schulman et al. 2017 (arXiv:1707.06347), with ML-Agents' settings.

Top to bottom as in the paper's algorithm 1, after acting with the old policy (see OnPolicyLearner): estimate
advantages, then take some epochs of minibatch steps on the clipped surrogate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from trainer_service.algorithms.common import reward_models
from trainer_service.algorithms.common.learner import Compute, Metrics
from trainer_service.algorithms.common.on_policy.importance import proximal_log_probs, weight_metrics
from trainer_service.algorithms.common.on_policy.learner import OnPolicyLearner
from trainer_service.algorithms.common.on_policy.ppo_epochs import AutogradEpochs, EpochsChoice, gathered
from trainer_service.algorithms.common.on_policy.ppo_rollout import PPORollout
from trainer_service.algorithms.common.schedules import Scheduled, scheduled_at
from trainer_service.config import PPOSettings, TrainerSettings
from trainer_service.kernels.ppo_steps import PPOSteps
from trainer_service.networks.encoders.memory import Sequences
from trainer_service.networks.flat import FlatAdam
from trainer_service.networks.policies.action_heads import clip_actions
from trainer_service.networks.policies.actor_critic import ActorCritic
from trainer_service.ops.losses import importance_weights
from trainer_service.ops.ppo_loss import PPOBatch, ppo_loss, return_range
from trainer_service.ops.returns import ragged_generalized_advantage, standardize
from trainer_service.rewards import Experience
from unity_bridge.specs import BehaviorSpec

_VALUE_COEFFICIENT = 0.5


class PPO(OnPolicyLearner):
    """One behavior's policy, critic and update rule, learned by clipped policy gradients."""

    _settings_type = PPOSettings
    _hyper: PPOSettings
    _policy: ActorCritic

    _minibatches = staticmethod(gathered)
    """The rows of each minibatch of an epoch. A derived class may have others, as it may have steps of its own."""

    def __init__(self, spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> None:
        """Raises ValueError where the behavior has sensors or actions that the networks cannot take."""
        super().__init__(spec, settings, compute)
        plain = AutogradEpochs(self._policy, self._minibatches, self._step)
        has_own = type(self)._step is not PPO._step or type(self)._minibatches is not PPO._minibatches
        self._epochs = EpochsChoice(plain, None if has_own else self._optimizer, compute.behavior)

    def _make_policy(self) -> ActorCritic:
        return ActorCritic(
            self._spec,
            self._settings.network_settings,
            value_heads=len(self._settings.reward_signals),
            shared_critic=self._hyper.shared_critic,
        )

    def update(self, step: int) -> Metrics:
        """``num_epoch`` passes over everything collected, which is then thrown away."""
        scheduled = scheduled_at(self._hyper, step, self._settings.max_steps)
        experience = Experience(self._buffer.drain(), self._device, clip_actions)
        rollout = self._make_rollout(experience)
        importance: Metrics = {}
        if self._decoupled:
            rollout, importance = self._decouple(rollout)
        losses = torch.zeros(5, device=self._device)
        minibatches = 0
        estimates: list[Metrics] = []
        sees_pictures = any(sensor.is_picture for sensor in self._spec.observation_specs)
        for epoch in range(self._hyper.num_epoch):
            # Advantages come anew with each epoch's better critic (Andrychowicz et al. 2021, arXiv:2006.05990,
            # section 3.5). On 3dball that saves about a tenth of the steps to a mean return of 90. With
            # pictures it takes about a fifth of the update, and no runs have shown yet what it saves: they come once.
            if epoch == 0 or not sees_pictures:
                targets, estimate = self._estimate_advantages(rollout)
                estimates.append(estimate)
            minibatches += self._epoch(rollout, targets, epoch, scheduled, losses)
        policy_loss, value_loss, entropy, clipped, kl = (self._shard.add_up(losses) / minibatches).tolist()
        return {
            "Losses/Policy Loss": policy_loss,
            "Losses/Value Loss": value_loss,
            "Policy/Entropy": entropy,
            "Policy/Learning Rate": scheduled.learning_rate,
            "Policy/Epsilon": scheduled.epsilon,
            "Policy/Beta": scheduled.beta,
            "Policy/Clip Fraction": clipped,
            "Policy/KL Divergence": kl,
            **importance,
            **estimates[0],
            **self._episode_rewards.metrics(rollout.trajectories, rollout.rewards),
            **self._update_others(experience, step),
        }

    def _make_rollout(self, experience: Experience) -> PPORollout:
        """Tensors that stay as they are over all epochs of an update."""
        trajectories = experience.trajectories
        return PPORollout(
            trajectories=trajectories,
            rewards=[source.strength * source.record(experience) for source in self._rewards],
            observations=self._normalizer.forward(
                [self._tensor(sensor) for sensor in trajectories.observations]
            ),
            final=self._normalizer.forward(
                [self._tensor(sensor) for sensor in trajectories.final_observations]
            ),
            continuous_actions=self._tensor(trajectories.continuous_actions),
            discrete_actions=self._tensor(trajectories.discrete_actions) + self._policy.actions.offsets,
            allowed_actions=self._tensor(trajectories.allowed_actions),
            old_log_prob=self._tensor(trajectories.log_probs),
            sampler=self._sampler(trajectories),
        )

    def _decouple(self, rollout: PPORollout) -> tuple[PPORollout, Metrics]:
        """The rollout with the present policy as its old one, and weights for what an older one did in it."""

        def log_prob(steps: slice, sequences: Sequences | None) -> Tensor:
            seen = [sensor[steps] for sensor in rollout.observations]
            heads = self._policy.actions
            return heads.log_prob(
                self._policy.policy(seen, sequences),
                rollout.allowed_actions[steps],
                rollout.continuous_actions[steps],
                rollout.discrete_actions[steps] - heads.offsets,
            )

        proximal = proximal_log_probs(
            log_prob, len(rollout.trajectories), rollout.sampler.sequences, self._policy.chunk
        )
        weights = importance_weights(proximal - rollout.old_log_prob)
        return rollout._replace(old_log_prob=proximal, weights=weights), weight_metrics(weights)

    def _estimate_advantages(self, rollout: PPORollout) -> tuple[PPOBatch, Metrics]:
        """Advantages and returns by the critic as it is now."""
        trajectories = rollout.trajectories
        step_values = self._step_values(rollout)
        final_values = self._epochs.chosen.values(rollout.final, rollout.sampler.final_sequences)
        values, bootstrap = step_values.cpu().numpy(), final_values.cpu().numpy()
        zero_at_end = np.array([not source.ignores_end for source in self._rewards])
        bootstrap[trajectories.terminated[:, None] & zero_at_end] = 0.0
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
        # Normalized over the rollout: in small minibatches the mean would be mostly noise. Signals add up before
        # that, so their strengths decide how they weigh against each other.
        advantage = self._tensor(standardize(advantages.sum(axis=1)))
        targets = PPOBatch(
            continuous_actions=rollout.continuous_actions,
            discrete_actions=rollout.discrete_actions,
            allowed_actions=rollout.allowed_actions,
            old_log_prob=rollout.old_log_prob,
            advantage=advantage if rollout.weights is None else rollout.weights * advantage,
            old_value=self._tensor(values),
            return_=self._tensor(advantages + values),
        )
        return targets, metrics

    def _step_values(self, rollout: PPORollout) -> Tensor:
        """Values of all steps, [S, value heads]; learner ranks without memory compute a part each."""
        sequences = rollout.sampler.sequences
        if self._shard.world == 1 or sequences is not None:
            return self._epochs.chosen.values(rollout.observations, sequences)
        part = self._shard.part(len(rollout.trajectories))
        own = self._epochs.chosen.values([sensor[part.rows] for sensor in rollout.observations], None)
        return self._shard.collected(own, part)

    def _epoch(
        self, rollout: PPORollout, targets: PPOBatch, epoch: int, scheduled: Scheduled, losses: Tensor
    ) -> int:
        """Gradient steps on minibatches in random order. Adds up the parts of their losses; returns their number."""
        order, minibatches = rollout.sampler.shuffle(self._shuffling)
        before, all_epochs = epoch * len(minibatches), self._hyper.num_epoch * len(minibatches)
        steps = PPOSteps(
            learning_rate=scheduled.learning_rate,
            clip_epsilon=scheduled.epsilon,
            value_clip_range=scheduled.epsilon * return_range(targets),
            value_coefficient=_VALUE_COEFFICIENT,
            entropy_coefficient=scheduled.beta,
            max_grad_norm=self._hyper.max_grad_norm,
        )
        return self._epochs.chosen.epoch(
            rollout.observations, targets, order, minibatches, steps, losses,
            lambda number: self._progress(before + number, all_epochs),
        )  # fmt: skip

    def _step(
        self,
        observations: Sequence[Tensor],
        batch: PPOBatch,
        sequences: Sequences | None,
        share: float,
        steps: PPOSteps,
    ) -> Tensor:
        """Makes one gradient step on a share of a minibatch. Returns the loss's parts, times the share."""
        parameters, values = self._policy.policy_and_values(observations, sequences)
        loss, parts = ppo_loss(
            *parameters[:3],
            values,
            batch,
            branches=self._policy.actions.branches,
            clip_epsilon=steps.clip_epsilon,
            value_clip_range=steps.value_clip_range,
            value_coefficient=steps.value_coefficient,
            entropy_coefficient=steps.entropy_coefficient,
        )
        self._optimizer.minimize(loss, steps.learning_rate, steps.max_grad_norm, share)
        return self._shard.weighted(parts, share)

    def _networks(self) -> dict[str, nn.Module]:
        return {"network": self._policy}

    def _optimizers(self) -> dict[str, FlatAdam]:
        return {"optimizer": self._optimizer.adam}

    def state_dict(self) -> dict[str, Any]:
        """What every learner on policy has, and how gradients were computed."""
        return {**super().state_dict(), "gradients": self._epochs.state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict``'s result, and warns at the next update that computes gradients otherwise."""
        super().load_state_dict(state)
        self._epochs.load(state.get("gradients", ""))

    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Value heads are known by their reward signals' names: one that the state does not know begins anew."""
        super().load_weights({**state, "network": {**state["network"], **self._value_heads(state)}})

    def _value_heads(self, state: Mapping[str, Any]) -> dict[str, Tensor]:
        """Weights and biases of our value heads, each from the state's head of the same signal if there is one."""
        theirs, network = reward_models.names_in_checkpoint(state), self._policy.state_dict()
        heads = {key: network[key].clone() for key in ("value.weight", "value.bias")}
        for head, source in enumerate(self._rewards):
            if source.name in theirs:
                for key, values in heads.items():
                    values[head] = state["network"][key][theirs.index(source.name)]
        return heads
