"""The base of learners of a group's action values, from a replay of its joint steps.

Top to bottom: act ε-greedily, remember joint steps, and for every few steps one gradient step towards targets from
the next joint steps. What a method makes of the agents' values is in its own file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from trainer_service.algorithms.common.actor import Actor, bounded_actions
from trainer_service.algorithms.common.checks import require_discrete
from trainer_service.algorithms.common.cloning import BehavioralCloning, margin_loss
from trainer_service.algorithms.common.exploration import EpsilonGreedy
from trainer_service.algorithms.common.learner import Compute
from trainer_service.algorithms.common.off_policy.group_replay_learner import GroupReplayLearner
from trainer_service.algorithms.common.off_policy.joint_minibatch import JointMinibatch
from trainer_service.algorithms.common.off_policy.update_schedule import target_tau
from trainer_service.algorithms.common.policy_network import GreedyPolicyNetwork
from trainer_service.config.hyperparameters.off_policy import GroupQSettings
from trainer_service.networks.flat import FlatOptimizer, TargetNetwork
from trainer_service.networks.groups.group_q_network import (
    GroupQNetwork,
    MemberQNetworks,
    SeparateQNetworks,
    SharedQNetwork,
)
from trainer_service.ops.q_learning import (
    advantage_targets,
    best_value,
    chosen_value,
    double_q_value,
    td_targets,
)
from trainer_service.replay.joint_transitions import JointSample
from trainer_service.rollout.trajectories import Trajectories


class GroupNetworks(nn.Module):
    """All networks that learn: the agents' action values, and the mixer of them if there is one."""

    def __init__(self, network: GroupQNetwork, mixer: nn.Module | None) -> None:
        super().__init__()
        self.network = network
        self.mixer = mixer


class TDErrors(NamedTuple):
    """Temporal-difference errors of a minibatch of B joint steps."""

    loss: Tensor
    """The loss that is minimized."""

    squared: Tensor
    """δ², the mean."""

    squared_by_agent: Tensor
    """Mean δ² of each agent of the group. [n]; [0] where only the group's error is known."""

    absolute: Tensor
    """|δ|, over agents the mean. [B]"""

    value: Tensor
    """Mean value of the actions taken."""

    target: Tensor
    """Mean target."""


class TargetValues(NamedTuple):
    """What the target network makes of B joint steps themselves; zeros for absent agents. Shapes [B, n]."""

    best: Tensor
    chosen: Tensor


class GroupQLearner(GroupReplayLearner):
    """A learner of action values for agents that come in groups, with its networks, targets and replay buffer.

    By default each agent learns for itself, from their own rewards or from everyone's; with a mixer the group learns.
    """

    _settings_type: ClassVar[type[GroupQSettings]]
    _hyper: GroupQSettings
    _tags = ("Losses/Value Loss", "Losses/TD Error", "Policy/Mean Q", "Policy/Mean Target")

    def _make_networks(self) -> None:
        require_discrete(self._settings.trainer_type, self._spec.action_spec)
        self._branches = self._spec.action_spec.discrete_branches
        self._online = GroupNetworks(self._make_network(), self._make_mixer()).to(self._device)
        self._target = TargetNetwork(self._online)
        self._optimizer = self._optimizer_of(self._online)
        self._joint_steps = 0
        """Joint steps of groups over the whole run."""

    def _make_network(self) -> GroupQNetwork:
        """Builds what gives each agent the values of its choices."""
        agent_spec, settings, hyper = self._agent_spec, self._settings.network_settings, self._hyper
        sensors, share = self._agent_sensors, hyper.sharing
        if agent_spec.members and share != "full":
            return MemberQNetworks(
                agent_spec, settings, agent_sensors=sensors, share=share, ids=hyper.agent_ids
            )
        if share == "none":
            return SeparateQNetworks(agent_spec, settings, agent_sensors=sensors, num_agents=self._num_agents)
        ids = self._num_agents if hyper.agent_ids else 0
        return SharedQNetwork(agent_spec, settings, agent_sensors=sensors, ids=ids)

    def _make_mixer(self) -> nn.Module | None:
        """The mixer of values [B, n] and a state to the group's [B]; None where each agent learns for itself."""
        return None

    def _make_cloning(self, compute: Compute) -> BehavioralCloning:
        network, loss = self._online.network, margin_loss(self._branches)
        return self._cloning_of(network, network.imitators(), loss, self._optimizer, compute)

    def _make_actor(self, stream: torch.Generator) -> Actor:
        return Actor(
            self._online.network,
            self._normalizer,
            stream,
            self._device,
            exploration=EpsilonGreedy(self._hyper),
            env_actions=bounded_actions,
            model=GreedyPolicyNetwork,
        )

    def _follows_agents(self) -> bool:
        """Whether what comes next is each agent's own next decision, or the group's next joint step."""
        return self._hyper.reward_mode == "individual"

    @property
    def _policy(self) -> GroupQNetwork:
        return self._online.network

    def _remember(self, trajectories: Trajectories) -> None:
        self._joint_steps += len(self._replay.record(trajectories))

    def _gradient_step(self, sample: JointSample, rate: float) -> Tensor:
        errors = self._td_errors(self._minibatch(sample))
        self._minimize(self._optimizer, errors.loss, rate)
        self._replay.finish_update(errors.absolute)
        self._after_step()
        self._update_target()
        means = torch.stack([errors.squared, errors.absolute.mean(), errors.value, errors.target])
        return torch.cat([means, errors.squared_by_agent])

    def _after_step(self) -> None:
        """Changes networks before their targets are updated; a hook for methods."""

    def _update_target(self) -> None:
        self._target.soft_update(self._optimizer.parameters, target_tau(self._hyper, self._replay.updates))

    def _td_errors(self, batch: JointMinibatch) -> TDErrors:
        """TD errors of each agent, or of the group where there is a mixer."""
        q = self._online.network.group_q_values(*batch.inputs)
        values = torch.where(batch.present, chosen_value(q, batch.actions, self._branches), 0.0)
        with torch.no_grad():
            next_values = torch.where(batch.next_present, self._next_values(batch), 0.0)
            now = self._target_values(batch) if self._hyper.advantage_learning else None
        if self._online.mixer is None:
            return self._agent_errors(batch, values, next_values, now)
        return self._group_errors(batch, values, next_values, now)

    def _next_values(self, batch: JointMinibatch) -> Tensor:
        """Target values of each agent's best next choice. [B, n]"""
        q = self._target.network.network.group_q_values(*batch.next_inputs)
        if not self._hyper.double:
            return best_value(q, batch.next_allowed, self._branches)
        online_q = self._online.network.group_q_values(*batch.next_inputs)
        return double_q_value(online_q, q, batch.next_allowed, self._branches)

    def _target_values(self, batch: JointMinibatch) -> TargetValues:
        q = self._target.network.network.group_q_values(*batch.inputs)
        best = best_value(q, batch.allowed, self._branches)
        chosen = chosen_value(q, batch.actions, self._branches)
        return TargetValues(*(torch.where(batch.present, each, 0.0) for each in (best, chosen)))

    def _agent_errors(
        self, batch: JointMinibatch, values: Tensor, next_values: Tensor, now: TargetValues | None
    ) -> TDErrors:
        """Errors against y_i = r_i + γ (1 − terminated_i) Q_i'(o_i'), or with the team's rewards for r_i."""
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
        # Every agent's own mean, so that how much one is there does not change how fast the others learn.
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
        """Errors against y = Σ r + γ Q_tot'(o'), the mixer's value; Q_tot' is 0 where no agent is left."""
        mixer, target_mixer = self._online.mixer, self._target.network.mixer
        if mixer is None or target_mixer is None:
            raise ValueError("there is no mixer of the agents' values")
        state = self._state(batch.observations, batch.state, batch.present)
        total = mixer(values, state)
        with torch.no_grad():
            next_state = self._state(batch.next_observations, batch.next_state, batch.next_present)
            ended = ~batch.next_present.any(dim=1)
            targets = td_targets(
                batch.summed_rewards, batch.discounts[:, 0], target_mixer(next_values, next_state), ended
            )
            if now is not None:
                best, chosen = (target_mixer(each, state) for each in now)
                targets = advantage_targets(targets, best, chosen, self._hyper.advantage_learning)
        errors = total - targets
        squared = errors.square()
        loss = (squared if batch.weights is None else squared * batch.weights).mean()
        detached = errors.detach()
        return TDErrors(
            loss=loss,
            squared=detached.square().mean(),
            squared_by_agent=detached.new_empty(0),
            absolute=detached.abs(),
            value=total.detach().mean(),
            target=targets.mean(),
        )

    def _state(self, seen: Sequence[Tensor], state: Tensor | None, present: Tensor) -> Tensor | None:
        """The mixer's state, [B, S]. seen: the agents' observations; state: the simulator's, [B, n, S]."""
        return None

    def _weights(self) -> dict[str, nn.Module]:
        return {"network": self._online, "target": self._target.network}

    def _optimizers(self) -> dict[str, FlatOptimizer]:
        return {"optimizer": self._optimizer}

    def state_dict(self) -> dict[str, Any]:
        """Everything but the replay buffer: see ``replay_state``."""
        return {**super().state_dict(), "joint_steps": self._joint_steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from there with an empty buffer: learning goes on after ``buffer_init_steps``."""
        super().load_state_dict(state)
        self._joint_steps = state["joint_steps"]
