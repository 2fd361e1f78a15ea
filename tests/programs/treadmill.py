"""A simulator without chance, which stands at every episode's start as it stands at its own.

Three agents walk for six decisions an episode: what they see depends on what they did in this episode, and
on nothing before it. One of the three is interrupted instead of ending. An episode of all three is 18 agent
steps; with ``--endless`` it never ends. ``--actions`` says of which kind actions are; with ``--group`` the three are
a group. The first line that it prints is the id of its process.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping

import numpy as np

from unity_bridge.simulators.client import run
from unity_bridge.simulators.scene import Steps, concatenate, step_batch, vector_sensor
from unity_bridge.specs import ActionSpec, BehaviorSpec
from unity_bridge.steps import ActionBatch

AGENTS = 3
EPISODE = 6
BEHAVIOR = "Treadmill?team=0"
ACTIONS = {"hybrid": ActionSpec(1, (3,)), "continuous": ActionSpec(1), "discrete": ActionSpec(0, (3,))}


class Treadmill:
    frame_s = 0.1

    def __init__(self, actions: str = "hybrid", *, group: bool = False, endless: bool = False) -> None:
        self._actions = ACTIONS[actions]
        self._group = group
        self._endless = endless

    @property
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        return {BEHAVIOR: BehaviorSpec((vector_sensor("body", 4),), self._actions)}

    def reset(self, seed: int | None = None) -> Steps:
        self._place = np.arange(AGENTS) / 10
        self._time = 0
        return {BEHAVIOR: self._batch(np.zeros(AGENTS))}

    def step(self, actions: Mapping[str, ActionBatch]) -> Steps:
        batch = actions[BEHAVIOR]
        effort = batch.continuous.sum(axis=1) + 0.5 * (batch.discrete - 1).sum(axis=1)
        self._place = 0.9 * self._place + 0.3 * effort
        self._time += 1
        rewards = -np.abs(self._place - 0.5)
        if self._time < EPISODE or self._endless:
            return {BEHAVIOR: self._batch(rewards)}
        interrupted = np.arange(AGENTS) == 1
        terminal = self._batch(rewards, terminated=~interrupted, truncated=interrupted)
        return {BEHAVIOR: concatenate(terminal, self.reset()[BEHAVIOR])}

    def _batch(self, rewards, **ends):
        clock = np.full(AGENTS, self._time / EPISODE)
        body = np.stack([self._place, clock, np.square(self._place), np.arange(AGENTS)], axis=1)
        return step_batch(
            [body.astype(np.float32)],
            rewards.astype(np.float32),
            agent_ids=np.arange(AGENTS, dtype=np.int64),
            allowed_actions=np.ones((AGENTS, self._actions.mask_size), np.bool_),
            group_ids=np.full(AGENTS, int(self._group), np.int64),
            **ends,
        )


if __name__ == "__main__":
    print(os.getpid(), flush=True)
    parser = argparse.ArgumentParser()
    parser.add_argument("--mlagents-port", type=int, required=True)
    parser.add_argument("--actions", choices=ACTIONS, default="hybrid")
    parser.add_argument("--group", action="store_true")
    parser.add_argument("--endless", action="store_true")
    options, _ = parser.parse_known_args()
    scene = Treadmill(options.actions, group=options.group, endless=options.endless)
    run(scene, options.mlagents_port, connect_timeout_s=30.0)
