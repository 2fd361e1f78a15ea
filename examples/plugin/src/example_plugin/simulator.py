"""A simulator: ``--env hotcold:9`` hides a number from 0 to 9, and agents are told whether they are too high.

A scheme needs one function, which opens a ``Scene``. The bundled simulator does the rest: processes,
messages, seeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unity_bridge.simulators.scene import SceneError, Steps, concatenate, step_batch, vector_sensor
from unity_bridge.specs import ActionSpec, BehaviorSpec
from unity_bridge.steps import ActionBatch

BEHAVIOR = "HotCold?team=0"
GUESSES = 4


class HotCold:
    """N games. Sees the last guess and whether it was too high (1) or too low (−1); guesses a number from −1 to 1.

    An episode is 4 guesses, each worth minus its distance.
    """

    frame_s = 0.5

    def __init__(self, agents: int, largest: int) -> None:
        self._largest = largest
        self._random = np.random.default_rng(0)
        self._ids = np.arange(agents)
        self._numbers = np.zeros(agents)
        self._seen = np.zeros((agents, 2), np.float32)
        self._guesses = 0

    @property
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        """One sensor of two numbers, one continuous action."""
        return {BEHAVIOR: BehaviorSpec((vector_sensor("answer", 2),), ActionSpec(continuous_size=1))}

    def reset(self, seed: int | None = None) -> Steps:
        """Hides new numbers."""
        if seed is not None:
            self._random = np.random.default_rng(seed)
        self._start()
        return {BEHAVIOR: self._batch(np.zeros(len(self._ids), np.float32))}

    def step(self, actions: Mapping[str, ActionBatch]) -> Steps:
        """Compares the guesses; after the last one the next game begins in the same message."""
        guesses = actions[BEHAVIOR].continuous[:, 0]
        difference = guesses - self._numbers
        self._seen = np.stack([guesses, np.sign(difference)], axis=1).astype(np.float32)
        self._guesses += 1
        batch = self._batch(-np.abs(difference).astype(np.float32), ended=self._guesses == GUESSES)
        if self._guesses < GUESSES:
            return {BEHAVIOR: batch}
        self._ids = self._ids + len(self._ids)  # agents of the next game are others
        self._start()
        return {BEHAVIOR: concatenate(batch, self._batch(np.zeros(len(self._ids), np.float32)))}

    def render(self) -> NDArray[np.uint8]:
        """A white picture: there is nothing to see."""
        return np.full((32, 32, 3), 255, np.uint8)

    def close(self) -> None:
        """Does nothing."""

    def _start(self) -> None:
        hidden = self._random.integers(0, self._largest + 1, len(self._ids))
        self._numbers = 2.0 * hidden / self._largest - 1.0
        self._seen = np.zeros((len(self._ids), 2), np.float32)
        self._guesses = 0

    def _batch(self, rewards: NDArray[np.float32], *, ended: bool = False) -> Any:
        return step_batch(
            [self._seen], rewards, agent_ids=self._ids, terminated=np.full(len(self._ids), ended)
        )


def open_hotcold(
    name: str, *, agents: int | None, academy: Any, env_kwargs: Mapping[str, Any], rendered: bool
) -> HotCold:
    """Opens ``hotcold:LARGEST``. Raises SceneError for a text that is no number."""
    if not name.isdigit() or int(name) < 1:
        raise SceneError(f"expected hotcold:LARGEST with a number from 1 on, got hotcold:{name}")
    if env_kwargs:
        raise SceneError(f"hotcold takes no arguments, got {', '.join(env_kwargs)}")
    return HotCold(agents or 8, int(name))
