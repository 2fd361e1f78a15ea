"""A simulator with an environment parameter as its task: every decision earns the ``height`` at its episode's start.

Four pupils decide three times an episode, without chance, so every return is three times the height. It prints the
id of its process, ``reset`` for every reset, and the height of each episode that differs from the one before. Each
episode's start leaves a statistic of every kind, unless it is ``--silent``: a simulator that a resumed run starts
counts its first episode once more.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

import numpy as np

from unity_bridge.side_channels import Aggregation
from unity_bridge.simulators.academy import Academy
from unity_bridge.simulators.client import run
from unity_bridge.simulators.scene import Steps, concatenate, step_batch, vector_sensor
from unity_bridge.specs import ActionSpec, BehaviorSpec
from unity_bridge.steps import ActionBatch

PUPILS = 4
DECISIONS = 3
BEHAVIOR = "Pupil?team=0"


class Schoolroom:
    frame_s = 0.1

    def __init__(self, academy: Academy) -> None:
        self._academy = academy
        self._height = float("nan")

    @property
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        return {BEHAVIOR: BehaviorSpec((vector_sensor("desk", 2),), ActionSpec(1))}

    def reset(self, seed: int | None = None) -> Steps:
        print("reset", flush=True)
        return {BEHAVIOR: self._begin()}

    def step(self, actions: Mapping[str, ActionBatch]) -> Steps:
        self._time += 1
        earned = self._height
        if self._time < DECISIONS:
            return {BEHAVIOR: self._batch(earned)}
        terminal = self._batch(earned, terminated=np.ones(PUPILS, np.bool_))
        return {BEHAVIOR: concatenate(terminal, self._begin())}

    def _begin(self):
        (height,) = self._academy.parameters.read("height", -1.0, 1)
        if height != self._height:
            print(f"height {height:.3f}", flush=True)
        self._height = float(height)
        self._time = 0
        for kind in () if "--silent" in sys.argv else Aggregation:
            self._academy.add_statistic(f"School/{kind.name}", self._height, kind)
        return self._batch(0.0)

    def _batch(self, earned: float, **ends):
        desk = np.array([[self._height, self._time]] * PUPILS, np.float32)
        return step_batch(
            [desk],
            np.full(PUPILS, earned, np.float32),
            agent_ids=np.arange(PUPILS, dtype=np.int64),
            **ends,
        )


if __name__ == "__main__":
    print(os.getpid(), flush=True)
    academy = Academy()
    port = int(sys.argv[sys.argv.index("--mlagents-port") + 1])
    run(Schoolroom(academy), port, connect_timeout_s=30.0, academy=academy)
