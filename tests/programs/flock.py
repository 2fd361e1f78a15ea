"""A group of ``--size`` agents, with the same behavior whatever the size; its episodes end after five decisions."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

import numpy as np

from unity_bridge.simulators.client import run
from unity_bridge.simulators.scene import Steps, concatenate, step_batch, vector_sensor
from unity_bridge.specs import ActionSpec, BehaviorSpec
from unity_bridge.steps import ActionBatch, StepBatch

DECISIONS = 5


class Flock:
    frame_s = 0.1

    def __init__(self, size: int) -> None:
        self._ids = np.arange(size)
        self._decided = 0

    @property
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        return {"Flock?team=0": BehaviorSpec((vector_sensor("eyes", 2),), ActionSpec(discrete_branches=(2,)))}

    def reset(self, seed: int | None = None) -> Steps:
        self._decided = 0
        return self._told(self._rows())

    def step(self, actions: Mapping[str, ActionBatch]) -> Steps:
        self._decided += 1
        if self._decided % DECISIONS:
            return self._told(self._rows())
        return self._told(concatenate(self._rows(terminated=np.ones(len(self._ids), np.bool_)), self._rows()))

    def _told(self, rows: StepBatch) -> Steps:
        return {"Flock?team=0": rows}

    def _rows(self, **ends: np.ndarray) -> StepBatch:
        count = len(self._ids)
        return step_batch(
            [np.full((count, 2), self._decided / DECISIONS, np.float32)],
            np.ones(count, np.float32),
            agent_ids=self._ids,
            allowed_actions=np.ones((count, 2), np.bool_),
            group_ids=np.ones(count, np.int64),
            **ends,
        )

    def render(self) -> np.ndarray:
        raise NotImplementedError

    def close(self) -> None: ...


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--mlagents-port", type=int, required=True)
    parser.add_argument("--size", type=int, required=True)
    given, _ = parser.parse_known_args()
    run(Flock(given.size), given.mlagents_port, connect_timeout_s=10.0)
