"""How policies that draw no numbers themselves find out what other numbers are worth."""

from __future__ import annotations

from dataclasses import replace

import torch

from trainer_service.algorithms.common.acting import to_array, to_tensor
from trainer_service.algorithms.common.schedules import linear_decay
from trainer_service.config.hyperparameters.off_policy import NoiseSettings
from trainer_service.ops.exploration_noise import drifted, explored, unit_noise
from trainer_service.rollout.assembler import Decisions
from trainer_service.rollout.trajectories import Trajectories


class ActionNoise:
    """Noise that falls with an agent's steps, after a time in which actions are nothing but chance.

    A process that drifts is a matter of each agent and its episode: its state is what an agent remembers, so it
    begins at 0 with an episode, whichever row of a batch the agent is.
    """

    def __init__(self, settings: NoiseSettings, size: int, uniform_until: int) -> None:
        """size: numbers of an action. uniform_until: agent steps for which actions are uniform in [−1, 1]."""
        self._settings = settings
        self._uniform_until = uniform_until
        self.env_steps = 0
        """Agent steps recorded over the whole run."""
        self.memory_size = size if settings.noise == "ou" else 0
        """Floats that an agent remembers for it."""

    @property
    def deviation(self) -> float:
        """Of the noise now."""
        settings = self._settings
        final = settings.exploration_noise if settings.noise_final is None else settings.noise_final
        return linear_decay(settings.exploration_noise, final, self.env_steps, settings.exploration_steps)

    def record(self, trajectories: Trajectories) -> None:
        """Counts experience in."""
        self.env_steps += len(trajectories)

    def add_noise(self, decisions: Decisions, generator: torch.Generator) -> Decisions:
        """The same with noise on the numbers, which stay in [−1, 1], and what agents remember of it.

        Their memories: [M, memory_size]; or [M, 0] where nobody keeps any, and noise is drawn afresh.
        """
        actions = to_tensor(decisions.continuous_actions, generator.device)
        if self.env_steps < self._uniform_until:
            chance = torch.empty_like(actions).uniform_(-1.0, 1.0, generator=generator)
            return replace(decisions, continuous_actions=to_array(chance))
        noise = unit_noise(actions, generator)
        if decisions.memories.shape[1]:
            noise = drifted(to_tensor(decisions.memories, generator.device), noise)
            decisions = replace(decisions, memories=to_array(noise))
        return replace(decisions, continuous_actions=to_array(explored(actions, noise, self.deviation)))
