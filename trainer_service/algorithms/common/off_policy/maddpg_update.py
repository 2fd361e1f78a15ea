"""The gradient steps of MADDPG, with its networks, targets and optimizers.

B joint steps, n agents; an action is C numbers and K choices, one-hot by branch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from trainer_service.algorithms.common.off_policy.joint_minibatch import JointMinibatch
from trainer_service.config.hyperparameters.off_policy import MADDPGSettings
from trainer_service.config.network import NetworkSettings
from trainer_service.networks.flat import FlatOptimizer, TargetNetwork
from trainer_service.networks.groups.histories import GroupInput
from trainer_service.networks.groups.member_actor_critic import MemberActors, MemberCritics
from trainer_service.networks.groups.recurrent_actor_critic import RecurrentActors, RecurrentCritics
from trainer_service.networks.groups.stacked_actor_critic import StackedActors, StackedCritics
from trainer_service.networks.members import actions_of_agents
from trainer_service.networks.policies.action_heads import ActionParameters
from trainer_service.networks.shard import ALONE, Shard
from trainer_service.ops.gumbel import greedy_one_hot, gumbel_noise, gumbel_softmax, one_hot_choices
from trainer_service.ops.q_learning import td_targets
from unity_bridge.specs import BehaviorSpec

_Critics = StackedCritics | RecurrentCritics | MemberCritics


class CriticReport(NamedTuple):
    """Errors of the critics on a minibatch, before their step."""

    squared: Tensor
    """δ², the mean over agents and joint steps."""

    squared_by_agent: Tensor
    """δ², the mean over joint steps. [n]"""

    absolute: Tensor
    """|δ|, the mean over agents. [B]"""

    value: Tensor
    """Mean value of the actions taken."""

    target: Tensor
    """Mean target."""


class MADDPGUpdate:
    """Actors and critics, their targets, and their optimizers.

    Actors and critics have an optimizer each: an actor's loss passes through the critics, and must not move them.
    """

    def __init__(
        self,
        agent_spec: BehaviorSpec,
        network: NetworkSettings,
        hyper: MADDPGSettings,
        agent_sensors: Sequence[int],
        num_agents: int,
        device: torch.device,
        shard: Shard = ALONE,
    ) -> None:
        """agent_spec, agent_sensors: as for StackedActors. Raises ValueError where a sensor is no vector."""
        self._hyper = hyper
        self._branches = agent_spec.action_spec.discrete_branches
        self._num_agents = num_agents
        has_action = actions_of_agents(agent_spec)
        self._own_outputs = None if has_action is None else has_action.mean(dim=1).to(device)
        """Share of an actor's outputs that are not padding. [n]; None where all are."""
        self.actors = _make_actors(agent_spec, network, hyper, agent_sensors, num_agents).to(device)
        self._critics = _make_critics(agent_spec, network, hyper, num_agents).to(device)
        self._target_actors, self._target_critics = TargetNetwork(self.actors), TargetNetwork(self._critics)
        decay = hyper.weight_decay
        self.actor_optimizer = FlatOptimizer(self.actors.parameters(), weight_decay=decay, shard=shard)
        self._critic_optimizer = FlatOptimizer(self._critics.parameters(), weight_decay=decay, shard=shard)

    def joint_actions(self, numbers: Tensor, choices: Tensor) -> Tensor:
        """The actions of all agents. [B, n, C] and int64 [B, n, branches] to [B, n, C + K]."""
        return (
            torch.cat([numbers, one_hot_choices(choices, self._branches)], dim=2)
            if self._branches
            else numbers
        )

    def update_critics(self, batch: JointMinibatch, joint_actions: Tensor, rate: float) -> CriticReport:
        """Moves critics towards r_i + γ Q_i'(x', μ_1'(o_1'), …, μ_n'(o_n')), eq. 6 of the paper."""
        with torch.no_grad():
            targets = self._targets(batch)
        mask = self._value_mask(batch).to(targets.dtype)
        values = _values(self._critics, batch.inputs, batch.present, joint_actions.unsqueeze(1))
        errors = (values - targets) * mask
        squared = errors.square()
        if batch.weights is not None:
            squared = squared * batch.weights.unsqueeze(1)
        counts = self._value_counts(batch)
        loss = _sum_of_means(squared, counts, batch.share)
        self._critic_optimizer.minimize(loss, rate, self._hyper.max_grad_norm, batch.share)
        with torch.no_grad():
            count = counts.sum().clamp(min=batch.share)
            return CriticReport(
                squared=errors.square().sum() / count,
                squared_by_agent=errors.square().sum(dim=0) / counts.clamp(min=batch.share),
                absolute=errors.abs().sum(dim=1) / mask.sum(dim=1).clamp(min=1.0),
                value=(values * mask).sum() / count,
                target=(targets * mask).sum() / count,
            )

    def update_actors(
        self,
        batch: JointMinibatch,
        joint_actions: Tensor,
        allowed: Tensor | None,
        rate: float,
        noise: Callable[[Tensor], Tensor],
    ) -> Tensor:
        """Moves each actor towards what its critic values more, given what all others did. Returns the loss.

        joint_actions: [B, n, C + K]; allowed: bool [B, n, K], or None where everything is; noise: draws of an
        exponential distribution, in the shape of what it is given.
        """
        parameters = self.actors.group_policy(*batch.inputs)
        present = batch.present.to(joint_actions.dtype)
        own = torch.eye(self._num_agents, dtype=torch.bool, device=joint_actions.device).unsqueeze(-1)
        # Row i is the input of critic i: its own agent's action as of now, all others as replayed. [B, n, n, C + K]
        actions = torch.where(
            own, self._relaxed_actions(parameters, allowed, noise).unsqueeze(1), joint_actions.unsqueeze(1)
        )
        values = _values(self._critics, batch.inputs, batch.present, actions)
        outputs = torch.cat([parameters.mean, parameters.logits], dim=2)
        size = outputs.square().mean(dim=2)
        penalty = self._hyper.logits_penalty * (
            size if self._own_outputs is None else size / self._own_outputs
        )
        loss = _sum_of_means((penalty - values) * present, batch.decisions, batch.share)
        self.actor_optimizer.minimize(loss, rate, self._hyper.max_grad_norm, batch.share)
        return loss.detach() / self._num_agents

    def soft_update_targets(self, tau: float) -> None:
        """Moves all targets towards their networks by a share ``tau``."""
        self._target_actors.soft_update(self.actor_optimizer.parameters, tau)
        self._target_critics.soft_update(self._critic_optimizer.parameters, tau)

    def _targets(self, batch: JointMinibatch) -> Tensor:
        """Targets of the critics' values. [B, n]"""
        next_actions = self._target_actions(batch)
        critics = self._target_critics.network
        values = _values(critics, batch.next_inputs, batch.next_present, next_actions.unsqueeze(1))
        if self._hyper.reward_mode == "individual":
            return td_targets(batch.rewards, batch.discounts, values, batch.terminated)
        # A dead agent is still worth what the others earn, for as long as one of them is left.
        if not critics.values_absent_agents:
            values = torch.where(batch.next_present, values, _means_of(values, batch.next_present))
        ended = ~batch.next_present.any(dim=1, keepdim=True)
        return td_targets(batch.summed_rewards.unsqueeze(1), batch.discounts, values, ended)

    def _value_mask(self, batch: JointMinibatch) -> Tensor:
        """Whether an agent's value is learned at a joint step. bool [B, n]"""
        return batch.present if self._learns_present_only else torch.ones_like(batch.present)

    @property
    def _learns_present_only(self) -> bool:
        """Whether only values of agents that are there are learned."""
        return self._hyper.reward_mode == "individual" or not self._critics.values_absent_agents

    def _value_counts(self, batch: JointMinibatch) -> Tensor:
        """How many values of each agent are learned, as ``decisions`` counts. [n]"""
        if self._learns_present_only:
            return batch.decisions
        return torch.full_like(batch.decisions, float(len(batch.present)))

    def _target_actions(self, batch: JointMinibatch) -> Tensor:
        """The target actors' next actions: numbers, and the likeliest choices. [B, n, C + K]"""
        parameters = self._target_actors.network.group_policy(*batch.next_inputs)
        numbers = torch.tanh(parameters.mean)
        if not self._branches:
            return numbers
        return torch.cat([numbers, greedy_one_hot(parameters.logits, batch.next_allowed, self._branches)], 2)

    def _relaxed_actions(
        self, parameters: ActionParameters, allowed: Tensor | None, noise: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """The actors' actions as of now, with a gradient: choices are relaxed. [B, n, C + K]"""
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

    def weights(self) -> dict[str, nn.Module]:
        """Networks and targets, by the keys of a checkpoint."""
        return {
            "actors": self.actors,
            "critics": self._critics,
            "target_actors": self._target_actors.network,
            "target_critics": self._target_critics.network,
        }

    def optimizers(self) -> dict[str, FlatOptimizer]:
        """The optimizers, by the keys of a checkpoint."""
        return {"actor_optimizer": self.actor_optimizer, "critic_optimizer": self._critic_optimizer}


def _make_actors(
    agent_spec: BehaviorSpec,
    network: NetworkSettings,
    hyper: MADDPGSettings,
    agent_sensors: Sequence[int],
    num_agents: int,
) -> StackedActors | MemberActors:
    share, ids = hyper.sharing, hyper.agent_ids
    if agent_spec.members and share != "full":
        return MemberActors(agent_spec, network, agent_sensors=agent_sensors, share=share, ids=ids)
    make: Callable[..., StackedActors] = StackedActors
    if network.memory is not None:
        make = partial(RecurrentActors, memory=network.memory)
    sizes = {"num_agents": num_agents, "shared": share != "none", "ids": ids}
    return make(agent_spec, network, agent_sensors=agent_sensors, **sizes)


def _make_critics(
    agent_spec: BehaviorSpec, network: NetworkSettings, hyper: MADDPGSettings, num_agents: int
) -> _Critics:
    share = hyper.sharing
    if agent_spec.members and share == "group":
        return MemberCritics(agent_spec, network)
    make: Callable[..., StackedCritics | RecurrentCritics] = StackedCritics
    if network.memory is not None:
        make = partial(RecurrentCritics, memory=network.memory)
    return make(agent_spec, network, num_agents=num_agents, shared=share != "none")


def _values(critics: _Critics, seen: GroupInput, present: Tensor, actions: Tensor) -> Tensor:
    """Values [B, n] of everyone's actions, as StackedCritics takes them."""
    return critics.forward(seen.observations, present, actions, seen.histories)


def _means_of(values: Tensor, there: Tensor) -> Tensor:
    """The mean value of the agents that are there; 0 where nobody is. [B, n] to [B, 1]"""
    counted = there.to(values.dtype)
    return (values * counted).sum(dim=1, keepdim=True) / counted.sum(dim=1, keepdim=True).clamp(min=1.0)


def _sum_of_means(parts: Tensor, counts: Tensor, share: float) -> Tensor:
    """Sum over agents of the mean over the joint steps of each, so that a rare agent learns as fast.

    parts: [B, n]; counts: joint steps of each agent, [n]; share: what stands for one joint step in ``counts``.
    """
    return (parts.sum(dim=0) / counts.clamp(min=share)).sum()
