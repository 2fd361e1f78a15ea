"""A replay buffer: recent experience more often, as Wang and Ross 2019 (arXiv:1906.04009) propose in kind."""

from __future__ import annotations

import numpy as np

from trainer_service.learning.replay.transitions import TransitionReplay
from unity_bridge.arrays import Rows
from unity_bridge.specs import BehaviorSpec


class RecentReplay(TransitionReplay):
    """The replay buffer ``replay: {type: recent, kwargs: {power: 2}}``.

    A transition's age has the density of a power of a uniform number: the larger the power, the younger the sample.
    """

    def __init__(self, spec: BehaviorSpec, capacity: int, *, power: float = 2.0) -> None:
        if power < 1.0:
            raise ValueError(f"replay.kwargs.power: expected at least 1, got {power:g}")
        super().__init__(spec, capacity)
        self._power = power

    def draw(self, count: int, rng: np.random.Generator, beta: float) -> tuple[Rows, None]:
        """Chooses the rows of a sample. beta: of prioritized replay, not used here."""
        age = (len(self) * rng.random(count) ** self._power).astype(np.int64)
        return (self.oldest + len(self) - 1 - age) % self.capacity, None
