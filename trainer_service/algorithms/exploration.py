"""How much a learner of action values tries out, measured by what it has lived through."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from trainer_service.config.value_settings import ExplorationSettings
from trainer_service.ops.schedules import linear_decay
from trainer_service.rollout.trajectories import Trajectories


class Exploration:
    """ε falls from its first value straight to its last one, over agent steps or over agents' finished episodes."""

    def __init__(self, settings: ExplorationSettings) -> None:
        self._settings = settings
        self._done = {"steps": 0, "episodes": 0}

    @property
    def epsilon(self) -> float:
        """Share of random actions now."""
        settings = self._settings
        done = self._done[settings.exploration_unit]
        return linear_decay(
            settings.exploration_initial, settings.exploration_final, done, settings.exploration_steps
        )

    def record(self, trajectories: Trajectories) -> None:
        """Counts experience in."""
        self._done["steps"] += len(trajectories)
        if trajectories.ended is not None:
            self._done["episodes"] += int(np.count_nonzero(trajectories.ended))

    def state_dict(self) -> dict[str, int]:
        """What was counted."""
        return dict(self._done)

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Goes on from there. Raises KeyError where it is no such count."""
        self._done = {unit: int(state[unit]) for unit in self._done}
