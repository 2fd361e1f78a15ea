"""Exploration of learners from a replay buffer: ε-greedy actions, and noise on continuous actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from trainer_service.config.hyperparameters.off_policy import ActionValueSettings, NoiseSettings
from trainer_service.config.hyperparameters.on_policy import COMASettings
from trainer_service.learning.algorithms.common.acting import ActionDistribution, ActionSampler, to_array
from trainer_service.learning.algorithms.common.schedules import scheduled
from trainer_service.learning.networks.policies.action_heads import ActionParameters
from trainer_service.learning.rollout.assembler import Decisions
from trainer_service.learning.rollout.trajectories import Trajectories
from trainer_service.ops import distributions as dist
from trainer_service.ops.counterfactual import explored_log_probs
from trainer_service.ops.exploration_noise import drifted, explored
from trainer_service.ops.q_learning import exploring


class Exploration:
    """Exploration of a stochastic policy, which adds nothing to samples; also the interface of other classes."""

    memory_size = 0
    """Floats of the exploration in an agent's memory between decisions."""

    units: ClassVar[Sequence[str]] = ()
    """Units of experience over which exploration decreases: agent steps, and finished episodes of agents."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(self.units, 0)
        """Experience recorded in the whole run."""

    def sampler(self, heads: ActionDistribution, generator: torch.Generator) -> ActionSampler:
        """Returns the sampler of actions during learning."""
        return partial(heads.sample, generator=generator)

    def perturb(self, decisions: Decisions, generator: torch.Generator) -> Decisions:
        """Returns decisions with added exploration, during learning."""
        return decisions

    def record(self, trajectories: Trajectories) -> None:
        """Counts new experience."""
        if "steps" in self._counts:
            self._counts["steps"] += len(trajectories)
        if "episodes" in self._counts and trajectories.ended is not None:
            self._counts["episodes"] += int(np.count_nonzero(trajectories.ended))

    def metrics(self) -> dict[str, float]:
        """The present amount of exploration, by tag."""
        return {}

    def state_dict(self) -> dict[str, int]:
        """The counts of experience."""
        return dict(self._counts)

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Restores the counts. Raises KeyError if they are missing."""
        self._counts = {unit: int(state[unit]) for unit in self._counts}


class EpsilonGreedy(Exploration):
    """ε-greedy actions. ε decreases linearly, over agent steps or over agents' finished episodes."""

    units = ("steps", "episodes")

    def __init__(self, settings: ActionValueSettings) -> None:
        super().__init__()
        self._settings = settings

    @property
    def epsilon(self) -> float:
        """The present probability of a random action."""
        settings = self._settings
        count = self._counts[settings.exploration_unit]
        return scheduled(
            "linear",
            settings.exploration_initial,
            settings.exploration_final,
            count,
            settings.exploration_steps,
        )

    def sampler(self, heads: ActionDistribution, generator: torch.Generator) -> ActionSampler:
        """Returns the sampler of the best actions, replaced by random ones with probability ε."""
        return partial(self.sample_actions, heads, generator)

    def sample_actions(
        self,
        heads: ActionDistribution,
        generator: torch.Generator,
        parameters: ActionParameters,
        allowed: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Samples like ``heads.most_likely``, but for each agent uniformly with probability ε."""
        continuous, best, log_probs = heads.most_likely(parameters, allowed)
        if allowed is None:
            allowed = torch.ones_like(parameters.logits, dtype=torch.bool)
        # Off-policy learners do not need the probability of an action.
        return continuous, exploring(best, allowed, self.epsilon, generator, heads.branches), log_probs

    def metrics(self) -> dict[str, float]:
        """The present amount of exploration, by tag."""
        return {"Policy/Exploration Rate": self.epsilon}


class UniformMixture(Exploration):
    """Categorical policies mixed with the uniform policy: (1 − ε) π + ε/K, for one discrete branch."""

    units = ("steps",)

    def __init__(self, settings: COMASettings, *, greedy: bool) -> None:
        """greedy: whether to disable exploration."""
        super().__init__()
        self._settings = settings
        self._greedy = greedy

    @property
    def epsilon(self) -> float:
        """The present probability of a random action."""
        if self._greedy:
            return 0.0
        settings = self._settings
        return scheduled(
            "linear",
            settings.exploration_initial,
            settings.exploration_final,
            self._counts["steps"],
            settings.exploration_steps,
        )

    def sampler(self, heads: ActionDistribution, generator: torch.Generator) -> ActionSampler:
        """Returns the sampler of the mixture, with its log-probabilities of the actions."""

        def sample(parameters: ActionParameters, allowed: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
            log_probs = dist.masked_log_softmax(parameters.logits, allowed, heads.branches)
            log_probs = explored_log_probs(log_probs, allowed, self.epsilon)
            chosen = dist.sample_categorical(log_probs, heads.branches, generator)
            return parameters.mean, chosen, dist.categorical_log_prob(log_probs, chosen)

        return sample


class ActionNoise(Exploration):
    """Noise that decreases with agent steps, after a period of uniform actions.

    The state of a process with drift belongs to an agent and its episode. So it is part of the agent's memory, and
    starts at 0 in each episode.
    """

    units = ("steps",)

    def __init__(self, settings: NoiseSettings, size: int, uniform_until: int) -> None:
        """size: number of continuous actions. uniform_until: agent steps with uniform actions in [−1, 1]."""
        super().__init__()
        self._settings = settings
        self._size = size
        self._uniform_until = uniform_until
        self.memory_size = size if settings.noise == "ou" else 0

    @property
    def deviation(self) -> float:
        """The present standard deviation of the noise."""
        settings = self._settings
        final = settings.exploration_noise if settings.noise_final is None else settings.noise_final
        return scheduled(
            "linear", settings.exploration_noise, final, self._counts["steps"], settings.exploration_steps
        )

    def perturb(self, decisions: Decisions, generator: torch.Generator) -> Decisions:
        """Adds noise to continuous actions, which stay in [−1, 1], and updates its state in agents' memories.

        The last ``memory_size`` columns of memories, [M, …], are the noise's. Without such columns, noise is
        independent.
        """
        actions = torch.from_numpy(decisions.continuous_actions)
        if self._counts["steps"] < self._uniform_until:
            drawn = dist.uniform(actions, -1.0, 1.0, generator)
            return replace(decisions, continuous_actions=to_array(drawn))
        noise = dist.standard_normal(actions, generator)
        others = decisions.memories.shape[1] - self.memory_size
        if self.memory_size and others >= 0:
            noise = drifted(torch.from_numpy(decisions.memories[:, others:]), noise)
            memories = np.concatenate([decisions.memories[:, :others], to_array(noise)], axis=1)
            decisions = replace(decisions, memories=memories)
        return replace(decisions, continuous_actions=to_array(explored(actions, noise, self.deviation)))

    def metrics(self) -> dict[str, float]:
        """The present amount of exploration, by tag; empty without continuous actions."""
        return {"Policy/Exploration Noise": self.deviation} if self._size else {}
