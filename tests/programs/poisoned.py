"""Twelve balanced balls with some numbers that are NaN, infinite or far too large.

Arguments: KIND SHARE SEED --mlagents-port N. KIND is ``nan``, ``inf``, ``reward=X`` or ``observation=X``; SHARE is how
many of all numbers (of rewards, of observations) are replaced. The last line that it prints is how many were.
"""

from __future__ import annotations

import atexit
import sys
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from unity_bridge.simulators.client import run
from unity_bridge.simulators.scene import Steps
from unity_bridge.simulators.scenes.three_d_ball import ThreeDBall
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import ActionBatch, StepBatch


class Poisoned:
    """A scene with messages that are spoilt on their way out."""

    frame_s = ThreeDBall.frame_s

    def __init__(self, kind: str, share: float, seed: int) -> None:
        self._scene = ThreeDBall()
        self._where, _, value = kind.rpartition("=")
        self._value = float(value)
        self._share = share
        self._dice = np.random.default_rng(seed)
        self.replaced = 0

    @property
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        return self._scene.behaviors

    def reset(self, seed: int | None = None) -> Steps:
        return self._scene.reset(seed)

    def step(self, actions: Mapping[str, ActionBatch]) -> Steps:
        return {name: self._spoil(batch) for name, batch in self._scene.step(actions).items()}

    def _spoil(self, batch: StepBatch) -> StepBatch:
        rewards = batch.rewards if self._where == "observation" else self._poison(batch.rewards)
        seen = batch.observations
        if self._where != "reward":
            seen = tuple(self._poison(values) for values in seen)
        return replace(batch, rewards=rewards, observations=seen)

    def _poison(self, values: np.ndarray) -> np.ndarray:
        chosen = self._dice.random(values.shape) < self._share
        self.replaced += int(chosen.sum())
        return np.where(chosen, np.float32(self._value), values)


if __name__ == "__main__":
    kind, share, seed = sys.argv[1:4]
    scene = Poisoned(kind, float(share), int(seed))
    atexit.register(lambda: print(scene.replaced, flush=True))
    run(scene, int(sys.argv[sys.argv.index("--mlagents-port") + 1]), connect_timeout_s=30.0)
