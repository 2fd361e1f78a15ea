"""Multi-agent deep deterministic policy gradient, Lowe et al. 2017 (arXiv:1706.02275).

In the order of the paper's algorithm 1: act independently, store joint steps, and for every few steps make one
gradient step of the critics, one of the actors, and a step of their targets. Critics have all agents' observations and
actions. Discrete actions are relaxed by the Gumbel-softmax if a gradient must pass through them. B joint steps, n
agents. An action is C continuous actions and K choices, one-hot by branch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.off_policy import MADDPGSettings
from trainer_service.learning.algorithms.common.checks import require_settings
from trainer_service.learning.algorithms.common.cloning import action_loss, make_cloning
from trainer_service.learning.algorithms.common.exploration import ActionNoise
from trainer_service.learning.algorithms.common.learner import Compute, Metrics
from trainer_service.learning.algorithms.common.off_policy.group_replay import GroupView, joint_parts
from trainer_service.learning.algorithms.common.off_policy.joint_minibatch import JointMinibatch, TDErrors
from trainer_service.learning.algorithms.common.off_policy.replay_learner import ReplayLearner, bounded_actor
from trainer_service.learning.algorithms.common.off_policy.update_schedule import target_tau
from trainer_service.learning.algorithms.common.policy_network import SquashedPolicyNetwork
from trainer_service.learning.algorithms.common.reward_models import make_reward_sources
from trainer_service.learning.networks.flat import TargetNetwork
from trainer_service.learning.networks.groups.stacked_actor_critic import make_actors, make_critics
from trainer_service.learning.networks.members import actions_of_agents, continuous_of_agents
from trainer_service.learning.networks.optimizers import make_optimizer
from trainer_service.learning.networks.policies.action_heads import ActionParameters
from trainer_service.learning.networks.random_streams import random_stream, seeded
from trainer_service.ops.gumbel import greedy_one_hot, gumbel_noise, gumbel_softmax, one_hot_choices
from trainer_service.ops.q_learning import td_targets
from unity_bridge.specs import BehaviorSpec


class MADDPG(ReplayLearner[JointMinibatch]):
    """A learner of actors with central critics, for groups of agents, with targets and a replay buffer.

    Actors and critics have separate optimizers, since an actor's loss passes through the critics and must not change
    them.
    """

    def __init__(self, spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> None:
        """Raises ValueError if the behavior's sensors or actions are not supported. spec: see GroupView."""
        hyper = require_settings(settings, MADDPGSettings)
        view, device, shard = GroupView.of(spec, hyper.num_agents), compute.device, compute.shard
        agent_spec, network = view.agent_spec, settings.network_settings
        agents, share = view.num_agents, hyper.sharing
        with seeded(compute.seed):
            self._actors = make_actors(
                agent_spec,
                network,
                agent_sensors=view.agent_sensors,
                num_agents=agents,
                share=share,
                ids=hyper.agent_ids,
            ).to(device)
            self._critics = make_critics(agent_spec, network, num_agents=agents, share=share).to(device)
            sources = make_reward_sources(agent_spec, settings, device, shard)
        self._target_actors, self._target_critics = TargetNetwork(self._actors), TargetNetwork(self._critics)
        self._actor_optimizer, self._critic_optimizer = (
            make_optimizer(networks.parameters(), hyper, shard) for networks in (self._actors, self._critics)
        )
        self._hyper = hyper
        self._branches = agent_spec.action_spec.discrete_branches
        self._num_agents = agents
        has_action = actions_of_agents(agent_spec)
        self._own_outputs = None if has_action is None else has_action.mean(dim=1).to(device)
        """Share of an actor's outputs that are not padding. [n]; None without padding."""
        self._learns_present_only = (
            hyper.reward_mode == "individual" or not self._critics.values_absent_agents
        )
        """Whether only values of present agents are learned."""
        self._relaxing = random_stream(compute.seed + 2)
        normalizer = view.make_normalizer(settings).to(device)
        has_continuous = continuous_of_agents(agent_spec)
        super().__init__(
            settings,
            compute,
            actor=bounded_actor(
                self._actors,
                normalizer,
                compute,
                SquashedPolicyNetwork,
                exploration=ActionNoise(hyper, spec.action_spec.continuous_size, hyper.buffer_init_steps),
                own_actions=None if has_continuous is None else has_continuous.numpy(),
            ),
            parts=joint_parts(view, settings, compute, sources, normalizer, self._actors.memory_size),
            cloning=make_cloning(
                agent_spec,
                settings,
                compute,
                self._actors,
                self._actors.imitators,
                action_loss(self._actors.actions),
                self._actor_optimizer.parameters,
                partial(normalizer.some, view.agent_sensors),
            ),
            networks={
                "actors": self._actors,
                "critics": self._critics,
                "target_actors": self._target_actors.network,
                "target_critics": self._target_critics.network,
            },
            optimizers={
                "actor_optimizer": self._actor_optimizer,
                "critic_optimizer": self._critic_optimizer,
            },
            streams={"relaxing": self._relaxing},
        )

    def update(self, step: int) -> Metrics:
        """Makes the gradient steps that are due, of the critics, the actors and their targets."""
        updates = self.begin_update(step)
        for batch in updates.minibatches():
            taken = self.taken(batch)
            errors = self.critic_errors(batch, taken)
            updates.minimize(self._critic_optimizer, errors.loss)
            noise = partial(updates.exponential, generator=self._relaxing)
            policy_loss = self.policy_loss(batch, taken, noise)
            updates.minimize(self._actor_optimizer, policy_loss)
            means = {
                "Losses/Value Loss": errors.squared,
                "Losses/TD Error": errors.absolute.mean(),
                "Policy/Mean Q": errors.value,
                "Policy/Mean Target": errors.target,
                "Losses/Policy Loss": policy_loss.detach() / self._num_agents,
                "Losses/Agent {} Value Loss": errors.squared_by_agent,
            }
            updates.report(means)
            updates.finish_step(errors.absolute)
            tau = target_tau(self._hyper, self.replay.updates)
            self._target_actors.soft_update(self._actor_optimizer.parameters, tau)
            self._target_critics.soft_update(self._critic_optimizer.parameters, tau)
            updates.clone()
        return {**updates.metrics(), **updates.learn_rewards()}

    def critic_errors(self, batch: JointMinibatch, taken: Tensor) -> TDErrors:
        """Errors of the critics against r_i + γ Q_i'(x', μ_1'(o_1'), …, μ_n'(o_n')), eq. 6 of the paper.

        taken: the actions of all agents, [B, n, C + K].
        """
        targets = self.targets(batch)
        values = self._critics.forward(batch.inputs, batch.present, taken.unsqueeze(1))
        mask, counts = batch.present, batch.decisions
        if not self._learns_present_only:
            mask, counts = torch.ones_like(mask), torch.full_like(counts, float(len(mask)))
        learned = mask.to(targets.dtype)
        errors = (values - targets) * learned
        squared = errors.square()
        if batch.weights is not None:
            squared = squared * batch.weights.unsqueeze(1)
        loss = _sum_of_means(squared, counts, batch.share)
        with torch.no_grad():
            count = counts.sum().clamp(min=batch.share)
            return TDErrors(
                loss=loss,
                squared=errors.square().sum() / count,
                squared_by_agent=errors.square().sum(dim=0) / counts.clamp(min=batch.share),
                absolute=errors.abs().sum(dim=1) / learned.sum(dim=1).clamp(min=1.0),
                value=(values * learned).sum() / count,
                target=(targets * learned).sum() / count,
            )

    @torch.no_grad()
    def targets(self, batch: JointMinibatch) -> Tensor:
        """Targets of the critics' values. [B, n]"""
        critics, actions = self._target_critics.network, self.next_actions(batch)
        values = critics.forward(batch.next_inputs, batch.next_present, actions.unsqueeze(1))
        if self._hyper.reward_mode == "individual":
            return td_targets(batch.rewards, batch.discounts, values, batch.terminated)
        # A dead agent's value includes later rewards of the other agents, as long as one of them is left.
        if not critics.values_absent_agents:
            values = torch.where(batch.next_present, values, _means_of(values, batch.next_present))
        ended = ~batch.next_present.any(dim=1, keepdim=True)
        return td_targets(batch.summed_rewards.unsqueeze(1), batch.discounts, values, ended)

    def next_actions(self, batch: JointMinibatch) -> Tensor:
        """The target actors' next actions: continuous actions, and the likeliest choices. [B, n, C + K]"""
        parameters = self._target_actors.network.group_policy(batch.next_inputs)
        numbers = torch.tanh(parameters.mean)
        if not self._branches:
            return numbers
        return torch.cat([numbers, greedy_one_hot(parameters.logits, batch.next_allowed, self._branches)], 2)

    def policy_loss(self, batch: JointMinibatch, taken: Tensor, noise: Callable[[Tensor], Tensor]) -> Tensor:
        """The loss that moves each actor towards larger values of its critic, given the other agents' actions.

        taken: the actions of all agents, [B, n, C + K]; noise: draws of an exponential distribution, in the shape of
        its argument.
        """
        parameters = self._actors.group_policy(batch.inputs)
        own = torch.eye(self._num_agents, dtype=torch.bool, device=batch.present.device).unsqueeze(-1)
        # Row i is the input of critic i: its own agent's present action, all others as replayed. [B, n, n, C + K]
        now = self._relaxed(parameters, batch.allowed, noise).unsqueeze(1)
        actions = torch.where(own, now, taken.unsqueeze(1))
        with self._critic_optimizer.held_still():
            values = self._critics.forward(batch.inputs, batch.present, actions)
        size = torch.cat([parameters.mean, parameters.logits], dim=2).square().mean(dim=2)
        penalty = self._hyper.logits_penalty * (
            size if self._own_outputs is None else size / self._own_outputs
        )
        return _sum_of_means(
            (penalty - values) * batch.present.to(values.dtype), batch.decisions, batch.share
        )

    def taken(self, batch: JointMinibatch) -> Tensor:
        """The actions of all agents. [B, n, C + K]"""
        if not self._branches:
            return batch.continuous_actions
        return torch.cat([batch.continuous_actions, one_hot_choices(batch.actions, self._branches)], dim=2)

    def _relaxed(
        self, parameters: ActionParameters, allowed: Tensor | None, noise: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """The actors' present actions, with a gradient: choices are relaxed. [B, n, C + K]"""
        numbers, logits, hyper = torch.tanh(parameters.mean), parameters.logits, self._hyper
        if not self._branches:
            return numbers
        choices = gumbel_softmax(
            logits,
            gumbel_noise(noise(logits)),
            allowed,
            self._branches,
            temperature=hyper.gumbel_temperature,
            hard=hyper.hard_gumbel,
        )
        return torch.cat([numbers, choices], dim=2)


def _means_of(values: Tensor, there: Tensor) -> Tensor:
    """The mean value of present agents; 0 without present agents. [B, n] to [B, 1]"""
    counted = there.to(values.dtype)
    return (values * counted).sum(dim=1, keepdim=True) / counted.sum(dim=1, keepdim=True).clamp(min=1.0)


def _sum_of_means(parts: Tensor, counts: Tensor, share: float) -> Tensor:
    """Sum over agents of the mean over each agent's joint steps, so that a rare agent learns as fast.

    parts: [B, n]. counts: joint steps of each agent, [n]. share: weight of one joint step in ``counts``.
    """
    return (parts.sum(dim=0) / counts.clamp(min=share)).sum()
