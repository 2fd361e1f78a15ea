"""A simulator whose every step is told apart: one agent that sees the number of its life, and of the step in it.

Arguments: --mlagents-port N [--life NUMBER]. A life begins with each reset and with each process; an episode is a part
of it. Its number is random if it is not given. A line of words is printed at the start, and each step takes two
milliseconds.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Mapping

import numpy as np

from unity_bridge.simulators.client import run
from unity_bridge.simulators.scene import Steps, concatenate, step_batch, vector_sensor
from unity_bridge.specs import ActionSpec, BehaviorSpec
from unity_bridge.steps import ActionBatch

BEHAVIOR = "Counter?team=0"
EPISODE = 20
STEP_S = 0.002


class Counter:
    frame_s = 0.1

    def __init__(self, life: int | None) -> None:
        self._given = life

    @property
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        return {BEHAVIOR: BehaviorSpec((vector_sensor("number", 2),), ActionSpec(1))}

    def reset(self, seed: int | None = None) -> Steps:
        self._life = int.from_bytes(os.urandom(3)) if self._given is None else self._given  # a float holds it
        self._number = 0
        return {BEHAVIOR: self._batch(ended=False)}

    def step(self, actions: Mapping[str, ActionBatch]) -> Steps:
        time.sleep(STEP_S)
        self._number += 1
        if self._number % EPISODE:
            return {BEHAVIOR: self._batch(ended=False)}
        terminal = self._batch(ended=True)
        self._number += 1
        return {BEHAVIOR: concatenate(terminal, self._batch(ended=False))}

    def _batch(self, *, ended):
        seen = np.array([[self._life, self._number]], np.float32)
        return step_batch(
            [seen],
            rewards=np.array([1.0], np.float32),
            terminated=np.array([ended]),
            agent_ids=np.array([1], np.int64),
        )


if __name__ == "__main__":
    print("counting begins", flush=True)
    parser = argparse.ArgumentParser()
    parser.add_argument("--mlagents-port", type=int, required=True)
    parser.add_argument("--life", type=int)
    options, _ = parser.parse_known_args()
    print(run(Counter(options.life), options.mlagents_port, connect_timeout_s=30.0), flush=True)
