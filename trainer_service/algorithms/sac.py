"""Soft actor-critic, Haarnoja et al. 2018 (arXiv:1812.05905), with ML-Agents' settings.

Top to bottom as in the paper's algorithm 1: act, remember, and for every few steps one gradient step of the critics,
the policy, the temperatures and the critics' targets. For continuous and discrete actions, and both at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainer_service.algorithms.algorithm import Compute, Metrics
from trainer_service.algorithms.pace import Pace
from trainer_service.algorithms.policy_network import PolicyNetwork, SquashedPolicyNetwork
from trainer_service.config import SACSettings, TrainerSettings
from trainer_service.networks.actor_critic import as_floats
from trainer_service.networks.flat import Descent, FlatParameters
from trainer_service.networks.normalizer import ObservationNormalizer
from trainer_service.networks.soft_actor import SoftActor, SoftCritics
from trainer_service.ops import soft_actor_critic as soft
from trainer_service.ops.schedules import linear_decay, scheduled
from trainer_service.rewards import REWARD_SOURCES, Experience, Transitions
from trainer_service.rollout.assembler import Decisions
from trainer_service.rollout.prioritized import PrioritizedReplay
from trainer_service.rollout.replay import Replay, Sample
from trainer_service.rollout.trajectories import Trajectories
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import Observation

_HORIZON = 8
"""Steps after which an unfinished trajectory is learned from. What was seen after it is stored a second time, so
with 1 pictures would take twice the memory; with hundreds, learning would lag behind."""
_FINAL_LEARNING_RATE = 1e-10


class SAC:
    """One behavior's policy, critics, temperatures and replay buffer."""

    memory_size = 0

    def __init__(self, spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> None:
        """Raises ValueError where the behavior has sensors or actions that the networks cannot take."""
        if not isinstance(settings.hyperparameters, SACSettings):
            raise ValueError(f"sac was given the settings of {type(settings.hyperparameters).__name__}")
        if settings.network_settings.memory is not None:
            raise ValueError("sac has no recurrent policies")
        self.horizon = min(settings.time_horizon, _HORIZON)
        self._settings = settings
        self._hyper = settings.hyperparameters
        self._device = compute.device
        self._on_cpu = compute.device.type == "cpu"
        self._drawing = compute.seed
        """Together with the number of updates it says what is drawn from the buffer."""
        self._branches = spec.action_spec.discrete_branches
        network, signals = settings.network_settings, settings.reward_signals
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(compute.seed)
            self._rewards = [
                REWARD_SOURCES[name](spec, signal, self._device) for name, signal in signals.items()
            ]
            self._actor = SoftActor(spec, network).to(self._device)
            self._critics = SoftCritics(spec, network, value_heads=len(signals)).to(self._device)
            self._targets = SoftCritics(spec, network, value_heads=len(signals)).to(self._device)
        self._learned_rewards = [source for source in self._rewards if source.learns]
        self._discounts = self._tensor(np.array([source.gamma for source in self._rewards], np.float32))
        self._ends = self._tensor(np.array([not source.ignores_end for source in self._rewards], np.float32))
        self._targets.load_state_dict(self._critics.state_dict())
        self._normalizer = ObservationNormalizer(spec.observation_specs, normalize=network.normalize)
        self._normalizer.to(self._device)
        parts = len(self._branches) + (spec.action_spec.continuous_size > 0)
        start = torch.full((parts,), self._hyper.init_entcoef, device=self._device).log()
        self._log_alpha = nn.Parameter(start)
        self._of_actor = Descent(self._actor.parameters())
        self._of_critics = Descent(self._critics.parameters())
        self._of_alpha = Descent([self._log_alpha])
        self._target_vector = FlatParameters(self._targets.parameters()).vector
        self._continuous_size = spec.action_spec.continuous_size
        self._offsets = self._actor.actions.offsets
        self._acting = torch.Generator(self._device).manual_seed(compute.seed + 1)
        self._learning = torch.Generator(self._device).manual_seed(compute.seed + 2)
        self._updates = 0
        """Over the whole run: gradient steps, and draws for the reward signals."""
        self._replay = _replay(spec, self._hyper)
        start_at = max(self._hyper.buffer_init_steps, self._hyper.batch_size)
        self._pace = Pace(start_at, self._hyper.steps_per_update)
        self._reward_pace = Pace(start_at, self._hyper.reward_signal_steps_per_update)

    def act(
        self,
        observations: Sequence[Observation],
        allowed_actions: NDArray[np.bool_],
        memories: NDArray[np.float32],
        *,
        deterministic: bool,
    ) -> Decisions:
        """Decides for M agents in one forward pass."""
        with torch.inference_mode():
            inputs = self._normalizer.forward([self._tensor(sensor) for sensor in observations])
            parameters = self._actor.policy(inputs)
            allowed = self._allowed(allowed_actions)
            heads = self._actor.actions
            if deterministic:
                continuous, discrete, log_probs = heads.most_likely(parameters, allowed)
            else:
                continuous, discrete, log_probs = heads.sample(parameters, allowed, self._acting)
            return Decisions(_array(continuous), _array(discrete), _array(log_probs), memories)

    def wire_actions(self, decisions: Decisions) -> NDArray[np.float32]:
        """As they are: in (−1, 1) already."""
        return decisions.continuous_actions

    def record(self, trajectories: Trajectories) -> None:
        """Remembers experience, and lets the normalizer and the reward signals see it."""
        self._normalizer.update([self._tensor(sensor) for sensor in trajectories.observations])
        if self._learned_rewards:
            experience = Experience(trajectories, self._device)
            for source in self._learned_rewards:
                source.record(experience)
        self._replay.add(trajectories)
        self._pace.steps += len(trajectories)
        self._reward_pace.steps += len(trajectories)

    def ready(self) -> bool:
        """An update was earned."""
        return self._pace.due > 0 or bool(self._learned_rewards and self._reward_pace.due)

    def update(self, step: int) -> Metrics:
        """As many updates as were earned since the last call."""
        hyper = self._hyper
        rate = scheduled(
            hyper.learning_rate_schedule,
            hyper.learning_rate,
            _FINAL_LEARNING_RATE,
            step,
            self._settings.max_steps,
        )
        rng = np.random.default_rng([self._drawing, self._updates])
        metrics = {"Policy/Learning Rate": rate}
        losses: list[Tensor] = []
        for _ in range(self._pace.due):
            sample = self._sample(rng)
            losses.append(self._step(sample, rate))
            self._pace.updates += 1
            self._updates += 1
        if losses:
            metrics |= self._metrics(torch.stack(losses).mean(dim=0).tolist())
        return {**metrics, **self._teach_rewards(rng)}

    def _sample(self, rng: np.random.Generator) -> Sample:
        if isinstance(self._replay, PrioritizedReplay):
            settings = self._hyper.replay
            beta = linear_decay(settings.beta, 1.0, self._updates, settings.beta_updates)
            return self._replay.sample(self._hyper.batch_size, rng, beta=beta)
        return self._replay.sample(self._hyper.batch_size, rng)

    def _teach_rewards(self, rng: np.random.Generator) -> Metrics:
        """What earns rewards of our own making learns at its own pace, from draws of its own."""
        if not self._learned_rewards:
            return {}
        parts: dict[str, list[Tensor]] = defaultdict(list)
        for _ in range(self._reward_pace.due):
            transitions = self._transitions(self._replay.sample(self._hyper.batch_size, rng))
            for source in self._learned_rewards:
                for tag, value in source.learn(transitions).items():
                    parts[tag].append(value)
            self._reward_pace.updates += 1
            self._updates += 1
        return {tag: float(torch.stack(values).mean()) for tag, values in parts.items()}

    def _step(self, sample: Sample, rate: float) -> Tensor:
        """One gradient step of everything; returns the losses and what else is reported."""
        batch = self._batch(sample)
        alpha = self._log_alpha.detach().exp()
        losses, errors = self._improve_critics(batch, alpha, rate)
        policy_loss, entropy, value = self._improve_actor(batch, alpha, rate)
        with torch.no_grad():
            target = soft.target_entropies(self._continuous_size, batch.allowed, self._branches)
            self._of_alpha.step_along(soft.temperature_gradient(entropy, target), rate)
            self._target_vector.lerp_(self._of_critics.vector, self._hyper.tau)
            if isinstance(self._replay, PrioritizedReplay):
                self._replay.reprioritize(sample.rows, _array(errors.abs().mean(dim=(0, 2))))
            return torch.cat(
                [
                    losses,
                    policy_loss.view(1),
                    entropy.sum(dim=1).mean().view(1),
                    alpha,
                    value.mean(dim=0),
                    batch.rewards.mean(dim=0),
                ]
            )

    def _improve_critics(self, batch: _Batch, alpha: Tensor, rate: float) -> tuple[Tensor, Tensor]:
        """Towards the soft targets. Returns each critic's loss [N], and the errors [N, B, S]."""
        with torch.no_grad():
            parameters = self._actor.policy(batch.next_observations)
            drawn = self._actor.actions.draw(parameters, batch.next_allowed_or_none, self._learning)
            q = self._targets.forward(batch.next_observations, drawn.continuous)
            values = soft.soft_values(q, drawn, alpha, self._branches)
            targets = soft.soft_targets(batch.rewards, batch.continues, values, self._discounts)
        q = self._critics.forward(batch.observations, batch.continuous_actions)
        errors = soft.taken_values(q, batch.discrete_actions) - targets
        losses = soft.critic_loss(errors, batch.weights)
        self._of_critics.descend(losses.sum(), rate, self._hyper.max_grad_norm)
        return losses.detach(), errors.detach()

    def _improve_actor(self, batch: _Batch, alpha: Tensor, rate: float) -> tuple[Tensor, Tensor, Tensor]:
        """Towards larger soft values. Returns the loss, the entropies [B, parts], and the values [B, S]."""
        parameters = self._actor.policy(batch.observations)
        drawn = self._actor.actions.draw(parameters, batch.allowed_or_none, self._learning)
        q = self._critics.forward(batch.observations, drawn.continuous)
        values = soft.soft_values(q, drawn, alpha, self._branches)
        loss = -values.sum(dim=1).mean()
        self._of_actor.descend(loss, rate, self._hyper.max_grad_norm)
        with torch.no_grad():
            return loss.detach(), soft.entropies(drawn, self._branches), values.detach()

    def _batch(self, sample: Sample) -> _Batch:
        transitions = self._transitions(sample)
        rewards = torch.stack(
            [source.strength * source.rewards(transitions) for source in self._rewards], dim=-1
        )
        terminated = self._tensor(sample.terminated).unsqueeze(-1)
        return _Batch(
            observations=self._inputs(transitions.observations),
            next_observations=self._inputs(transitions.next_observations),
            continuous_actions=transitions.continuous_actions,
            discrete_actions=transitions.discrete_actions + self._offsets,
            allowed=self._tensor(sample.allowed_actions),
            allowed_or_none=self._allowed(sample.allowed_actions),
            next_allowed_or_none=self._allowed(sample.next_allowed_actions),
            rewards=rewards,
            continues=1.0 - terminated * self._ends,
            weights=None if sample.weights is None else self._tensor(sample.weights),
        )

    def _transitions(self, sample: Sample) -> Transitions:
        return Transitions(
            observations=[self._tensor(sensor) for sensor in sample.observations],
            next_observations=[self._tensor(sensor) for sensor in sample.next_observations],
            continuous_actions=self._tensor(sample.continuous_actions),
            discrete_actions=self._tensor(sample.discrete_actions),
            task_rewards=self._tensor(sample.task_rewards),
        )

    def _inputs(self, observations: Sequence[Tensor]) -> list[Tensor]:
        return as_floats(self._normalizer.forward(observations))

    def _allowed(self, allowed: NDArray[np.bool_]) -> Tensor | None:
        """Most often nothing is forbidden, and then there is nothing to mask."""
        return None if allowed.all() else self._tensor(allowed)

    def _metrics(self, means: list[float]) -> dict[str, float]:
        parts, signals = len(self._log_alpha), len(self._rewards)
        first, second, policy_loss, entropy = means[:4]
        alpha, values, rewards = (
            means[4 : 4 + parts],
            means[4 + parts : 4 + parts + signals],
            means[-signals:],
        )
        metrics = {
            "Losses/Policy Loss": policy_loss,
            "Losses/Value Loss": (first + second) / 2.0,
            "Losses/Q1 Loss": first,
            "Losses/Q2 Loss": second,
            "Policy/Entropy": entropy,
        }
        if self._branches:
            metrics["Policy/Discrete Entropy Coeff"] = float(np.mean(alpha[: len(self._branches)]))
        if self._continuous_size:
            metrics["Policy/Continuous Entropy Coeff"] = alpha[-1]
        for source, value, reward in zip(self._rewards, values, rewards, strict=True):
            metrics[f"Policy/{source.name.capitalize()} Value"] = value
            metrics[f"Policy/{source.name.capitalize()} Reward"] = reward
        return metrics

    def state_dict(self) -> dict[str, Any]:
        """Everything but the replay buffer: see ``experience``."""
        return {
            "actor": self._actor.state_dict(),
            "critics": self._critics.state_dict(),
            "targets": self._targets.state_dict(),
            "log_alpha": self._log_alpha.detach(),
            "normalizer": self._normalizer.state_dict(),
            "actor_optimizer": self._of_actor.optimizer.state_dict(),
            "critic_optimizer": self._of_critics.optimizer.state_dict(),
            "alpha_optimizer": self._of_alpha.optimizer.state_dict(),
            "acting": self._acting.get_state(),
            "learning": self._learning.get_state(),
            "drawing": self._drawing,
            "updates": self._updates,
            "rewards": {source.name: source.state_dict() for source in self._learned_rewards},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from there with an empty buffer: learning goes on after ``buffer_init_steps``."""
        self.load_weights(state)
        for source in self._learned_rewards:
            source.load_state_dict(state["rewards"][source.name])
        self._of_actor.optimizer.load_state_dict(state["actor_optimizer"])
        self._of_critics.optimizer.load_state_dict(state["critic_optimizer"])
        self._of_alpha.optimizer.load_state_dict(state["alpha_optimizer"])
        self._acting.set_state(state["acting"].cpu())
        self._learning.set_state(state["learning"].cpu())
        self._drawing = state["drawing"]
        self._updates = state["updates"]

    def load_weights(self, state: Mapping[str, Any]) -> None:
        self._actor.load_state_dict(state["actor"])
        self._critics.load_state_dict(state["critics"])
        self._targets.load_state_dict(state["targets"])
        self._normalizer.load_state_dict(state["normalizer"])
        with torch.no_grad():
            self._log_alpha.copy_(state["log_alpha"])
        known = state.get("rewards", {})
        for source in self._learned_rewards:
            if source.name in known:
                source.load_weights(known[source.name])

    def experience(self) -> dict[str, NDArray[Any]] | None:
        """The replay buffer and how far learning from it has come, if they shall be saved."""
        if not self._hyper.save_replay_buffer:
            return None
        paces = [self._pace.steps, self._pace.updates, self._reward_pace.steps, self._reward_pace.updates]
        return {**self._replay.state(), "paces": np.array(paces, np.int64)}

    def load_experience(self, experience: Mapping[str, NDArray[Any]]) -> None:
        """Continues with that buffer."""
        self._replay.load_state(experience)
        paces = [int(number) for number in experience["paces"]]
        self._pace.steps, self._pace.updates, self._reward_pace.steps, self._reward_pace.updates = paces

    def policy_network(self) -> PolicyNetwork:
        """Normalizer and actor as they are now, to be exported."""
        return SquashedPolicyNetwork(self._normalizer, self._actor)

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        tensor = torch.from_numpy(array)
        return tensor if self._on_cpu else tensor.to(self._device)


def _replay(spec: BehaviorSpec, hyper: SACSettings) -> Replay:
    if hyper.replay.type == "prioritized":
        return PrioritizedReplay(spec, hyper.buffer_size, hyper.replay.alpha)
    return Replay(spec, hyper.buffer_size)


def _array(tensor: Tensor) -> NDArray[Any]:
    array: NDArray[Any] = (tensor if tensor.device.type == "cpu" else tensor.cpu()).numpy()
    return array


class _Batch(NamedTuple):
    """One minibatch as tensors: B transitions, S reward signals."""

    observations: Sequence[Tensor]
    """What the networks take, one per sensor. Shapes [B, …]."""

    next_observations: Sequence[Tensor]
    continuous_actions: Tensor

    discrete_actions: Tensor
    """Counted from the start of all choices. int64 [B, branches]"""

    allowed: Tensor
    """bool [B, K]"""

    allowed_or_none: Tensor | None
    """The same, None where everything is allowed."""

    next_allowed_or_none: Tensor | None

    rewards: Tensor
    """As of today, strengths included. [B, S]"""

    continues: Tensor
    """0 where nothing is worth anything after the step, else 1. [B, S]"""

    weights: Tensor | None
    """[B]"""
