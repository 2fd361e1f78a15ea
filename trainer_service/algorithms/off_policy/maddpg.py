"""Multi-agent deep deterministic policy gradient, Lowe et al. 2017 (arXiv:1706.02275).

Top to bottom as in the paper's algorithm 1: act alone, remember whole joint steps, and for every few steps one gradient
step of the critics, who see everyone, one of the actors, and a step of their targets. Discrete actions are relaxed by
the Gumbel-softmax where a gradient must pass through them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer_service.algorithms.common.acting import allowed_or_none, sample_actions, to_tensor
from trainer_service.algorithms.common.algorithm import Compute, Metrics
from trainer_service.algorithms.common.checks import require_settings
from trainer_service.algorithms.common.group_metrics import value_loss_by_agent
from trainer_service.algorithms.common.off_policy.action_noise import ActionNoise
from trainer_service.algorithms.common.off_policy.joint_minibatch import JointMinibatchBuilder
from trainer_service.algorithms.common.off_policy.maddpg_update import MADDPGUpdate
from trainer_service.algorithms.common.off_policy.replay_learner import ReplayLearner
from trainer_service.algorithms.common.off_policy.replay_sampler import ReplaySampler, horizon_of
from trainer_service.algorithms.common.off_policy.update_schedule import UpdateSchedule, target_tau
from trainer_service.algorithms.common.policy_network import PolicyNetwork, SquashedPolicyNetwork
from trainer_service.algorithms.common.schedules import learning_rate_at
from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.off_policy import MADDPGSettings
from trainer_service.networks.encoders.normalizer import ObservationNormalizer
from trainer_service.replay.joint_transitions import JointReplay, JointSample
from trainer_service.rollout.assembler import Decisions
from trainer_service.rollout.observation_selector import AGENT_ID
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import Observation


class MADDPG(ReplayLearner[JointSample]):
    """One behavior's actors, critics, their targets, and replay buffer, for agents that come in groups."""

    _exploration: ActionNoise

    def __init__(self, spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> None:
        """Raises ValueError where the behavior has sensors or actions that do not fit.

        spec: as the learner sees it: with agents' ids last, where there are some.
        """
        hyper = require_settings(settings, MADDPGSettings)
        task = settings.reward_signals["extrinsic"]
        self._settings = settings
        self._hyper = hyper
        self._device = compute.device
        num_agents = hyper.num_agents
        agent_sensors = [i for i, sensor in enumerate(spec.observation_specs) if sensor.name != AGENT_ID]
        agent_spec = BehaviorSpec(tuple(spec.observation_specs[i] for i in agent_sensors), spec.action_spec)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(compute.seed)
            self._update_rule = MADDPGUpdate(
                agent_spec, settings.network_settings, hyper, agent_sensors, num_agents, self._device
            )
        self._normalizer = ObservationNormalizer(
            spec.observation_specs, normalize=settings.network_settings.normalize, except_for=AGENT_ID
        ).to(self._device)
        self._acting = torch.Generator(self._device).manual_seed(compute.seed + 1)
        self._relaxing = torch.Generator(self._device).manual_seed(compute.seed + 2)
        self._exploration = ActionNoise(hyper, spec.action_spec.continuous_size, hyper.buffer_init_steps)
        self.memory_size = self._exploration.memory_size
        self.horizon = horizon_of(settings, hyper.n_step)
        self._minibatches = JointMinibatchBuilder(
            self._normalizer, agent_sensors, agent_sensors, task.strength, self._device
        )
        # A batch is of joint steps, and each of them took a step of every agent.
        schedule = UpdateSchedule(
            max(hyper.buffer_init_steps, hyper.batch_size * num_agents), hyper.steps_per_update
        )
        replay = JointReplay(
            spec,
            hyper.buffer_size,
            num_agents=num_agents,
            discount=task.gamma,
            alpha=hyper.replay.priority_exponent,
            n_step=hyper.n_step,
            sensors=agent_sensors,
        )
        self._replay = ReplaySampler(replay, hyper, compute.seed, schedule)

    def act(
        self,
        observations: Sequence[Observation],
        allowed_actions: NDArray[np.bool_],
        memories: NDArray[np.float32],
        *,
        deterministic: bool,
    ) -> Decisions:
        """Decides for M agents in one forward pass, each from what it sees itself.

        Unless ``deterministic``, choices are drawn, and numbers get noise while it learns.
        """
        heads = self._update_rule.actors.actions
        decisions = sample_actions(
            self._update_rule.actors,
            self._normalizer.forward,
            observations,
            allowed_actions,
            memories,
            device=self._device,
            sample=heads.most_likely if deterministic else partial(heads.sample, generator=self._acting),
        )
        if self._training and not deterministic:
            return self._exploration.add_noise(decisions, self._acting)
        return decisions

    def update(self, step: int) -> Metrics:
        """As many gradient steps as were earned since the last call."""
        rate = learning_rate_at(self._hyper, step, self._settings.max_steps)
        rng = self._replay.rng()
        reports = [self._learn(sample, rate) for sample in self._replay.minibatches(rng)]
        metrics = {"Policy/Learning Rate": rate}
        if self._update_rule.actors.actions.continuous_size:
            metrics["Policy/Exploration Noise"] = self._exploration.deviation
        if reports:
            loss, error, value, target, policy_loss, *by_agent = torch.stack(reports).mean(dim=0).tolist()
            metrics |= {
                "Losses/Value Loss": loss,
                "Losses/TD Error": error,
                "Policy/Mean Q": value,
                "Policy/Mean Target": target,
                "Losses/Policy Loss": policy_loss,
                **value_loss_by_agent(by_agent),
            }
        return metrics | self._replay.metrics()

    def _learn(self, sample: JointSample, rate: float) -> Tensor:
        """One gradient step of everything, and one of the targets. Returns what is reported of it. [5 + n]"""
        batch = self._minibatches.build(sample)
        allowed = allowed_or_none(sample.allowed_actions, self._device)
        numbers = to_tensor(sample.continuous_actions, self._device)
        taken = self._update_rule.taken(numbers, batch.actions)
        report = self._update_rule.update_critics(batch, taken, rate)
        policy_loss = self._update_rule.update_actors(batch, taken, allowed, rate, self._relaxing)
        self._replay.finish_update(sample.rows, report.absolute)
        self._update_rule.soft_update_targets(target_tau(self._hyper, self._replay.updates))
        means = (report.squared, report.absolute.mean(), report.value, report.target, policy_loss)
        return torch.cat([torch.stack(means), report.squared_by_agent])

    def state_dict(self) -> dict[str, Any]:
        """Everything but the replay buffer: see ``replay_state``."""
        return {
            **self._update_rule.state_dict(),
            "normalizer": self._normalizer.state_dict(),
            "acting": self._acting.get_state(),
            "relaxing": self._relaxing.get_state(),
            **self._replay.state_dict(),
            "lived": self._exploration.env_steps,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from there with an empty buffer: learning goes on after ``buffer_init_steps``."""
        self._update_rule.load_state_dict(state)
        self._normalizer.load_state_dict(state["normalizer"])
        self._acting.set_state(state["acting"].cpu())
        self._relaxing.set_state(state["relaxing"].cpu())
        self._replay.load_state_dict(state)
        self._exploration.env_steps = state["lived"]

    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Networks, targets and normalizer. Raises KeyError or RuntimeError where they do not fit."""
        self._update_rule.load_weights(state)
        self._normalizer.load_state_dict(state["normalizer"])

    def policy_network(self) -> PolicyNetwork:
        """Normalizer and actors as they are now, to be exported: numbers without noise."""
        return SquashedPolicyNetwork(self._normalizer, self._update_rule.actors)
