"""Counterfactual multi-agent policy gradients, Foerster et al. 2018 (arXiv:1705.08926).

A critic estimates the value of each choice of an agent, given the other agents' actions. It learns the λ-returns of
the taken actions, computed with a target critic. The actors learn from the advantage of the taken choice over the
policy's expected value. The choice's value is the critic's or the return. All agents of a group share a reward: the
sum of their rewards, divided by the group's size.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.on_policy import COMASettings
from trainer_service.config.network import NetworkSettings
from trainer_service.learning.algorithms.common.checks import require_settings
from trainer_service.learning.algorithms.common.exploration import UniformMixture
from trainer_service.learning.algorithms.common.learner import Compute, Metrics
from trainer_service.learning.algorithms.common.observation_selection import sensors_except, sensors_of
from trainer_service.learning.algorithms.common.on_policy.group_rollout import (
    CriticTargets,
    JointStepBatch,
    all_joint_steps,
    group_advantages,
    referenced_observations,
)
from trainer_service.learning.algorithms.common.on_policy.learner import OnPolicyLearner
from trainer_service.learning.algorithms.common.on_policy.parts import group_parts
from trainer_service.learning.algorithms.common.on_policy.rollout import GroupRollout
from trainer_service.learning.algorithms.common.on_policy.update import surrogate
from trainer_service.learning.networks.critics.coma_critic import COMACritic
from trainer_service.learning.networks.encoders.layers import in_chunks
from trainer_service.learning.networks.encoders.memory import Sequences
from trainer_service.learning.networks.policies.action_heads import ActionParameters
from trainer_service.learning.rollout.sensor_roles import SensorRole
from trainer_service.ops import distributions as dist
from trainer_service.ops.counterfactual import counterfactual_baseline, explored_log_probs
from trainer_service.ops.returns import standardize
from unity_bridge.specs import BehaviorSpec

_CHUNK = 2048


def make_coma_critic(
    spec: BehaviorSpec, network: NetworkSettings, hyper: COMASettings, signals: int
) -> COMACritic:
    """Makes the critic's network. signals: number of reward signals."""
    central = hyper.state == "environment"
    return COMACritic(
        spec,
        network,
        agent_sensors=sensors_except(spec, {SensorRole.AGENT_ID, SensorRole.GLOBAL_STATE}),
        state_sensors=sensors_of(spec, SensorRole.GLOBAL_STATE) if central else [],
        num_agents=hyper.num_agents,
        signals=signals,
        scaling=hyper.value_normalization,
    )


class COMA(OnPolicyLearner):
    """Counterfactual baselines by enumeration, for one branch of discrete actions."""

    _hyper: COMASettings

    def __init__(self, spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> None:
        """Raises ValueError if the networks do not support the behavior's sensors or actions."""
        actions = spec.action_spec
        if actions.continuous_size or len(actions.discrete_branches) != 1:
            raise ValueError(
                "coma needs actions of one discrete branch, the behavior has "
                f"{actions.continuous_size} continuous ones and branches {tuple(actions.discrete_branches)}"
            )
        hyper = require_settings(settings, COMASettings)
        self._exploration = UniformMixture(hyper, greedy=settings.acts_greedily)
        make_critic = partial(make_coma_critic, spec, settings.network_settings, hyper)
        self._actors, self._critic, parts = group_parts(
            spec, settings, compute, make_critic, self._exploration
        )
        self._target = copy.deepcopy(self._critic)
        super().__init__(
            settings, compute, replace(parts, networks={**parts.networks, "target": self._target})
        )
        self._critic_steps = 0

    def update(self, step: int) -> Metrics:
        """Makes one pass, or ``num_epoch``, over the collected experience, which is then discarded."""
        hyper = self._hyper
        epochs = self.begin_group_update(step, self._actors, hyper.num_agents)
        rollout, scheduled = epochs.rollout, epochs.scheduled
        targets = self.estimate(rollout)
        evaluate, advantages = self._log_prob_and_entropy, targets.advantages
        loss = surrogate(evaluate, rollout, advantages, hyper.ratio_clip, scheduled.beta)
        value_loss = partial(self._critic_loss, rollout, targets)
        epochs.one_after_the_other(loss, value_loss, hyper.num_epoch)
        return {
            **epochs.metrics(),
            "Policy/Exploration Rate": self._exploration.epsilon,
            **targets.metrics,
            **self.finish_update(rollout, scheduled, step),
        }

    def _log_probs(self, parameters: ActionParameters, allowed: Tensor | None) -> Tensor:
        branches = self._actors.actions.branches
        log_probs = dist.masked_log_softmax(parameters.logits, allowed, branches)
        return explored_log_probs(log_probs, allowed, self._exploration.epsilon)

    def estimate(self, rollout: GroupRollout) -> CriticTargets:
        """Returns advantages by the critic before the update, and its targets."""
        joint_steps = rollout.joint_steps
        actions = self._actions_taken(rollout)
        q = self._values(self._critic, rollout, actions)[joint_steps.of_step, joint_steps.agent_of_step]
        with torch.no_grad():
            parameters = self._actors.policy(rollout.observations, rollout.sampler.sequences)
            log_probs = self._log_probs(parameters, rollout.allowed_actions)
        estimate = group_advantages(
            per_agent_rewards(rollout, self._hyper.num_agents),
            self.rewards,
            self._joint_values(rollout, actions),
            gae_lambda=self._hyper.lambd,
        )
        targets = torch.from_numpy(estimate.returns.astype(np.float32)).to(self._device)
        in_time = torch.from_numpy(estimate.mask[:, 0]).to(self._device)
        q_taken = q[torch.arange(len(q), device=q.device), rollout.discrete_actions[:, 0]]
        by_return = self._hyper.action_value == "return"
        taken = targets[joint_steps.of_step, 0] if by_return else q_taken
        advantages = (taken - counterfactual_baseline(q, log_probs)).sum(dim=1)
        weighing = advantages
        if self._hyper.advantage_normalization == "global":
            # Signals are already summed, so that their strengths are their weights.
            weighing = torch.from_numpy(standardize(advantages.cpu().numpy())).to(self._device)
        return CriticTargets(
            advantages=weighing,
            targets=targets,
            mask=torch.from_numpy(joint_steps.steps >= 0).to(self._device),
            old_values=q,
            clip_range=targets.new_zeros(()),
            metrics={
                "Policy/Extrinsic Value Estimate": float(q_taken.mean()),
                "Policy/Advantage": float(advantages.mean()),
                "Policy/Target Estimate": float(targets[:, 0][in_time].mean()),
                "Policy/Largest Probability": float(log_probs.amax(dim=1).exp().mean()),
            },
            actions=actions,
        )

    def _joint_values(self, rollout: GroupRollout, actions: Tensor) -> NDArray[np.float32]:
        """Values of joint actions by the target critic, at each joint step: [F, 1, signals].

        Every agent's critic estimates the same number, since all share the reward, so their mean is used.
        """
        members = rollout.members
        q = self._values(self._target, rollout, actions)
        actions_taken = torch.cat([actions, actions.new_zeros((1, actions.shape[1]))])[members]
        present = (members >= 0).to(q.dtype).unsqueeze(-1)
        # An absent agent has zeros in place of actions, so its value is zero.
        q_taken = (q * actions_taken.unsqueeze(-1)).sum(dim=2)
        mean = q_taken.sum(dim=1) / present.sum(dim=1).clamp(min=1.0)
        joint_values: NDArray[np.float32] = mean.unsqueeze(1).cpu().numpy()
        return joint_values

    def _actions_taken(self, rollout: GroupRollout) -> Tensor:
        """One-hot actions of every step, and the present policy's actions for ends. [S + P, A]"""
        trajectories = rollout.trajectories
        steps, ends = len(trajectories), len(trajectories.lengths)
        with torch.no_grad():
            if self._actors.memory_size:
                parameters, _ = self._actors.step(
                    rollout.final, torch.from_numpy(trajectories.final_memories).to(self._device)
                )
            else:
                parameters = self._actors.policy(rollout.final)
            allowed = torch.from_numpy(trajectories.final_allowed_actions).to(self._device)
            log_probs = self._log_probs(parameters, allowed)
            branches = self._actors.actions.branches
            next_actions = dist.sample_categorical(log_probs, branches, self._shuffling)
        actions_taken = rollout.allowed_actions.new_zeros((steps + ends, branches[0]), dtype=torch.float32)
        actions_taken.scatter_(1, torch.cat([rollout.discrete_actions, next_actions]), 1.0)
        return actions_taken

    def _values(self, critic: COMACritic, rollout: GroupRollout, actions: Tensor) -> Tensor:
        """Values of all joint steps, agents and choices, in reward units: [F, n, A, signals]."""
        members = rollout.members
        with torch.no_grad():
            if critic.memory is not None:
                batch = all_joint_steps(rollout.joint_steps, self._device)
                return critic.value.raw(
                    critic.forward(rollout.joint_observations, actions, members, batch.filled)
                )
            chunks = [
                _forward(critic, rollout, actions, members[chunk])
                for chunk in in_chunks(len(members), _CHUNK)
            ]
            return critic.value.raw(torch.cat(chunks))

    def _log_prob_and_entropy(
        self, rollout: GroupRollout, steps: Tensor, sequences: Sequences | None
    ) -> tuple[Tensor, Tensor]:
        """Log-probabilities of taken actions at these steps under exploring actors, [B], and the actors' entropy."""
        parameters = self._actors.policy([sensor[steps] for sensor in rollout.observations], sequences)
        allowed = rollout.allowed_actions[steps]
        log_probs = self._log_probs(parameters, allowed)
        log_prob = dist.categorical_log_prob(log_probs, rollout.discrete_actions[steps])
        return log_prob, self._actors.actions.entropy(parameters, allowed).mean()

    def _critic_loss(self, rollout: GroupRollout, targets: CriticTargets, batch: JointStepBatch) -> Tensor:
        """The squared error of the taken actions' values; with several learner ranks, this rank's addend of it."""
        members = rollout.members[batch.indices]
        steps = torch.from_numpy(rollout.joint_steps.steps).to(self._device)[batch.indices]
        learned = targets.mask[batch.indices].nonzero(as_tuple=True)  # once, since it waits for a GPU
        returns = targets.returns(batch.indices)
        self._critic.value.update(returns if batch.undivided else targets.returns(batch.all_indices))
        # The action of an agent that was cut before the others was sampled once in `estimate`, and is kept.
        assert targets.actions is not None
        q = _forward(self._critic, rollout, targets.actions, members, batch.filled)[learned]
        q_taken = q[torch.arange(len(q), device=q.device), rollout.discrete_actions[steps[learned], 0]]
        loss = (q_taken - self._critic.value.scaled(returns)).square().mean()
        loss = self._shard.weighted(loss, batch.share(targets.mask))
        self._critic_steps += 1
        if self._critic_steps % self._hyper.target_update == 0:
            self._target.load_state_dict(self._critic.state_dict())
        return loss

    def state_dict(self) -> dict[str, Any]:
        """The state of every on-policy learner, with the target critic and the exploration."""
        recorded = self._exploration.state_dict()["steps"]
        return {**super().state_dict(), "recorded": recorded, "critic_steps": self._critic_steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores ``state_dict``'s result."""
        super().load_state_dict(state)
        self._exploration.load_state_dict({"steps": state["recorded"]})
        self._critic_steps = state["critic_steps"]


def per_agent_rewards(rollout: GroupRollout, num_agents: int) -> GroupRollout:
    """Returns the rollout with rewards divided by the agents of a full group, so that sums do not grow."""
    agents = np.float32(num_agents)
    return replace(
        rollout,
        own_rewards=rollout.own_rewards / agents,
        group_rewards=rollout.group_rewards / agents,
    )


def _forward(
    critic: COMACritic, rollout: GroupRollout, actions: Tensor, members: Tensor, filled: Tensor | None = None
) -> Tensor:
    (*observations, actions), members = referenced_observations(
        [*rollout.joint_observations, actions], members
    )
    return critic.forward(observations, actions, members, filled)
