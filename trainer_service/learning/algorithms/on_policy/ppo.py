"""Proximal policy optimization, Schulman et al. 2017 (arXiv:1707.06347), with ML-Agents' settings.

In the order of the paper's algorithm 1, after acting with the old policy (see OnPolicyLearner): estimate advantages,
then make some epochs of minibatch steps on the clipped surrogate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainer_service.config import NetworkSettings, PPOSettings, TrainerSettings
from trainer_service.learning.algorithms.common.checks import require_settings
from trainer_service.learning.algorithms.common.learner import Compute, Metrics, learner_arguments
from trainer_service.learning.algorithms.common.on_policy.learner import OnPolicyLearner
from trainer_service.learning.algorithms.common.on_policy.parts import agent_parts
from trainer_service.learning.algorithms.common.on_policy.rollout import Rollout, decouple, make_rollout
from trainer_service.learning.algorithms.common.schedules import scheduled_at
from trainer_service.learning.kernels.choice import KernelChoice, kernel_for
from trainer_service.learning.kernels.compiled.ppo import CompiledPPO
from trainer_service.learning.kernels.ppo_epoch import Minibatch, PPOEpoch
from trainer_service.learning.networks.encoders.memory import Sequences
from trainer_service.learning.networks.policies.actor_critic import ActorCritic
from trainer_service.ops.ppo_loss import PPOBatch, PPOSteps, ppo_loss, return_range
from trainer_service.ops.returns import ragged_generalized_advantage, standardize
from unity_bridge.specs import BehaviorSpec

_VALUE_COEFFICIENT = 0.5


class PPO(OnPolicyLearner):
    """One behavior's policy, critic and update rule, learned by clipped policy gradients."""

    _hyper: PPOSettings

    def __init__(
        self,
        spec: BehaviorSpec,
        settings: TrainerSettings | PPOSettings,
        network: NetworkSettings | Compute | None = None,
        compute: Compute | None = None,
    ) -> None:
        """Arguments as in ``learner_arguments``. Raises ValueError if the sensors or actions are not supported."""
        settings, compute = learner_arguments(spec, settings, network, compute)
        hyper = require_settings(settings, PPOSettings)

        def make_policy() -> ActorCritic:
            return ActorCritic(
                spec,
                settings.network_settings,
                value_heads=len(settings.reward_signals),
                shared_critic=hyper.shared_critic,
            )

        self._policy, parts = agent_parts(spec, settings, compute, make_policy)
        super().__init__(settings, compute, parts)
        # Advantages are estimated again in each epoch with the improved critic (Andrychowicz et al. 2021,
        # arXiv:2006.05990, section 3.5). On 3dball that saves about a tenth of the steps to a mean return of 90. With
        # pictures it takes about a fifth of the update, and no runs have shown the benefit, so they are estimated once.
        self._estimates_once = any(sensor.is_picture for sensor in spec.observation_specs)
        self._optimizer = parts.optimizers["optimizer"]
        has_own = type(self)._step is not PPO._step or type(self)._minibatches is not PPO._minibatches
        self._kernel: KernelChoice[CompiledPPO] = KernelChoice(
            lambda: None if has_own else kernel_for(self._policy, self._optimizer), compute.behavior
        )

    def update(self, step: int) -> Metrics:
        """Makes ``num_epoch`` passes over the collected experience, which is then discarded.

        Rewards are computed once. Reward models and cloning learn last, in ``finish_update``. ``record`` has already
        updated the normalizer with the rollout.
        """
        hyper, epochs = self._hyper, self._kernel.chosen or self
        scheduled = scheduled_at(hyper, step, self._settings.max_steps)
        trajectories = self.buffer.drain()
        sampler = self.sampler(trajectories)
        rollout = make_rollout(trajectories, self.rewards, self.actor.normalizer, sampler)
        if self._decoupled:
            rollout = decouple(rollout, self._policy)
        losses, minibatch_count = torch.zeros(5, device=self._device), 0
        control, rate = self._kl_control, scheduled.learning_rate
        targets = self.estimate_advantages(rollout)
        values = targets.old_value.cpu().numpy()
        if control is not None:
            control.begin(rollout, sampler)
        for epoch in range(hyper.num_epoch):
            if epoch and not self._estimates_once:
                targets = self.estimate_advantages(rollout)
            order, minibatches = sampler.shuffle(self._shuffling)
            steps = PPOSteps(
                learning_rate=rate if control is None else control.learning_rate(rate),
                clip_epsilon=scheduled.epsilon,
                value_clip_range=scheduled.epsilon * return_range(targets),
                value_coefficient=_VALUE_COEFFICIENT,
                entropy_coefficient=scheduled.beta,
                max_grad_norm=hyper.max_grad_norm,
            )
            total = hyper.num_epoch * len(minibatches)
            inputs = PPOEpoch(
                rollout.observations, targets, order, minibatches, steps, minibatch_count, total
            )
            minibatch_count += epochs.epoch(inputs, losses, self._progress)
            if control is not None:
                control.end_epoch()
                if control.ended:
                    break
        policy_loss, value_loss, entropy, clipped, kl = (
            self._shard.add_up(losses) / minibatch_count
        ).tolist()
        return {
            "Losses/Policy Loss": policy_loss,
            "Losses/Value Loss": value_loss,
            "Policy/Entropy": entropy,
            "Policy/Clip Fraction": clipped,
            "Policy/KL Divergence": kl,
            **{
                f"Policy/{source.name.capitalize()} Value Estimate": float(values[:, head].mean())
                for head, source in enumerate(self.rewards)
            },
            **self.finish_update(rollout, scheduled, step),
        }

    def estimate_advantages(self, rollout: Rollout) -> PPOBatch:
        """Returns advantages and returns of all steps, by the present critic.

        Learner ranks without memory compute the values of a part of the steps each.
        """
        critic = self._kernel.chosen or self._policy
        sequences, observations = rollout.sampler.sequences, rollout.observations
        if self._shard.world == 1 or sequences is not None:
            values = critic.values(observations, sequences).cpu().numpy()
        else:
            part = self._shard.part(len(rollout.trajectories))
            own = critic.values([sensor[part.rows] for sensor in observations])
            values = self._shard.collected(own, part).cpu().numpy()
        next_values = critic.values(rollout.final, rollout.sampler.final_sequences).cpu().numpy()
        zero_at_end = np.array([not source.ignores_end for source in self.rewards])
        next_values[rollout.trajectories.terminated[:, None] & zero_at_end] = 0.0
        advantages = ragged_generalized_advantage(
            rollout.rewards,
            values,
            next_values,
            rollout.trajectories.lengths,
            discount=np.array([source.gamma for source in self.rewards]),
            gae_lambda=self._hyper.lambd,
        )
        # Normalized over the rollout, since the mean of a small minibatch would be mostly noise. Signals are summed
        # before, so that their strengths are their weights.
        advantage = torch.from_numpy(standardize(advantages.sum(axis=1))).to(self._device)
        return PPOBatch(
            continuous_actions=rollout.continuous_actions,
            discrete_actions=rollout.discrete_actions + self._policy.actions.offsets,
            allowed_actions=rollout.allowed_actions,
            old_log_prob=rollout.old_log_prob,
            advantage=rollout.weighted(advantage),
            old_value=torch.from_numpy(values).to(self._device),
            return_=torch.from_numpy(advantages + values).to(self._device),
        )

    def epoch(self, epoch: PPOEpoch, losses: Tensor, progress: Callable[[int, int], None]) -> int:
        """Makes a gradient step for each minibatch. The compiled kernel has the same method.

        losses: float32 [5], to which each minibatch's parts of the loss are added, times its share. progress: as in
        ``Compute``, often enough for a display. If it raises, the completed steps stay in effect.

        Returns the number of minibatches.
        """
        count = 0
        for inputs, batch, sequences, share in self._minibatches(*epoch[:4]):
            progress(epoch.completed + count, epoch.total)
            losses += self._step(inputs, batch, sequences, share, epoch.steps)
            count += 1
        return count

    def _minibatches(
        self,
        observations: Sequence[Tensor],
        targets: PPOBatch,
        order: Tensor,
        minibatches: Sequence[Minibatch],
    ) -> Iterator[tuple[list[Tensor], PPOBatch, Sequences | None, float]]:
        """Yields the rows of each minibatch. A derived class may override it, like ``_step``.

        Arguments as in ``PPOEpoch``. Yields observations, targets, the rows' order in time, and the weight of their
        mean in the mean of the whole minibatch.
        """
        # Numbers are shuffled once as a whole, so that a minibatch is a slice without a gather. Pictures are not, since
        # a second copy of them all may not fit into memory.
        shuffled = [sensor[order] if sensor.dim() == 2 else None for sensor in observations]
        columns = [column[order] for column in targets]
        for rows, share, sequences in minibatches:
            inputs = [
                sensor[order[rows]] if already is None else already[rows]
                for sensor, already in zip(observations, shuffled, strict=True)
            ]
            yield inputs, PPOBatch(*(column[rows] for column in columns)), sequences, share

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
        loss, parts = ppo_loss(*parameters[:3], values, batch, steps, self._policy.actions.branches)
        self._optimizer.minimize(loss, steps.learning_rate, steps.max_grad_norm, share)
        return self._shard.weighted(parts, share)

    def state_dict(self) -> dict[str, Any]:
        """The state of every on-policy learner, with the kernel of gradients."""
        return {**super().state_dict(), "gradients": self._kernel.state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores ``state_dict``'s result. The next update warns if it computes gradients with another kernel."""
        super().load_state_dict(state)
        self._kernel.load(state["gradients"])

    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Loads the weights. Value heads are matched by reward signal; missing ones start from their initial state."""
        super().load_weights({**state, "network": {**state["network"], **self._value_heads(state)}})

    def _value_heads(self, state: Mapping[str, Any]) -> dict[str, Tensor]:
        """Weights and biases of our value heads, each from the state's head of the same signal, if there is one."""
        theirs, network = state["signals"], self._policy.state_dict()
        heads = {key: network[key].clone() for key in ("value.weight", "value.bias")}
        for head, source in enumerate(self.rewards):
            if source.name in theirs:
                for key, values in heads.items():
                    values[head] = state["network"][key][theirs.index(source.name)]
        return heads
