"""A simulator that takes its time without taking a core, as a build on another machine would.

python -m workers.sleeper --mlagents-port N [--agents 12] [--step-ms 5]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from unity_bridge.simulators.client import run
from unity_bridge.simulators.scene import Steps, concatenate, step_batch, vector_sensor
from unity_bridge.specs import ActionSpec, BehaviorSpec
from unity_bridge.steps import ActionBatch

BEHAVIOR = "Sleeper?team=0"
AGENTS = 12
OBSERVATIONS, ACTIONS = 8, 2
"""3DBall's."""

_SHORTEST, _LONGEST = 100, 300
"""Decisions of an episode. Agents have different ones, so that their trajectories do not end together."""

_SCENES = 64
"""Observations that were drawn beforehand: to draw them takes a core."""

_CONNECT_TIMEOUT_S = 60.0


class Sleeper:
    """Agents that see noise and earn 0.1 a step. What they do changes nothing."""

    frame_s = 0.1

    def __init__(self, agents: int = AGENTS, step_s: float = 0.005) -> None:
        self._ids = np.arange(agents, dtype=np.int64)
        self._step_s = step_s
        self._rng = np.random.default_rng()
        self._observations = (
            np.random.default_rng(1).normal(size=(_SCENES, agents, OBSERVATIONS)).astype("f4")
        )
        self._rewards = np.full(agents, 0.1, np.float32)
        self._left = np.zeros(agents, np.int64)
        self._steps = 0

    @property
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        return {BEHAVIOR: BehaviorSpec((vector_sensor("vector", OBSERVATIONS),), ActionSpec(ACTIONS))}

    def reset(self, seed: int | None = None) -> Steps:
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self._left = self._rng.integers(1, _LONGEST, len(self._ids))
        return {BEHAVIOR: step_batch([self._seen()], np.zeros_like(self._rewards), agent_ids=self._ids)}

    def step(self, actions: Mapping[str, ActionBatch]) -> Steps:
        time.sleep(self._step_s)
        self._steps += 1
        self._left -= 1
        ended = self._left == 0
        deciding = step_batch(
            [self._seen()], np.where(ended, np.float32(0), self._rewards), agent_ids=self._ids
        )
        if not ended.any():
            return {BEHAVIOR: deciding}
        self._left[ended] = self._rng.integers(_SHORTEST, _LONGEST, int(ended.sum()))
        last = step_batch(
            [self._seen()[ended]],
            self._rewards[ended],
            agent_ids=self._ids[ended],
            terminated=np.ones(int(ended.sum()), np.bool_),
        )
        return {BEHAVIOR: concatenate(last, deciding)}

    def render(self) -> NDArray[np.uint8]:
        raise NotImplementedError

    def close(self) -> None:
        pass

    def _seen(self) -> NDArray[np.float32]:
        seen: NDArray[np.float32] = self._observations[self._steps % _SCENES]
        return seen


def main(argv: Sequence[str] | None = None) -> None:
    """Plays for the trainer on a port."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mlagents-port", type=int, required=True)
    parser.add_argument("--agents", type=int, default=AGENTS)
    parser.add_argument("--step-ms", type=float, default=5.0)
    given, _ = parser.parse_known_args(argv)
    run(
        Sleeper(given.agents, given.step_ms / 1e3),
        given.mlagents_port,
        connect_timeout_s=_CONNECT_TIMEOUT_S,
    )


if __name__ == "__main__":
    main()
