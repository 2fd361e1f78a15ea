"""The central critic of MAPPO and HAPPO: each agent's value from the observations of its whole group."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.on_policy import MAPPOSettings
from trainer_service.config.network import NetworkSettings
from trainer_service.learning.algorithms.common.learner import Compute
from trainer_service.learning.algorithms.common.observation_selection import sensors_except, sensors_of
from trainer_service.learning.algorithms.common.on_policy.group_rollout import (
    AdvantageEstimate,
    CriticTargets,
    JointStepBatch,
    all_joint_steps,
    group_advantages,
    individual_advantages,
    referenced_observations,
)
from trainer_service.learning.algorithms.common.on_policy.parts import Parts, group_parts
from trainer_service.learning.algorithms.common.on_policy.rollout import GroupRollout
from trainer_service.learning.networks.critics.joint_critic import JointCritic
from trainer_service.learning.networks.encoders.layers import in_chunks
from trainer_service.learning.networks.policies.group_actors import GroupActors
from trainer_service.learning.networks.shard import Shard
from trainer_service.learning.rewards import RewardSource
from trainer_service.learning.rollout.sensor_roles import SensorRole
from trainer_service.ops.losses import huber, squared
from trainer_service.ops.returns import standardize
from unity_bridge.specs import BehaviorSpec

_CHUNK = 4096


def central_critic_parts(
    spec: BehaviorSpec, settings: TrainerSettings, compute: Compute, hyper: MAPPOSettings
) -> tuple[GroupActors, CentralCritic, Parts]:
    """Makes the actors, the central critic and all other parts of a group learner."""
    make_critic = partial(make_joint_critic, spec, settings.network_settings, hyper)
    actors, critic, parts = group_parts(spec, settings, compute, make_critic)
    return actors, CentralCritic(critic, parts.rewards, hyper, compute.shard), parts


def make_joint_critic(
    spec: BehaviorSpec, network: NetworkSettings, hyper: MAPPOSettings, signals: int
) -> JointCritic:
    """Makes the network of a central critic. signals: number of reward signals."""
    if hyper.state == "environment":
        state_sensors = sensors_of(spec, SensorRole.GLOBAL_STATE)
    else:
        state_sensors = sensors_except(spec, {SensorRole.AGENT_ID, SensorRole.GLOBAL_STATE})
    return JointCritic(
        spec,
        network,
        state_sensors=state_sensors,
        state=hyper.state,
        num_agents=hyper.num_agents,
        signals=signals,
        members=1 if hyper.reward_mode == "team_sum" else hyper.num_agents,
        scaling=hyper.value_normalization,
    )


class CentralCritic:
    """Advantages, targets and loss of a joint critic on a rollout."""

    def __init__(
        self, network: JointCritic, sources: Sequence[RewardSource], hyper: MAPPOSettings, shard: Shard
    ) -> None:
        """sources: in the order of the network's values. shard: this rank's part of each minibatch."""
        self._network = network
        self._sources = sources
        self._hyper = hyper
        self._shard = shard

    def estimate(self, rollout: GroupRollout, clip_epsilon: float) -> CriticTargets:
        """Returns advantages by the present critic, and its targets.

        clip_epsilon: the clip range of values.
        """
        old = self._values(rollout)
        values = self._network.value.raw(old).cpu().numpy()
        advantages_of = group_advantages if self._hyper.reward_mode == "team_sum" else individual_advantages
        estimate = advantages_of(rollout, self._sources, values, gae_lambda=self._hyper.lambd)
        advantages = self._normalized(rollout, estimate)
        return CriticTargets(
            advantages=torch.from_numpy(advantages).to(old.device),
            targets=torch.from_numpy(estimate.returns).to(old.device),
            mask=torch.from_numpy(estimate.mask).to(old.device),
            old_values=old,
            clip_range=old.new_full((len(self._sources),), clip_epsilon),
            metrics=self._value_metrics(values, estimate),
        )

    def loss(self, rollout: GroupRollout, targets: CriticTargets, batch: JointStepBatch) -> Tensor:
        """Returns the loss on some joint steps; with several learner ranks, this rank's addend of it. A scalar."""
        network, hyper = self._network, self._hyper
        learned = targets.mask[batch.indices].nonzero(as_tuple=True)  # once, since it waits for a GPU
        returns = targets.returns(batch.indices)
        network.value.update(returns if batch.undivided else targets.returns(batch.all_indices))
        members = rollout.members[batch.indices]
        inputs = (
            (rollout.joint_observations, members)
            if batch.filled is not None
            else referenced_observations(rollout.joint_observations, members)
        )
        values = network.forward(*inputs, batch.filled)[learned]
        scaled = network.value.scaled(returns)
        cost = huber if hyper.value_loss == "huber" else squared
        loss = cost(values - scaled, hyper.huber_delta)
        if hyper.clip_value:
            old_values = targets.old_values[batch.indices][learned]
            clipped = old_values + torch.clamp(values - old_values, -targets.clip_range, targets.clip_range)
            loss = torch.maximum(loss, cost(clipped - scaled, hyper.huber_delta))
        return self._shard.weighted(loss.mean(), batch.share(targets.mask))

    def _values(self, rollout: GroupRollout) -> Tensor:
        """Values of every joint step, in the critic's units: [F, members, signals]."""
        network, members, seen = self._network, rollout.members, rollout.joint_observations
        with torch.inference_mode():
            if network.memory is not None:
                batch = all_joint_steps(rollout.joint_steps, members.device)
                return network.forward(seen, members, batch.filled).clone()
            chunks = [
                network.forward(*referenced_observations(seen, members[chunk]))
                for chunk in in_chunks(len(members), _CHUNK)
            ]
        return torch.cat(chunks).clone()

    def _normalized(self, rollout: GroupRollout, estimate: AdvantageEstimate) -> NDArray[np.float32]:
        """Returns one advantage per step. Signals are summed first, so that their strengths are their weights."""
        advantages: NDArray[np.float32] = estimate.advantages.sum(axis=1).astype(np.float32)
        if self._hyper.advantage_normalization == "global":
            return standardize(advantages).astype(np.float32)
        if self._hyper.advantage_normalization == "per_agent":
            agent_indices = rollout.joint_steps.agent_of_step
            for agent_index in np.unique(agent_indices):
                own = agent_indices == agent_index
                advantages[own] = standardize(advantages[own])
        return advantages

    def _value_metrics(self, values: NDArray[np.float32], estimate: AdvantageEstimate) -> dict[str, float]:
        metrics: dict[str, float] = {}
        for signal, source in enumerate(self._sources):
            predicted, returns = (column[..., signal][estimate.mask] for column in (values, estimate.returns))
            label = source.name.capitalize()
            metrics[f"Policy/{label} Value Estimate"] = float(predicted.mean())
            variance = float(returns.var(dtype=np.float64))
            metrics[f"Policy/{label} Explained Variance"] = (
                1.0 - float((returns - predicted).var(dtype=np.float64)) / variance if variance > 0 else 0.0
            )
        return metrics
