"""How policies that draw no numbers themselves find out what other numbers are worth."""

from __future__ import annotations

import torch
from torch import Tensor

from trainer_service.config.value_settings import NoiseSettings
from trainer_service.ops.exploration_noise import drifted, explored, unit_noise
from trainer_service.ops.schedules import linear_decay


class ActionNoise:
    """Noise that falls with an agent's steps, after a time in which actions are nothing but chance.

    A process that drifts is a matter of each agent and its episode: its state is what an agent remembers, so it
    begins at 0 with an episode, whichever row of a batch the agent is.
    """

    def __init__(self, settings: NoiseSettings, size: int, uniform_until: int) -> None:
        """size: numbers of an action. uniform_until: agent steps for which actions are uniform in [−1, 1]."""
        self._settings = settings
        self._uniform_until = uniform_until
        self.memory_size = size if settings.noise == "ou" else 0
        """Floats that an agent remembers for it."""

    def deviation(self, lived: int) -> float:
        """After so many agent steps."""
        settings = self._settings
        final = settings.exploration_noise if settings.noise_final is None else settings.noise_final
        return linear_decay(settings.exploration_noise, final, lived, settings.exploration_steps)

    def explore(
        self, actions: Tensor, memories: Tensor, lived: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Actions with noise, [B, size] in [−1, 1], and what agents remember of it, [B, memory_size].

        memories: as before, or [B, 0] where nobody keeps any; noise is drawn afresh there.
        """
        if lived < self._uniform_until:
            return torch.empty_like(actions).uniform_(-1.0, 1.0, generator=generator), memories
        noise = unit_noise(actions, generator)
        if memories.shape[1]:
            noise = memories = drifted(memories, noise)
        return explored(actions, noise, self.deviation(lived)), memories
