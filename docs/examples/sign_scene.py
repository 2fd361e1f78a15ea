#!/usr/bin/env python3
"""The task of sign.py as a scene, many agents at once: the bundled client does the talking."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from unity_bridge.simulators.client import run
from unity_bridge.simulators.scene import Steps, concatenate, step_batch, vector_sensor
from unity_bridge.specs import ActionSpec, BehaviorSpec
from unity_bridge.steps import ActionBatch, StepBatch

BEHAVIOR = "Sign?team=0"


class Sign:
    """N agents, each sees a number of −1 to 1 and earns 1 for naming its sign. One decision per episode."""

    frame_s = 0.1

    def __init__(self, agents: int) -> None:
        self._ids = np.arange(agents)
        self._everybody = np.ones(agents, np.bool_)
        self._everything_allowed = np.ones((agents, 2), np.bool_)
        self._rng = np.random.default_rng()

    @property
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        return {BEHAVIOR: BehaviorSpec((vector_sensor("number", 1),), ActionSpec(discrete_branches=(2,)))}

    def reset(self, seed: int | None = None) -> Steps:
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        return {BEHAVIOR: self._question()}

    def step(self, actions: Mapping[str, ActionBatch]) -> Steps:
        right = (actions[BEHAVIOR].discrete[:, 0] == 1) == (self._numbers[:, 0] > 0)
        ended = self._rows(right.astype(np.float32), terminated=self._everybody)
        return {BEHAVIOR: concatenate(ended, self._question())}

    def render(self) -> NDArray[np.uint8]:
        greys = (127.5 * (1 + self._numbers.T)).astype(np.uint8)
        return np.repeat(greys[..., None], 3, axis=2)

    def close(self) -> None:
        pass

    def _question(self) -> StepBatch:
        self._numbers = self._rng.uniform(-1, 1, (len(self._ids), 1)).astype(np.float32)
        return self._rows(np.zeros(len(self._ids), np.float32))

    def _rows(self, rewards: NDArray[np.float32], terminated: NDArray[np.bool_] | None = None) -> StepBatch:
        return step_batch(
            [self._numbers],
            rewards,
            agent_ids=self._ids,
            allowed_actions=self._everything_allowed,
            terminated=terminated,
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mlagents-port", type=int, default=5004)
    parser.add_argument("--agents", type=int, default=16)
    arguments = parser.parse_args()
    run(Sign(arguments.agents), arguments.mlagents_port, connect_timeout_s=10.0)


if __name__ == "__main__":
    main()
