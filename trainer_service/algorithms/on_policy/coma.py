"""Counterfactual multi-agent policy gradients, Foerster et al. 2018 (arXiv:1705.08926).

A critic estimates what each of an agent's choices would have been worth, the others doing what they did. It learns the
λ-returns of the actions that were taken, as a target copy of it sees them; the actors follow the advantage of their
choice, by the critic's value or by the return itself, over what they do on average. All agents of a group share a
reward: the sum of theirs, divided by its size.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainer_service.algorithms.common.exploration import UniformMixture
from trainer_service.algorithms.common.learner import Compute, Metrics
from trainer_service.algorithms.common.observation_selection import sensors_except, sensors_of
from trainer_service.algorithms.common.on_policy.group_learner import GroupLearner
from trainer_service.algorithms.common.on_policy.group_rollout import (
    CriticTargets,
    GroupRollout,
    JointStepBatch,
    all_joint_steps,
    group_advantages,
    referenced_observations,
)
from trainer_service.algorithms.common.schedules import Scheduled
from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.on_policy import COMASettings
from trainer_service.networks.critics.coma_critic import COMACritic
from trainer_service.networks.encoders.layers import in_chunks
from trainer_service.networks.encoders.memory import Sequences
from trainer_service.networks.policies.action_heads import ActionParameters
from trainer_service.ops import distributions as dist
from trainer_service.ops.counterfactual import counterfactual_baseline, explored_log_probs
from trainer_service.ops.returns import standardize
from trainer_service.rollout.sensor_roles import SensorRole
from unity_bridge.specs import BehaviorSpec

_CHUNK = 2048


class COMA(GroupLearner):
    """Counterfactual baselines by enumeration, for one branch of discrete actions."""

    _settings_type = COMASettings
    _hyper: COMASettings
    _critic: COMACritic

    def __init__(self, spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> None:
        actions = spec.action_spec
        if actions.continuous_size or len(actions.discrete_branches) != 1:
            raise ValueError(
                "coma needs actions of one discrete branch, the behavior has "
                f"{actions.continuous_size} continuous ones and branches {tuple(actions.discrete_branches)}"
            )
        super().__init__(spec, settings, compute)
        self._target = copy.deepcopy(self._critic)
        self._critic_steps = 0

    def _make_critic(self, signals: int) -> COMACritic:
        central = self._hyper.state == "environment"
        return COMACritic(
            self._spec,
            self._settings.network_settings,
            agent_sensors=sensors_except(self._spec, {SensorRole.AGENT_ID, SensorRole.GLOBAL_STATE}),
            state_sensors=sensors_of(self._spec, SensorRole.GLOBAL_STATE) if central else [],
            num_agents=self._hyper.num_agents,
            signals=signals,
            scaling=self._hyper.value_normalization,
        )

    def _make_exploration(self) -> UniformMixture:
        return UniformMixture(self._hyper, greedy=self._settings.acts_greedily)

    @property
    def _epsilon(self) -> float:
        """The probability of a random action now."""
        return cast(UniformMixture, self.actor.exploration).epsilon

    def update(self, step: int) -> Metrics:
        """One pass over everything collected, which is then thrown away."""
        return {**super().update(step), "Policy/Exploration Rate": self._epsilon}

    def _log_probs(self, parameters: ActionParameters, allowed: Tensor | None) -> Tensor:
        branches = self._policy.actions.branches
        log_probs = dist.masked_log_softmax(parameters.logits, allowed, branches)
        return explored_log_probs(log_probs, allowed, self._epsilon)

    def _estimate_advantages(self, rollout: GroupRollout, scheduled: Scheduled) -> CriticTargets:
        joint_steps = rollout.joint_steps
        actions = self._actions_taken(rollout)
        q = self._values(self._critic, rollout, actions)[joint_steps.of_step, joint_steps.agent_of_step]
        with torch.no_grad():
            sampler = self._sampler(rollout.trajectories)
            parameters = self._policy.policy(rollout.step_observations, sampler.sequences)
            log_probs = self._log_probs(parameters, rollout.allowed_actions)
        estimate = group_advantages(
            per_agent_rewards(rollout, self._hyper.num_agents),
            self._rewards,
            self._joint_values(rollout, actions),
            gae_lambda=self._hyper.lambd,
        )
        targets = self._tensor(estimate.returns.astype(np.float32))
        q_taken = q[torch.arange(len(q), device=q.device), rollout.discrete_actions[:, 0]]
        by_return = self._hyper.action_value == "return"
        taken = targets[joint_steps.of_step, 0] if by_return else q_taken
        advantages = (taken - counterfactual_baseline(q, log_probs)).sum(dim=1)
        return CriticTargets(
            advantages=self._normalized(advantages),
            targets=targets,
            mask=self._tensor(joint_steps.steps >= 0),
            old_values=q,
            clip_range=targets.new_zeros(()),
            metrics={
                "Policy/Extrinsic Value Estimate": float(q_taken.mean()),
                "Policy/Advantage": float(advantages.mean()),
                "Policy/Target Estimate": float(targets[:, 0][self._tensor(estimate.mask[:, 0])].mean()),
                "Policy/Largest Probability": float(log_probs.amax(dim=1).exp().mean()),
            },
            actions=actions,
        )

    def _normalized(self, advantages: Tensor) -> Tensor:
        """One advantage per step: signals have added up, so that their strengths decide how they weigh."""
        if self._hyper.advantage_normalization == "none":
            return advantages
        return self._tensor(standardize(advantages.cpu().numpy()))

    def _joint_values(self, rollout: GroupRollout, actions: Tensor) -> NDArray[np.float32]:
        """Values of joint actions by the target critic, at each joint step: [F, 1, signals].

        Every agent's critic estimates the same number, since all share the reward: their mean is used.
        """
        joint_steps = rollout.joint_steps
        members = self._tensor(joint_steps.members)
        q = self._values(self._target, rollout, actions)
        actions_taken = torch.cat([actions, actions.new_zeros((1, actions.shape[1]))])[members]
        present = (members >= 0).to(q.dtype).unsqueeze(-1)
        q_taken = (q * actions_taken.unsqueeze(-1)).sum(dim=2) * present
        mean = q_taken.sum(dim=1) / present.sum(dim=1).clamp(min=1.0)
        joint_values: NDArray[np.float32] = mean.unsqueeze(1).cpu().numpy()
        return joint_values

    def _actions_taken(self, rollout: GroupRollout) -> Tensor:
        """One-hot actions of every step, and for ends those that the policy would take now. [S + P, A]"""
        trajectories = rollout.trajectories
        steps, ends = len(trajectories), len(trajectories.lengths)
        final = [sensor[steps:] for sensor in rollout.observations]
        with torch.no_grad():
            if self._policy.memory_size:
                parameters, _ = self._policy.step(final, self._tensor(trajectories.final_memories))
            else:
                parameters = self._policy.policy(final)
            allowed = self._tensor(trajectories.final_allowed_actions)
            log_probs = self._log_probs(parameters, allowed)
            branches = self._policy.actions.branches
            next_actions = dist.sample_categorical(log_probs, branches, self._shuffling)
        actions_taken = rollout.allowed_actions.new_zeros((steps + ends, branches[0]), dtype=torch.float32)
        actions_taken.scatter_(1, torch.cat([rollout.discrete_actions, next_actions]), 1.0)
        return actions_taken

    def _values(self, critic: COMACritic, rollout: GroupRollout, actions: Tensor) -> Tensor:
        """Values of all joint steps, agents and choices, in reward units: [F, n, A, signals]."""
        members = self._tensor(rollout.joint_steps.members)
        with torch.no_grad():
            if critic.memory is not None:
                batch = all_joint_steps(rollout.joint_steps, self._device)
                return critic.value.raw(critic.forward(rollout.observations, actions, members, batch.filled))
            chunks = [
                _forward(critic, rollout, actions, members[chunk])
                for chunk in in_chunks(len(members), _CHUNK)
            ]
            return critic.value.raw(torch.cat(chunks))

    def _clip_epsilon(self, scheduled: Scheduled) -> float:
        return self._hyper.ratio_clip or math.inf

    def _policy_loss(self, log_prob: Tensor, old: Tensor, advantages: Tensor, clip_epsilon: float) -> Tensor:
        if self._hyper.ratio_clip is None:
            return -(advantages * log_prob).mean()
        return super()._policy_loss(log_prob, old, advantages, clip_epsilon)

    def _log_prob_and_entropy(
        self, rollout: GroupRollout, steps: Tensor, sequences: Sequences | None
    ) -> tuple[Tensor, Tensor]:
        parameters = self._policy.policy([sensor[steps] for sensor in rollout.observations], sequences)
        allowed = rollout.allowed_actions[steps]
        log_probs = self._log_probs(parameters, allowed)
        chosen = dist.categorical_log_prob(log_probs, rollout.discrete_actions[steps])
        return chosen, self._policy.actions.entropy(parameters, allowed).mean()

    def _critic_loss(
        self, rollout: GroupRollout, critic_targets: CriticTargets, batch: JointStepBatch
    ) -> Tensor:
        members = self._tensor(rollout.joint_steps.members)[batch.indices]
        steps = self._tensor(rollout.joint_steps.steps)[batch.indices]
        mask = critic_targets.mask[batch.indices]
        returns = _returns(critic_targets, batch.indices)
        self._critic.value.update(returns if batch.undivided else _returns(critic_targets, batch.all_indices))
        # An agent that was cut off before the others keeps the action drawn once in `_estimate_advantages`.
        assert critic_targets.actions is not None
        q = _forward(self._critic, rollout, critic_targets.actions, members, batch.filled)[mask]
        q_taken = q[torch.arange(len(q), device=q.device), rollout.discrete_actions[steps[mask], 0]]
        loss = (q_taken - self._critic.value.scaled(returns)).square().mean()
        loss = self._shard.weighted(loss, batch.share(critic_targets.mask))
        self._critic_steps += 1
        if self._critic_steps % self._hyper.target_update == 0:
            self._target.load_state_dict(self._critic.state_dict())
        return loss

    def _networks(self) -> dict[str, nn.Module]:
        return {**super()._networks(), "target": self._target}

    def state_dict(self) -> dict[str, Any]:
        """The state of every learner on policy, the target critic and how far exploration has come."""
        recorded = self.actor.exploration.state_dict()["steps"]
        return {**super().state_dict(), "recorded": recorded, "critic_steps": self._critic_steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict``'s result."""
        super().load_state_dict(state)
        self.actor.exploration.load_state_dict({"steps": state["recorded"]})
        self._critic_steps = state["critic_steps"]


def _returns(critic_targets: CriticTargets, indices: Tensor) -> Tensor:
    """Returns that the critic shall learn at some joint steps, once for each agent that decided there."""
    mask = critic_targets.mask[indices]
    return critic_targets.targets[indices].expand(*mask.shape, -1)[mask]


def per_agent_rewards(rollout: GroupRollout, num_agents: int) -> GroupRollout:
    """The rollout with rewards divided by the agents of a full group, so that sums do not grow with the group."""
    agents = np.float32(num_agents)
    return rollout._replace(
        rewards=[column / agents for column in rollout.rewards],
        group_rewards=[column / agents for column in rollout.group_rewards],
    )


def _forward(
    critic: COMACritic, rollout: GroupRollout, actions: Tensor, members: Tensor, filled: Tensor | None = None
) -> Tensor:
    (*observations, actions), members = referenced_observations([*rollout.observations, actions], members)
    return critic.forward(observations, actions, members, filled)
