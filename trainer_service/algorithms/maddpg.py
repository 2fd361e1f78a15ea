"""Multi-agent deep deterministic policy gradient, Lowe et al. 2017 (arXiv:1706.02275).

Top to bottom as in the paper's algorithm 1: act alone, remember whole moments, and for every few steps one gradient
step of the critics, who see everyone, one of the actors, and a step of their targets. Discrete actions are relaxed by
the Gumbel-softmax where a gradient must pass through them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer_service.algorithms.action_noise import ActionNoise
from trainer_service.algorithms.algorithm import Compute, Metrics
from trainer_service.algorithms.group_descent import GroupDescent
from trainer_service.algorithms.joint_minibatch import JointMinibatches
from trainer_service.algorithms.pace import Pace, share_of_target
from trainer_service.algorithms.policy_network import PolicyNetwork, SquashedPolicyNetwork
from trainer_service.algorithms.refusals import require_task_alone
from trainer_service.algorithms.tensors import allowed_or_none, to_array, to_tensor
from trainer_service.config import TrainerSettings
from trainer_service.config.value_settings import MADDPGSettings
from trainer_service.networks.normalizer import ObservationNormalizer
from trainer_service.ops.schedules import linear_decay, scheduled
from trainer_service.rollout.assembler import Decisions
from trainer_service.rollout.joint_replay import JointReplay, JointSample
from trainer_service.rollout.trajectories import Trajectories
from trainer_service.rollout.views import AGENT_ID
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import Observation

_HORIZON = 8
"""Moments after which an unfinished stretch is learned from, as for sac."""
_FINAL_LEARNING_RATE = 1e-10


class MADDPG:
    """One behavior's actors, critics, their targets, and replay buffer, for agents that come in groups."""

    def __init__(self, spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> None:
        """Raises ValueError where the behavior, or the settings, ask for what cannot be learned.

        spec: as the learner sees it: with agents' ids last, where there are some.
        """
        hyper = settings.hyperparameters
        if not isinstance(hyper, MADDPGSettings):
            raise ValueError(f"maddpg was given the settings of {type(hyper).__name__}")
        task = require_task_alone(settings)
        self._settings = settings
        self._hyper = hyper
        self._device = compute.device
        self._drawing = compute.seed
        """Together with the number of updates it says what is drawn from the buffer."""
        places = hyper.group_size or 1
        sees = [i for i, sensor in enumerate(spec.observation_specs) if sensor.name != AGENT_ID]
        own = BehaviorSpec(tuple(spec.observation_specs[i] for i in sees), spec.action_spec)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(compute.seed)
            self._descent = GroupDescent(own, settings.network_settings, hyper, sees, places, self._device)
        self._normalizer = ObservationNormalizer(
            spec.observation_specs, normalize=settings.network_settings.normalize, except_for=AGENT_ID
        ).to(self._device)
        self._acting = torch.Generator(self._device).manual_seed(compute.seed + 1)
        self._relaxing = torch.Generator(self._device).manual_seed(compute.seed + 2)
        self._noise = ActionNoise(hyper, spec.action_spec.continuous_size, hyper.buffer_init_steps)
        self.memory_size = self._noise.memory_size
        self.horizon = min(settings.time_horizon, max(_HORIZON, 4 * hyper.n_step))
        self._replay = _replay(spec, hyper, places, task.gamma, sees)
        self._minibatches = JointMinibatches(self._normalizer, sees, sees, task.strength, self._device)
        # A batch is of moments, and each of them took a step of every agent.
        self._pace = Pace(max(hyper.buffer_init_steps, hyper.batch_size * places), hyper.steps_per_update)
        self._updates = 0
        """Gradient steps over the whole run."""
        self._lived = 0
        """Agent steps recorded over the whole run."""
        self._explores = False
        """Who only acts tries no other numbers out."""

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
        """Decides for M agents in one forward pass, each from what it sees itself.

        Unless ``deterministic``, choices are drawn, and numbers get noise while it learns.
        """
        actors = self._descent.actors
        with torch.inference_mode():
            seen = self._normalizer.forward([to_tensor(sensor, self._device) for sensor in observations])
            parameters, allowed = actors.policy(seen), allowed_or_none(allowed_actions, self._device)
            kept = to_tensor(memories, self._device)
            if deterministic:
                numbers, choices, log_probs = actors.actions.most_likely(parameters, allowed)
            else:
                numbers, choices, log_probs = actors.actions.sample(parameters, allowed, self._acting)
            if self._explores and not deterministic:
                numbers, kept = self._noise.explore(numbers, kept, self._lived, self._acting)
            return Decisions(to_array(numbers), to_array(choices), to_array(log_probs), to_array(kept))

    def wire_actions(self, decisions: Decisions) -> NDArray[np.float32]:
        """As they are: in [−1, 1] already."""
        return decisions.continuous_actions

    def record(self, trajectories: Trajectories) -> None:
        """Remembers experience, and lets the normalizer see it."""
        self._normalizer.update([to_tensor(sensor, self._device) for sensor in trajectories.observations])
        self._replay.add(trajectories)
        self._pace.steps += len(trajectories)
        self._lived += len(trajectories)

    def ready(self) -> bool:
        """An update was earned."""
        return self._pace.due > 0

    def update(self, step: int) -> Metrics:
        """As many gradient steps as were earned since the last call."""
        hyper, limit = self._hyper, self._settings.max_steps
        rate = scheduled(hyper.learning_rate_schedule, hyper.learning_rate, _FINAL_LEARNING_RATE, step, limit)
        rng = np.random.default_rng([self._drawing, self._updates])
        reports = [self._learn(self._sample(rng), rate) for _ in range(self._pace.due)]
        metrics = {"Policy/Learning Rate": rate}
        if self._descent.actors.actions.continuous_size:
            metrics["Policy/Exploration Noise"] = self._noise.deviation(self._lived)
        if reports:
            tags = ("Losses/Value Loss", "Losses/TD Error", "Policy/Mean Q", "Policy/Mean Target")
            means = torch.stack(reports).mean(dim=0).tolist()
            metrics |= zip((*tags, "Losses/Policy Loss"), means, strict=True)
        if self._replay.prioritized:
            metrics["Replay/Beta"] = self._beta()
        return metrics

    def _learn(self, sample: JointSample, rate: float) -> Tensor:
        """One gradient step of everything, and one of the targets. Returns what is reported of it. [5]"""
        batch = self._minibatches.of(sample)
        allowed = allowed_or_none(sample.allowed_actions, self._device)
        numbers = to_tensor(sample.continuous_actions, self._device)
        taken = self._descent.taken(numbers, batch.actions)
        judged = self._descent.improve_critics(batch, taken, rate)
        policy_loss = self._descent.improve_actors(batch, taken, allowed, rate, self._relaxing)
        if self._replay.prioritized:
            self._replay.reprioritize(sample.rows, to_array(judged.absolute))
        self._pace.updates += 1
        self._updates += 1
        tau = share_of_target(self._hyper, self._updates)
        if tau:
            self._descent.follow(tau)
        means = (judged.squared, judged.absolute.mean(), judged.value, judged.target, policy_loss)
        return torch.stack(means)

    def _sample(self, rng: np.random.Generator) -> JointSample:
        return self._replay.sample(self._hyper.batch_size, rng, beta=self._beta())

    def _beta(self) -> float:
        replay = self._hyper.replay
        return linear_decay(replay.beta, 1.0, self._updates, replay.beta_updates)

    def state_dict(self) -> dict[str, Any]:
        """Everything but the replay buffer: see ``experience``."""
        return {
            **self._descent.state_dict(),
            "normalizer": self._normalizer.state_dict(),
            "acting": self._acting.get_state(),
            "relaxing": self._relaxing.get_state(),
            "drawing": self._drawing,
            "updates": self._updates,
            "lived": self._lived,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from there with an empty buffer: learning goes on after ``buffer_init_steps``."""
        self._descent.load_state_dict(state)
        self._normalizer.load_state_dict(state["normalizer"])
        self._acting.set_state(state["acting"].cpu())
        self._relaxing.set_state(state["relaxing"].cpu())
        self._drawing = state["drawing"]
        self._updates = state["updates"]
        self._lived = state["lived"]

    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Networks, targets and normalizer. Raises KeyError or RuntimeError where they do not fit."""
        self._descent.load_weights(state)
        self._normalizer.load_state_dict(state["normalizer"])

    def experience(self) -> dict[str, NDArray[Any]] | None:
        """The replay buffer and how far learning from it has come, if they shall be saved."""
        if not self._hyper.save_replay_buffer:
            return None
        return {**self._replay.state(), "paces": np.array([self._pace.steps, self._pace.updates], np.int64)}

    def load_experience(self, experience: Mapping[str, NDArray[Any]]) -> None:
        """Continues with that buffer."""
        self._replay.load_state(experience)
        self._pace.steps, self._pace.updates = (int(number) for number in experience["paces"])

    def policy_network(self) -> PolicyNetwork:
        """Normalizer and actors as they are now, to be exported: numbers without noise."""
        return SquashedPolicyNetwork(self._normalizer, self._descent.actors)


def _replay(
    spec: BehaviorSpec, hyper: MADDPGSettings, places: int, discount: float, sensors: Sequence[int]
) -> JointReplay:
    return JointReplay(
        spec,
        hyper.buffer_size,
        places=places,
        discount=discount,
        alpha=hyper.replay.exponent,
        n_step=hyper.n_step,
        sensors=sensors,
    )
