"""Learners of a group's action values, with a replay buffer of joint steps.

In order: act ε-greedily, store joint steps, and for every few steps make one gradient step towards targets from the
next joint steps. An algorithm's own file defines its network, mixer and consensus.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.off_policy import GroupQSettings
from trainer_service.config.network import NetworkSettings
from trainer_service.learning.algorithms.common.checks import require_discrete, require_settings
from trainer_service.learning.algorithms.common.cloning import make_cloning, margin_loss
from trainer_service.learning.algorithms.common.exploration import EpsilonGreedy
from trainer_service.learning.algorithms.common.learner import Compute, Metrics
from trainer_service.learning.algorithms.common.off_policy.group_replay import GroupView, joint_parts
from trainer_service.learning.algorithms.common.off_policy.head_consensus import HeadConsensus
from trainer_service.learning.algorithms.common.off_policy.joint_minibatch import JointMinibatch, TDErrors
from trainer_service.learning.algorithms.common.off_policy.mixer_state import MixerState
from trainer_service.learning.algorithms.common.off_policy.replay_learner import ReplayLearner, bounded_actor
from trainer_service.learning.algorithms.common.off_policy.update_schedule import target_tau
from trainer_service.learning.algorithms.common.policy_network import GreedyPolicyNetwork
from trainer_service.learning.algorithms.common.reward_models import make_reward_sources
from trainer_service.learning.networks.flat import TargetNetwork
from trainer_service.learning.networks.groups.agent_networks import AgentNetworks
from trainer_service.learning.networks.groups.group_q_network import make_q_network
from trainer_service.learning.networks.optimizers import make_optimizer
from trainer_service.learning.networks.random_streams import seeded
from trainer_service.ops.q_learning import (
    advantage_targets,
    best_value,
    chosen_value,
    double_q_value,
    td_targets,
)
from unity_bridge.specs import BehaviorSpec

MakeNetwork = Callable[[BehaviorSpec, NetworkSettings, Any, int], AgentNetworks]
"""Makes a network from an agent's sensors and actions, the settings of networks and of the algorithm, and the number of
agents in a group."""


class GroupNetworks(nn.Module):
    """All learned networks: the agents' action values, and their mixer if there is one."""

    def __init__(self, network: AgentNetworks, mixer: nn.Module | None) -> None:
        super().__init__()
        self.network = network
        self.mixer = mixer


class TargetValues(NamedTuple):
    """The target network's values of B joint steps; zeros for absent agents. Shapes [B, n]."""

    best: Tensor
    chosen: Tensor


class GroupQLearner(ReplayLearner[JointMinibatch]):
    """A learner of action values for groups of agents, with its networks, targets and replay buffer.

    Without a mixer, each agent learns independently, from its own rewards or from all agents'. With a mixer, the group
    learns.
    """

    def __init__(
        self,
        spec: BehaviorSpec,
        settings: TrainerSettings,
        compute: Compute,
        *,
        make_network: MakeNetwork | None = None,
        make_mixer: Callable[[], nn.Module] | None = None,
        mixer_state: MixerState | None = None,
        consensus_every: int | None = None,
    ) -> None:
        """
        Args:
            spec: as the learner observes it, with agent ids last, if any.
            settings: of the behavior.
            compute: device, seed and part of the work.
            make_network: makes the network of communicating agents; None for agents that do not communicate.
            make_mixer: makes the mixer of values [B, n] and a state to the group's value [B]; None for independent
                agents.
            mixer_state: the state of the mixer; None if it needs none.
            consensus_every: joint steps between averages of the value heads; None for no averaging.

        Raises:
            ValueError: The behavior's sensors or actions are not supported.
        """
        hyper = require_settings(settings, GroupQSettings)
        require_discrete(settings.trainer_type, spec.action_spec)
        view, device = GroupView.of(spec, hyper.num_agents), compute.device
        with seeded(compute.seed):
            network = _network(view, settings, hyper, make_network)
            mixer = None if make_mixer is None else make_mixer()
            self._online = GroupNetworks(network, mixer).to(device)
            sources = make_reward_sources(view.agent_spec, settings, device, compute.shard)
        self._target = TargetNetwork(self._online)
        self._optimizer = make_optimizer(self._online.parameters(), hyper, compute.shard)
        self._mixer_state = mixer_state
        self._consensus = None
        if consensus_every is not None:
            self._consensus = HeadConsensus(network, self._optimizer.adam, consensus_every)
        self._hyper = hyper
        self._branches = spec.action_spec.discrete_branches
        normalizer = view.make_normalizer(settings).to(device)
        # Communicated observations must be of the same joint step, for any kind of rewards.
        follow_agents = hyper.reward_mode == "individual" and not hyper.communicates
        parts = joint_parts(
            view, settings, compute, sources, normalizer, network.memory_size, follow_agents=follow_agents
        )
        super().__init__(
            settings,
            compute,
            actor=bounded_actor(
                network, normalizer, compute, GreedyPolicyNetwork, exploration=EpsilonGreedy(hyper)
            ),
            parts=parts,
            cloning=make_cloning(
                view.agent_spec,
                settings,
                compute,
                network,
                network.imitators,
                margin_loss(self._branches),
                self._optimizer.parameters,
                partial(normalizer.some, view.agent_sensors),
            ),
            networks={"network": self._online, "target": self._target.network},
            optimizers={"optimizer": self._optimizer},
        )

    def update(self, step: int) -> Metrics:
        """Makes the gradient steps that are due: values move towards the target networks' targets."""
        updates, consensus = self.begin_update(step), self._consensus
        if consensus is not None:
            consensus.begin(self.replay.schedule.due)
        for batch in updates.minibatches():
            errors = self.td_errors(batch)
            updates.minimize(self._optimizer, errors.loss)
            means = {
                "Losses/Value Loss": errors.squared,
                "Losses/TD Error": errors.absolute.mean(),
                "Policy/Mean Q": errors.value,
                "Policy/Mean Target": errors.target,
                "Losses/Agent {} Value Loss": errors.squared_by_agent,
            }
            updates.report(means)
            updates.finish_step(errors.absolute)
            if consensus is not None:
                consensus.follow(self.replay.rows, self.replay.schedule.due)
            tau = target_tau(self._hyper, self.replay.updates)
            self._target.soft_update(self._optimizer.parameters, tau)
            updates.clone()
        agreed = {} if consensus is None else consensus.metrics()
        return {**updates.metrics(), **agreed, **updates.learn_rewards()}

    def td_errors(self, batch: JointMinibatch) -> TDErrors:
        """TD errors of each agent, or of the group with a mixer."""
        q = self._online.network.group_outputs(batch.inputs)
        values = torch.where(batch.present, chosen_value(q, batch.actions, self._branches), 0.0)
        with torch.no_grad():
            next_values = torch.where(batch.next_present, self.next_values(batch), 0.0)
            now = self._target_values(batch) if self._hyper.advantage_learning else None
        if self._online.mixer is None:
            return self._agent_errors(batch, values, next_values, now)
        return self._group_errors(batch, values, next_values, now)

    def next_values(self, batch: JointMinibatch) -> Tensor:
        """Target values of each agent's best next choice. [B, n]"""
        q = self._target.network.network.group_outputs(batch.next_inputs)
        if not self._hyper.double:
            return best_value(q, batch.next_allowed, self._branches)
        online_q = self._online.network.group_outputs(batch.next_inputs)
        return double_q_value(online_q, q, batch.next_allowed, self._branches)

    def _target_values(self, batch: JointMinibatch) -> TargetValues:
        q = self._target.network.network.group_outputs(batch.inputs)
        best = best_value(q, batch.allowed, self._branches)
        chosen = chosen_value(q, batch.actions, self._branches)
        return TargetValues(*(torch.where(batch.present, each, 0.0) for each in (best, chosen)))

    def _agent_errors(
        self, batch: JointMinibatch, values: Tensor, next_values: Tensor, now: TargetValues | None
    ) -> TDErrors:
        """Errors against y_i = r_i + γ (1 − terminated_i) Q_i'(o_i'), or all agents' rewards for r_i."""
        rewards = batch.rewards
        if self._hyper.reward_mode == "team_sum":
            rewards = batch.summed_rewards.unsqueeze(1)
        targets = td_targets(rewards, batch.discounts, next_values, batch.terminated)
        if now is not None:
            targets = advantage_targets(targets, *now, self._hyper.advantage_learning)
        targets = torch.where(batch.present, targets, 0.0)
        errors = values - targets
        present = batch.present.to(errors.dtype)
        squared = errors.square()
        if batch.weights is not None:
            squared = squared * batch.weights.unsqueeze(1)
        # The mean of each agent, so that the presence of one agent does not change how fast other agents learn.
        decisions = batch.decisions
        counts = decisions.clamp(min=batch.share)
        loss = (squared.sum(dim=0) / counts).sum()
        total, unweighted = decisions.sum(), errors.detach().square()
        return TDErrors(
            loss=loss,
            squared=unweighted.sum() / total,
            squared_by_agent=unweighted.sum(dim=0) / counts,
            absolute=errors.detach().abs().sum(dim=1) / present.sum(dim=1),
            value=values.detach().sum() / total,
            target=targets.sum() / total,
        )

    def _group_errors(
        self, batch: JointMinibatch, values: Tensor, next_values: Tensor, now: TargetValues | None
    ) -> TDErrors:
        """Errors against y = Σ r + γ Q_tot'(o') with the mixer's Q_tot'. It is 0 if no agent is left."""
        mixer, target_mixer = self._online.mixer, self._target.network.mixer
        if mixer is None or target_mixer is None:
            raise ValueError("there is no mixer of the agents' values")
        state = None if self._mixer_state is None else self._mixer_state.now(batch)
        total = mixer(values, state)
        with torch.no_grad():
            next_state = None if self._mixer_state is None else self._mixer_state.next(batch)
            ended = ~batch.next_present.any(dim=1)
            targets = td_targets(
                batch.summed_rewards, batch.discounts[:, 0], target_mixer(next_values, next_state), ended
            )
            if now is not None:
                best, chosen = (target_mixer(each, state) for each in now)
                targets = advantage_targets(targets, best, chosen, self._hyper.advantage_learning)
        errors = total - targets
        squared = errors.square()
        mean = squared.mean()
        return TDErrors(
            loss=mean if batch.weights is None else (squared * batch.weights).mean(),
            squared=mean.detach(),
            squared_by_agent=mean.new_empty(0),
            absolute=errors.detach().abs(),
            value=total.detach().mean(),
            target=targets.mean(),
        )

    def state_dict(self) -> dict[str, Any]:
        """The whole state except the replay buffer, with the progress of averaging."""
        state = {**super().state_dict(), "joint_steps": self.replay.rows}
        return state if self._consensus is None else {**state, "agreed": self._consensus.checked_at}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the state with an empty buffer. Learning continues after ``buffer_init_steps``."""
        super().load_state_dict(state)
        self.replay.rows = state["joint_steps"]
        if self._consensus is not None:
            self._consensus.checked_at = state["agreed"]


def _network(
    view: GroupView, settings: TrainerSettings, hyper: GroupQSettings, make_network: MakeNetwork | None
) -> AgentNetworks:
    if make_network is not None:
        return make_network(view.agent_spec, settings.network_settings, hyper, view.num_agents)
    return make_q_network(
        view.agent_spec,
        settings.network_settings,
        agent_sensors=view.agent_sensors,
        num_agents=view.num_agents,
        share=hyper.sharing,
        ids=hyper.agent_ids,
    )
