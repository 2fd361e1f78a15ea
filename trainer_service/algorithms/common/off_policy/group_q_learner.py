"""What learners of a group's action values share: networks that decide alone, and a replay of the group's joint steps.

Top to bottom: act ε-greedily, remember whole joint steps, and for every few steps one gradient step towards what the
target network says of the next ones. What a method makes of the agents' values is in its own file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainer_service.algorithms.common.acting import sample_actions
from trainer_service.algorithms.common.algorithm import Compute, Metrics
from trainer_service.algorithms.common.checks import require_discrete, require_settings
from trainer_service.algorithms.common.group_metrics import value_loss_by_agent
from trainer_service.algorithms.common.off_policy.epsilon_greedy import EpsilonGreedy
from trainer_service.algorithms.common.off_policy.joint_minibatch import JointMinibatch, JointMinibatchBuilder
from trainer_service.algorithms.common.off_policy.replay_learner import ReplayLearner
from trainer_service.algorithms.common.off_policy.replay_sampler import ReplaySampler, horizon_of
from trainer_service.algorithms.common.off_policy.update_schedule import UpdateSchedule, target_tau
from trainer_service.algorithms.common.policy_network import GreedyPolicyNetwork, PolicyNetwork
from trainer_service.algorithms.common.schedules import learning_rate_at
from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.off_policy import GroupQSettings
from trainer_service.networks.encoders.normalizer import ObservationNormalizer
from trainer_service.networks.flat import FlatOptimizer, TargetNetwork
from trainer_service.networks.groups.group_q_network import OwnQNetworks, SharedQNetwork, TeamQNetwork
from trainer_service.ops.q_learning import best_value, chosen_value, double_q_value, td_targets
from trainer_service.replay.joint_transitions import JointReplay, JointSample
from trainer_service.rollout.assembler import Decisions
from trainer_service.rollout.observation_selector import AGENT_ID, TEAM_OBSERVATIONS
from trainer_service.rollout.trajectories import Trajectories
from unity_bridge.specs import GLOBAL_STATE, BehaviorSpec
from unity_bridge.steps import Observation


class GroupNetworks(nn.Module):
    """Everything that learns: what decides, and what makes the group's value of the agents', if anything does."""

    def __init__(self, network: TeamQNetwork, mixer: nn.Module | None) -> None:
        super().__init__()
        self.network = network
        self.mixer = mixer


class TDErrors(NamedTuple):
    """How wrong a minibatch of B joint steps was."""

    loss: Tensor
    """What is made smaller."""

    squared: Tensor
    """δ², the mean."""

    squared_by_agent: Tensor
    """δ², the mean of each agent of the group. [n]; [0] where only the group's value is known to be wrong."""

    absolute: Tensor
    """|δ|, over agents the mean. [B]"""

    value: Tensor
    """Mean value of what was done."""

    target: Tensor
    """Mean of what it should have been."""


class GroupQLearner(ReplayLearner[JointSample]):
    """One behavior's networks, targets and replay buffer, for agents that come in groups.

    By default agents learn each for itself, from their own rewards or from everyone's; with a mixer the group learns.
    """

    _settings_type: ClassVar[type[GroupQSettings]]
    _exploration: EpsilonGreedy

    def __init__(self, spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> None:
        """Raises ValueError where the behavior has sensors or actions that do not fit.

        spec: as the learner sees it: with agents' ids last, where there are some.
        """
        hyper = require_settings(settings, self._settings_type)
        require_discrete(settings.trainer_type, spec.action_spec)
        signal = settings.reward_signals["extrinsic"]
        self._spec = spec
        self._settings = settings
        self._hyper: GroupQSettings = hyper
        self._device = compute.device
        self._num_agents = hyper.num_agents
        self._branches = spec.action_spec.discrete_branches
        sensors = [sensor.name for sensor in spec.observation_specs]
        kept_sensors = [i for i, sensor in enumerate(sensors) if sensor not in (AGENT_ID, TEAM_OBSERVATIONS)]
        self._agent_sensors = [i for i in kept_sensors if sensors[i] != GLOBAL_STATE]
        """Sensors that an agent's own network sees."""
        agent_spec = BehaviorSpec(
            tuple(spec.observation_specs[i] for i in self._agent_sensors), spec.action_spec
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(compute.seed)
            self._online = GroupNetworks(self._make_network(agent_spec), self._make_mixer(agent_spec)).to(
                self._device
            )
        self._target = TargetNetwork(self._online)
        self._optimizer = FlatOptimizer(self._online.parameters())
        self._normalizer = self._make_normalizer().to(self._device)
        self._acting = torch.Generator(self._device).manual_seed(compute.seed + 1)
        self._exploration = EpsilonGreedy(hyper)
        self.horizon = horizon_of(settings, hyper.n_step)
        self._minibatches = JointMinibatchBuilder(
            self._normalizer, kept_sensors, self._agent_sensors, signal.strength, self._device
        )
        # A batch is of joint steps, and each of them took a step of every agent.
        start = max(hyper.buffer_init_steps, hyper.batch_size * self._num_agents)
        schedule = UpdateSchedule(start, hyper.steps_per_update)
        replay = self._make_replay(kept_sensors, signal.gamma)
        self._replay = ReplaySampler(replay, hyper, compute.seed, schedule)
        self._joint_steps = 0
        """Joint steps of groups over the whole run."""

    def _make_network(self, agent_spec: BehaviorSpec) -> TeamQNetwork:
        """agent_spec: what an agent sees itself, and what it can do."""
        settings, hyper = self._settings.network_settings, self._hyper
        if hyper.share == "none":
            return OwnQNetworks(
                agent_spec, settings, agent_sensors=self._agent_sensors, num_agents=self._num_agents
            )
        return SharedQNetwork(
            agent_spec,
            settings,
            agent_sensors=self._agent_sensors,
            ids=self._num_agents if hyper.agent_ids else 0,
        )

    def _make_mixer(self, agent_spec: BehaviorSpec) -> nn.Module | None:
        """What takes values [B, n] and a state to the group's [B]; None where each agent learns for itself."""
        return None

    def _make_normalizer(self) -> ObservationNormalizer:
        """Of everything that the learner is shown."""
        sensors, normalize = self._spec.observation_specs, self._settings.network_settings.normalize
        return ObservationNormalizer(sensors, normalize=normalize, except_for=AGENT_ID)

    def _follows_each(self) -> bool:
        """Whether what comes next is each agent's own next decision, or the group's next joint step."""
        return self._hyper.reward_mode == "individual"

    def _make_replay(self, kept_sensors: Sequence[int], discount: float) -> JointReplay:
        hyper = self._hyper
        return JointReplay(
            self._spec,
            hyper.buffer_size,
            num_agents=self._num_agents,
            discount=discount,
            alpha=hyper.replay.priority_exponent,
            n_step=hyper.n_step,
            follow_each=self._follows_each(),
            sensors=kept_sensors,
        )

    def act(
        self,
        observations: Sequence[Observation],
        allowed_actions: NDArray[np.bool_],
        memories: NDArray[np.float32],
        *,
        deterministic: bool,
    ) -> Decisions:
        """Decides for M agents in one forward pass, each for itself at random or for the best it knows of."""
        heads = self._online.network.actions
        best = deterministic or not self._training
        return sample_actions(
            self._online.network,
            self._normalizer.forward,
            observations,
            allowed_actions,
            memories,
            device=self._device,
            sample=heads.most_likely
            if best
            else partial(self._exploration.sample_actions, heads, self._acting),
        )

    def _remember(self, trajectories: Trajectories) -> None:
        self._joint_steps += len(self._replay.record(trajectories))

    def update(self, step: int) -> Metrics:
        """As many gradient steps as were earned since the last call."""
        rate = learning_rate_at(self._hyper, step, self._settings.max_steps)
        rng = self._replay.rng()
        reports = [self._learn(sample, rate) for sample in self._replay.minibatches(rng)]
        metrics = {"Policy/Learning Rate": rate, "Policy/Exploration Rate": self._exploration.epsilon}
        if reports:
            loss, error, value, target, *by_agent = torch.stack(reports).mean(dim=0).tolist()
            metrics |= {
                "Losses/Value Loss": loss,
                "Losses/TD Error": error,
                "Policy/Mean Q": value,
                "Policy/Mean Target": target,
                **value_loss_by_agent(by_agent),
            }
        return metrics | self._replay.metrics() | self._own_metrics()

    def _own_metrics(self) -> dict[str, float]:
        """What else a method reports of an update."""
        return {}

    def _learn(self, sample: JointSample, rate: float) -> Tensor:
        """One gradient step, and one of the target. Returns what is reported of it. [4 + n] or [4]"""
        errors = self._errors(self._minibatches.build(sample))
        self._optimizer.minimize(errors.loss, rate, self._hyper.max_grad_norm)
        self._replay.finish_update(sample.rows, errors.absolute)
        self._after_step()
        self._update_target()
        means = torch.stack([errors.squared, errors.absolute.mean(), errors.value, errors.target])
        return torch.cat([means, errors.squared_by_agent])

    def _after_step(self) -> None:
        """What a method changes in the networks before their targets follow. ``_joint_steps`` says how late it is."""

    def _update_target(self) -> None:
        self._target.soft_update(self._optimizer.parameters, target_tau(self._hyper, self._replay.updates))

    def _errors(self, batch: JointMinibatch) -> TDErrors:
        """Of agents, or of the group where something mixes their values."""
        q = self._online.network.group_q_values(batch.seen)
        values = torch.where(batch.present, chosen_value(q, batch.actions, self._branches), 0.0)
        with torch.no_grad():
            follows = torch.where(batch.next_present, self._next_values(batch), 0.0)
        if self._online.mixer is None:
            return self._errors_of_each(batch, values, follows)
        return self._errors_of_group(batch, values, follows)

    def _next_values(self, batch: JointMinibatch) -> Tensor:
        """What the target networks think of everyone's best next choice. [B, n]"""
        q = self._target.network.network.group_q_values(batch.next_seen)
        if not self._hyper.double:
            return best_value(q, batch.next_allowed, self._branches)
        chooses = self._online.network.group_q_values(batch.next_seen)
        return double_q_value(chooses, q, batch.next_allowed, self._branches)

    def _errors_of_each(self, batch: JointMinibatch, values: Tensor, follows: Tensor) -> TDErrors:
        """y_i = r_i + γ (1 − terminated_i) Q_i'(o_i'); or with everyone's rewards in the place of r_i."""
        rewards = batch.rewards
        if self._hyper.reward_mode == "team_sum":
            rewards = batch.team_rewards.unsqueeze(1)
        targets = td_targets(rewards, batch.discounts, follows, batch.terminated)
        targets = torch.where(batch.present, targets, 0.0)
        errors = values - targets
        there = batch.present.to(errors.dtype)
        squared = errors.square()
        if batch.weights is not None:
            squared = squared * batch.weights.unsqueeze(1)
        # Every agent's own mean, so that how much one is there does not change how fast the others learn.
        counts = there.sum(dim=0).clamp(min=1.0)
        loss = (squared.sum(dim=0) / counts).sum()
        deciders, unweighted = there.sum(), errors.detach().square()
        return TDErrors(
            loss=loss,
            squared=unweighted.sum() / deciders,
            squared_by_agent=unweighted.sum(dim=0) / counts,
            absolute=errors.detach().abs().sum(dim=1) / there.sum(dim=1),
            value=values.detach().sum() / deciders,
            target=targets.sum() / deciders,
        )

    def _errors_of_group(self, batch: JointMinibatch, values: Tensor, follows: Tensor) -> TDErrors:
        """y = Σ r + γ Q_tot'(o'), the mixer's value; nothing where nobody is left."""
        mixer, target_mixer = self._online.mixer, self._target.network.mixer
        if mixer is None or target_mixer is None:
            raise ValueError("nothing mixes the agents' values")
        total = mixer(values, self._state(batch.seen, batch.state, batch.present))
        with torch.no_grad():
            state = self._state(batch.next_seen, batch.next_state, batch.next_present)
            over = ~batch.next_present.any(dim=1)
            targets = td_targets(
                batch.team_rewards, batch.discounts[:, 0], target_mixer(follows, state), over
            )
        errors = total - targets
        squared = errors.square()
        loss = (squared if batch.weights is None else squared * batch.weights).mean()
        known = errors.detach()
        return TDErrors(
            loss=loss,
            squared=known.square().mean(),
            squared_by_agent=known.new_empty(0),
            absolute=known.abs(),
            value=total.detach().mean(),
            target=targets.mean(),
        )

    def _state(self, seen: Sequence[Tensor], state: Tensor | None, present: Tensor) -> Tensor | None:
        """What the mixer is told, [B, S]. seen: as for the networks; state: the simulator's, of everyone; [B, n, S]."""
        return None

    def state_dict(self) -> dict[str, Any]:
        """Everything but the replay buffer: see ``replay_state``."""
        return {
            "network": self._online.state_dict(),
            "target": self._target.network.state_dict(),
            "optimizer": self._optimizer.adam.state_dict(),
            "normalizer": self._normalizer.state_dict(),
            "acting": self._acting.get_state(),
            "exploration": self._exploration.state_dict(),
            **self._replay.state_dict(),
            "moments": self._joint_steps,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from there with an empty buffer: learning goes on after ``buffer_init_steps``."""
        self.load_weights(state)
        self._optimizer.adam.load_state_dict(state["optimizer"])
        self._acting.set_state(state["acting"].cpu())
        self._exploration.load_state_dict(state["exploration"])
        self._replay.load_state_dict(state)
        self._joint_steps = state["moments"]

    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Networks, targets and normalizer. Raises KeyError or RuntimeError where they do not fit."""
        self._online.load_state_dict(state["network"])
        self._target.network.load_state_dict(state["target"])
        self._normalizer.load_state_dict(state["normalizer"])

    def policy_network(self) -> PolicyNetwork:
        """Normalizer and networks as they are now, to be exported."""
        return GreedyPolicyNetwork(self._normalizer, self._online.network)
