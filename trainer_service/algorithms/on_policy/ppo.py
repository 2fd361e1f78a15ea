"""Proximal policy optimization, Schulman et al. 2017 (arXiv:1707.06347), with ML-Agents' settings.

Top to bottom as in the paper's algorithm 1, after acting with the old policy (see OnPolicyLearner): estimate
advantages, then take some epochs of minibatch steps on the clipped surrogate.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainer_service.algorithms.common import reward_models
from trainer_service.algorithms.common.learner import Metrics
from trainer_service.algorithms.common.on_policy.importance import proximal_log_probs, weight_metrics
from trainer_service.algorithms.common.on_policy.learner import OnPolicyLearner
from trainer_service.algorithms.common.on_policy.minibatches import MinibatchSampler, with_progress
from trainer_service.algorithms.common.schedules import Scheduled, scheduled_at
from trainer_service.config import PPOSettings
from trainer_service.kernels.choice import kernel_for
from trainer_service.kernels.ppo_kernel import MinibatchSpan, PPOKernel, PPOSteps, side_by_side
from trainer_service.networks.encoders.memory import Sequences
from trainer_service.networks.flat import FlatAdam
from trainer_service.networks.policies.action_heads import clip_actions
from trainer_service.networks.policies.actor_critic import ActorCritic, batched_values
from trainer_service.ops.losses import PPOBatch, importance_weights
from trainer_service.ops.ppo_gradient import ppo_gradient
from trainer_service.ops.returns import ragged_generalized_advantage, standardize
from trainer_service.rewards import Experience
from trainer_service.rollout.trajectories import Trajectories

_VALUE_COEFFICIENT = 0.5

_logger = logging.getLogger(__name__)


class PPO(OnPolicyLearner):
    """One behavior's policy, critic and update rule, learned by clipped policy gradients."""

    _settings_type = PPOSettings
    _hyper: PPOSettings
    _policy: ActorCritic

    _kernel: PPOKernel | None = None
    """What makes gradient steps in the place of ``_step``, which says what they are; None where nothing does."""

    _path = ""
    """How gradients were computed the last time, in the words of the log."""

    _path_until_checkpoint = ""
    """How they were computed in the run that goes on here."""

    def _make_policy(self) -> ActorCritic:
        return ActorCritic(
            self._spec,
            self._settings.network_settings,
            value_heads=len(self._settings.reward_signals),
            shared_critic=self._hyper.shared_critic,
        )

    def update(self, step: int) -> Metrics:
        """``num_epoch`` passes over everything collected, which is then thrown away."""
        self._choose_kernel()
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
            for lost, made in self._gradient_steps(rollout, targets, epoch, scheduled):
                losses += lost
                minibatches += made
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

    def _choose_kernel(self) -> None:
        """Takes a kernel for the next update where there is one for it: not for a class with steps of its own."""
        replaced = any(
            getattr(getattr(self, name), "__func__", None) is not getattr(PPO, name)
            for name in ("_step", "_minibatches")
        )
        self._kernel = None if replaced else kernel_for(self._policy, self._optimizer)
        path = "by autograd" if self._kernel is None else f"by hand, in {self._kernel.name}"
        if self._behavior_name and path != self._path:
            _logger.info("'%s' computes the gradient of its updates %s.", self._behavior_name, path)
        if self._path_until_checkpoint not in ("", path):
            _logger.warning(
                "Until its checkpoint '%s' computed the gradient of its updates %s. It goes on, but not bit for bit as "
                "there.",
                self._behavior_name,
                self._path_until_checkpoint,
            )
        self._path, self._path_until_checkpoint = path, ""

    def _make_rollout(self, experience: Experience) -> _Rollout:
        """Tensors that stay as they are over all epochs of an update."""
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
            discrete_actions=self._tensor(trajectories.discrete_actions) + self._policy.actions.offsets,
            allowed_actions=self._tensor(trajectories.allowed_actions),
            old_log_prob=self._tensor(trajectories.log_probs),
            sampler=self._sampler(trajectories),
        )

    def _decouple(self, rollout: _Rollout) -> tuple[_Rollout, Metrics]:
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

    def _estimate_advantages(self, rollout: _Rollout) -> tuple[PPOBatch, Metrics]:
        """Advantages and returns by the critic as it is now."""
        trajectories = rollout.trajectories
        sampler = rollout.sampler
        step_values = self._step_values(rollout)
        final_values = self._critic_values(rollout.final, sampler.final_sequences)
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

    def _step_values(self, rollout: _Rollout) -> Tensor:
        """Values of all steps, [S, value heads]; learner ranks without memory compute a part each."""
        sequences = rollout.sampler.sequences
        if self._shard.world == 1 or sequences is not None:
            return self._critic_values(rollout.observations, sequences)
        part = self._shard.part(len(rollout.trajectories))
        own = self._critic_values([sensor[part.rows] for sensor in rollout.observations], None)
        return self._shard.collected(own, part)

    def _critic_values(self, observations: Sequence[Tensor], sequences: Sequences | None) -> Tensor:
        """Values of any number of steps, [N, value heads]. sequences: how they follow each other, with memory."""
        if self._kernel is None:
            return batched_values(self._policy, observations, sequences=sequences)
        return self._kernel.values(side_by_side(observations), sequences)

    def _gradient_steps(
        self, rollout: _Rollout, targets: PPOBatch, epoch: int, scheduled: Scheduled
    ) -> Iterator[tuple[Tensor, int]]:
        """The gradient steps of an epoch: losses of one or more, added up, and how many these were."""
        value_clip_range = scheduled.epsilon * _return_range(targets)
        if self._kernel is None:
            for inputs, batch, sequences, share in self._minibatches(rollout, targets, epoch):
                yield self._step(inputs, batch, sequences, share, scheduled, value_clip_range), 1
            return
        order, minibatches = rollout.sampler.shuffle(self._shuffling)
        steps = PPOSteps(
            learning_rate=scheduled.learning_rate,
            clip_epsilon=scheduled.epsilon,
            value_clip_range=value_clip_range,
            value_coefficient=_VALUE_COEFFICIENT,
            entropy_coefficient=scheduled.beta,
            max_grad_norm=self._hyper.max_grad_norm,
        )
        count, epochs = len(minibatches), self._hyper.num_epoch
        spans = [MinibatchSpan(chunk, share, sequences) for chunk, sequences, share in minibatches]
        losses = self._kernel.epoch(
            side_by_side(rollout.observations),
            targets,
            order,
            spans,
            steps,
            lambda number: self._progress(epoch * count + number, epochs * count),
        )
        yield losses, count

    def _minibatches(
        self, rollout: _Rollout, targets: PPOBatch, epoch: int
    ) -> Iterator[tuple[list[Tensor], PPOBatch, Sequences | None, float]]:
        """One epoch in random order."""
        observations = rollout.observations
        order, minibatches = rollout.sampler.shuffle(self._shuffling)
        # Numbers are shuffled once as a whole, so that a minibatch is a slice and no gather. Pictures are not:
        # a second copy of them all is what memory may not have.
        shuffled = [sensor[order] if sensor.dim() == 2 else None for sensor in observations]
        columns = [column[order] for column in targets]
        for chunk, sequences, share in with_progress(
            minibatches, epoch, self._hyper.num_epoch, self._progress
        ):
            yield (
                [
                    sensor[order[chunk]] if already is None else already[chunk]
                    for sensor, already in zip(observations, shuffled, strict=True)
                ],
                PPOBatch(*(column[chunk] for column in columns)),
                sequences,
                share,
            )

    def _step(
        self,
        observations: list[Tensor],
        batch: PPOBatch,
        sequences: Sequences | None,
        share: float,
        scheduled: Scheduled,
        value_clip_range: Tensor,
    ) -> Tensor:
        """One gradient step on ``ops.losses.ppo_loss``, whose gradient is known in closed form.

        share: of the minibatch that these rows are. Returns the loss in its parts, times the share.
        """
        parameters, values = self._policy.policy_and_values(observations, sequences)
        with torch.no_grad():
            gradient = ppo_gradient(
                *parameters[:3],
                values,
                batch,
                branches=self._policy.actions.branches,
                clip_epsilon=scheduled.epsilon,
                value_clip_range=value_clip_range,
                value_coefficient=_VALUE_COEFFICIENT,
                entropy_coefficient=scheduled.beta,
            )
        # A sum whose gradients by the networks' outputs are these, to the bit. Handed to backward as they are, they
        # would make torch import sympy in the middle of the first update, which takes half a second.
        weighted = (values * gradient.values).sum()
        if parameters.mean.shape[1]:
            weighted = weighted + (parameters.mean * gradient.mean).sum()
            weighted = weighted + (parameters.log_sigma * gradient.log_sigma).sum()
        if parameters.logits.shape[1]:
            weighted = weighted + (parameters.logits * gradient.logits).sum()
        self._optimizer.parameters.zero_gradient()
        torch.autograd.backward(weighted)
        self._optimizer.parameters.reduce_gradient(share)
        if self._hyper.max_grad_norm is not None:
            self._optimizer.parameters.clip_gradient(self._hyper.max_grad_norm)
        self._optimizer.adam.step(scheduled.learning_rate)
        return self._shard.weighted(gradient.losses, share)

    def _networks(self) -> dict[str, nn.Module]:
        return {"network": self._policy}

    def _optimizers(self) -> dict[str, FlatAdam]:
        return {"optimizer": self._optimizer.adam}

    def state_dict(self) -> dict[str, Any]:
        """What every learner on policy has, and how gradients were computed."""
        return {**super().state_dict(), "gradients": self._path or self._path_until_checkpoint}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict``'s result, and warns at the next update that computes gradients otherwise."""
        super().load_state_dict(state)
        self._path_until_checkpoint = state.get("gradients", "")

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


def _return_range(targets: PPOBatch) -> Tensor:
    """The range of all returns and values, by reward signal. Shape [value heads].

    ε clips values to a share of it: taken as a number of reward units it would freeze the critic of a task with
    large returns. (A share of the standard deviation: 3dball learns later.) The values count too, or a critic
    that is wrong about a return which never varies could not move at all.
    """
    both = torch.cat([targets.return_, targets.old_value])
    return both.amax(dim=0) - both.amin(dim=0)


class _Rollout(NamedTuple):
    """The rollout that one update learns from: S steps of P trajectories."""

    trajectories: Trajectories

    rewards: Sequence[NDArray[np.float32]]
    """Rewards of each source, its strength included. Shapes [S]."""

    observations: Sequence[Tensor]
    """Normalized, one per sensor. Shapes [S, …]."""

    final: Sequence[Tensor]
    """Normalized observations after the last steps. Shapes [P, …]."""

    continuous_actions: Tensor
    discrete_actions: Tensor
    allowed_actions: Tensor
    old_log_prob: Tensor

    sampler: MinibatchSampler

    weights: Tensor | None = None
    """Importance weights of the steps, [S], where an older policy may have acted."""
