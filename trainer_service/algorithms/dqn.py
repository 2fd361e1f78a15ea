"""Deep Q-learning, Mnih et al. 2015 (Human-level control through deep reinforcement learning).

Top to bottom as in the paper's algorithm 1: act ε-greedily, remember, and for every few steps one gradient step
towards r + γ Q'(o', a'), whose Q' is a slower copy. What came since is a setting each: two estimates (on by default),
priorities, several steps at once, and dueling heads. For discrete actions, of one branch or several.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer_service.algorithms.algorithm import Compute, Metrics
from trainer_service.algorithms.exploration import Exploration
from trainer_service.algorithms.pace import Pace, share_of_target
from trainer_service.algorithms.policy_network import GreedyPolicyNetwork, PolicyNetwork
from trainer_service.algorithms.refusals import require_discrete, require_task_alone
from trainer_service.algorithms.tensors import allowed_or_none, to_array, to_tensor
from trainer_service.config import TrainerSettings
from trainer_service.config.value_settings import DQNSettings
from trainer_service.networks.flat import Descent
from trainer_service.networks.normalizer import ObservationNormalizer
from trainer_service.networks.q_network import QNetwork
from trainer_service.networks.target import Target
from trainer_service.ops import q_learning
from trainer_service.ops.schedules import linear_decay, scheduled
from trainer_service.rollout.assembler import Decisions
from trainer_service.rollout.replay import Replay, Sample
from trainer_service.rollout.trajectories import Trajectories
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import Observation

_HORIZON = 8
"""Steps after which an unfinished trajectory is learned from: few, so that learning does not lag behind."""
_FINAL_LEARNING_RATE = 1e-10


class DQN:
    """One behavior's action values, their target, and its replay buffer."""

    memory_size = 0

    def __init__(self, spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> None:
        """Raises ValueError where the settings ask for what it cannot do, or the behavior has other actions."""
        if not isinstance(settings.hyperparameters, DQNSettings):
            raise ValueError(f"dqn was given the settings of {type(settings.hyperparameters).__name__}")
        require_discrete("dqn", spec.action_spec)
        task = require_task_alone(settings)
        self._settings = settings
        self._hyper = hyper = settings.hyperparameters
        self._gamma, self._strength = task.gamma, task.strength
        self._device = compute.device
        self._branches = spec.action_spec.discrete_branches
        self._drawing = compute.seed
        """Together with the number of updates it says what is drawn from the buffer."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(compute.seed)
            self._network = QNetwork(spec, settings.network_settings, dueling=hyper.dueling).to(self._device)
        self._target = Target(self._network)
        self._descent = Descent(self._network.parameters())
        normalize = settings.network_settings.normalize
        self._normalizer = ObservationNormalizer(spec.observation_specs, normalize=normalize)
        self._normalizer.to(self._device)
        self._acting = torch.Generator(self._device).manual_seed(compute.seed + 1)
        self._exploration = Exploration(hyper)
        self._explores = False
        """Who only acts does not try anything out."""
        # The last steps of a trajectory look less far ahead than the others: they shall be few.
        self.horizon = min(settings.time_horizon, max(_HORIZON, 4 * hyper.n_step))
        alpha, n_step = hyper.replay.exponent, hyper.n_step
        self._replay = Replay(spec, hyper.buffer_size, alpha=alpha, n_step=n_step, gamma=task.gamma)
        self._pace = Pace(max(hyper.buffer_init_steps, hyper.batch_size), hyper.steps_per_update)
        self._updates = 0
        """Gradient steps over the whole run."""

    def prepare(self, step: int) -> None:
        """It is going to learn."""
        self._explores = True

    def act(
        self,
        observations: Sequence[Observation],
        allowed_actions: NDArray[np.bool_],
        memories: NDArray[np.float32],
        *,
        deterministic: bool,
    ) -> Decisions:
        """Decides for M agents in one forward pass: the best actions, or while it learns now and then any."""
        with torch.inference_mode():
            q = self._network.q_values(self._inputs(observations))
            allowed = to_tensor(allowed_actions, self._device)
            chosen = q_learning.masked_argmax(q, allowed, self._branches)
            if self._explores and not deterministic:
                epsilon = self._exploration.epsilon
                chosen = q_learning.exploring(chosen, allowed, epsilon, self._acting, self._branches)
            rows = len(memories)
            # How likely an action was is of no use to who learns off-policy.
            return Decisions(
                np.empty((rows, 0), np.float32), to_array(chosen), np.zeros(rows, np.float32), memories
            )

    def wire_actions(self, decisions: Decisions) -> NDArray[np.float32]:
        """There are none."""
        return decisions.continuous_actions

    def record(self, trajectories: Trajectories) -> None:
        """Remembers experience, and lets the normalizer see it."""
        self._normalizer.update([to_tensor(sensor, self._device) for sensor in trajectories.observations])
        self._replay.add(trajectories)
        self._pace.steps += len(trajectories)
        self._exploration.record(trajectories)

    def ready(self) -> bool:
        """An update was earned."""
        return self._pace.due > 0

    def update(self, step: int) -> Metrics:
        """As many gradient steps as were earned since the last call."""
        rate, replay = self._rate(step), self._hyper.replay
        rng = np.random.default_rng([self._drawing, self._updates])
        metrics = {"Policy/Learning Rate": rate, "Policy/Exploration Rate": self._exploration.epsilon}
        reports: list[Tensor] = []
        for _ in range(self._pace.due):
            beta = linear_decay(replay.beta, 1.0, self._updates, replay.beta_updates)
            if self._replay.prioritized:
                metrics["Replay/Beta"] = beta
            reports.append(self._learn(self._replay.sample(self._hyper.batch_size, rng, beta=beta), rate))
            self._pace.updates += 1
            self._updates += 1
            self._move_target()
        if reports:
            tags = ("Losses/Value Loss", "Losses/TD Error", "Policy/Mean Q", "Policy/Extrinsic Reward")
            metrics |= zip(tags, torch.stack(reports).mean(dim=0).tolist(), strict=True)
        return metrics

    def _learn(self, sample: Sample, rate: float) -> Tensor:
        """One gradient step. Returns the means of loss, |δ|, Q of what was done, and rewards: [4]."""
        rewards = self._strength * to_tensor(sample.task_rewards, self._device)
        targets = self._targets(sample, rewards)
        actions = to_tensor(sample.discrete_actions, self._device)
        weights = None if sample.weights is None else to_tensor(sample.weights, self._device)
        q = self._network.q_values(self._inputs(sample.observations))
        chosen = q_learning.chosen_value(q, actions, self._branches)
        errors = chosen - targets
        loss = q_learning.td_loss(errors, weights)
        self._descent.descend(loss, rate, self._hyper.max_grad_norm)
        absolute = errors.detach().abs()
        if self._replay.prioritized:
            self._replay.reprioritize(sample.rows, to_array(absolute))
        return torch.stack([loss.detach(), absolute.mean(), chosen.detach().mean(), rewards.mean()])

    def _targets(self, sample: Sample, rewards: Tensor) -> Tensor:
        """What the values of the actions should have been. [B]"""
        with torch.no_grad():
            inputs = self._inputs(sample.next_observations)
            allowed = allowed_or_none(sample.next_allowed_actions, self._device)
            q = self._target.network.q_values(inputs)
            chooser = self._network.q_values(inputs) if self._hyper.double else q
            values = q_learning.double_q_value(chooser, q, allowed, self._branches)
            terminated = to_tensor(sample.terminated, self._device)
            discounts: Tensor | float = self._gamma
            if sample.discounts is not None:
                discounts = to_tensor(sample.discounts, self._device)
            return q_learning.td_targets(rewards, discounts, values, terminated)

    def _move_target(self) -> None:
        tau = share_of_target(self._hyper, self._updates)
        if tau:
            self._target.follow(self._descent.parameters, tau)

    def _inputs(self, observations: Sequence[Observation]) -> list[Tensor]:
        return self._normalizer.forward([to_tensor(sensor, self._device) for sensor in observations])

    def _rate(self, step: int) -> float:
        hyper, limit = self._hyper, self._settings.max_steps
        return scheduled(hyper.learning_rate_schedule, hyper.learning_rate, _FINAL_LEARNING_RATE, step, limit)

    def state_dict(self) -> dict[str, Any]:
        """Everything but the replay buffer: see ``experience``."""
        return {
            "network": self._network.state_dict(),
            "target": self._target.network.state_dict(),
            "optimizer": self._descent.optimizer.state_dict(),
            "normalizer": self._normalizer.state_dict(),
            "acting": self._acting.get_state(),
            "drawing": self._drawing,
            "updates": self._updates,
            "exploration": self._exploration.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from there with an empty buffer: learning goes on after ``buffer_init_steps``."""
        self.load_weights(state)
        self._descent.optimizer.load_state_dict(state["optimizer"])
        self._acting.set_state(state["acting"].cpu())
        self._drawing = state["drawing"]
        self._updates = state["updates"]
        self._exploration.load_state_dict(state["exploration"])

    def load_weights(self, state: Mapping[str, Any]) -> None:
        """The network, its target and the normalizer."""
        self._network.load_state_dict(state["network"])
        self._target.network.load_state_dict(state["target"])
        self._normalizer.load_state_dict(state["normalizer"])

    def experience(self) -> dict[str, NDArray[Any]] | None:
        """The replay buffer and how far learning from it has come, if they shall be saved."""
        if not self._hyper.save_replay_buffer:
            return None
        paces = np.array([self._pace.steps, self._pace.updates], np.int64)
        return {**self._replay.state(), "paces": paces}

    def load_experience(self, experience: Mapping[str, NDArray[Any]]) -> None:
        """Continues with that buffer."""
        self._replay.load_state(experience)
        self._pace.steps, self._pace.updates = (int(number) for number in experience["paces"])

    def policy_network(self) -> PolicyNetwork:
        """Normalizer and values as they are now, to be exported: it never explores."""
        return GreedyPolicyNetwork(self._normalizer, self._network)
