"""What learners share that try things out and learn from a replay buffer of the task's rewards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer_service.algorithms.common.acting import to_tensor
from trainer_service.algorithms.common.off_policy.action_noise import ActionNoise
from trainer_service.algorithms.common.off_policy.epsilon_greedy import EpsilonGreedy
from trainer_service.algorithms.common.off_policy.replay_sampler import ReplaySampler, SampleT
from trainer_service.networks.encoders.normalizer import ObservationNormalizer
from trainer_service.rollout.assembler import Decisions
from trainer_service.rollout.trajectories import Trajectories
from unity_bridge.steps import Observation


class ReplayLearner(Generic[SampleT]):
    """Acting, remembering and saving of learners whose methods differ in what they make of a minibatch.

    Who inherits sets what is declared here.
    """

    memory_size = 0
    """Floats that it carries from one decision of an agent to the next."""

    _device: torch.device
    _normalizer: ObservationNormalizer
    _replay: ReplaySampler[SampleT]
    _exploration: EpsilonGreedy | ActionNoise
    """What it tries out while it learns."""

    _training = False
    """Who only acts does not try anything out."""

    def prepare(self, step: int) -> None:
        """It is going to learn."""
        self._training = True

    def env_actions(self, decisions: Decisions) -> NDArray[np.float32]:
        """As they are: in [−1, 1] already."""
        return decisions.continuous_actions

    def record(self, trajectories: Trajectories) -> None:
        """Remembers experience, and lets the normalizer see it."""
        self._normalizer.update([to_tensor(sensor, self._device) for sensor in trajectories.observations])
        self._remember(trajectories)
        self._exploration.record(trajectories)

    def _remember(self, trajectories: Trajectories) -> None:
        self._replay.record(trajectories)

    def ready(self) -> bool:
        """An update was earned."""
        return self._replay.schedule.due > 0

    def collected(self) -> tuple[int, int] | None:
        """Of those before the first update."""
        return self._replay.schedule.collected

    def replay_state(self) -> dict[str, NDArray[Any]] | None:
        """The replay buffer and how far learning from it has come, if they shall be saved."""
        return self._replay.replay_state()

    def load_replay_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continues with that buffer."""
        self._replay.load_replay_state(state)

    def _inputs(self, observations: Sequence[Observation]) -> list[Tensor]:
        """What networks are shown of sensors, one array [B, …] each."""
        return self._normalizer.forward([to_tensor(sensor, self._device) for sensor in observations])
