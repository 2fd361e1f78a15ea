"""A simulator without chance in which teams play against each other, and which begins every episode alike.

Two agents of each behavior id that is named on the command line walk for four decisions; an agent wins that has come
farther than all agents of other teams did on average. Observations depend on the actions of this episode, and on
nothing before it. With ``--groups`` the agents of an id are a group, and the group gets the reward.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

import numpy as np

from unity_bridge.simulators.client import run
from unity_bridge.simulators.scene import Steps, concatenate, step_batch, vector_sensor
from unity_bridge.specs import ActionSpec, BehaviorSpec
from unity_bridge.steps import ActionBatch

AGENTS = 2
EPISODE = 4


class Rivals:
    frame_s = 0.1

    def __init__(self, ids: list[str], groups: bool = False) -> None:
        self._ids = ids
        self._groups = groups

    @property
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        return dict.fromkeys(self._ids, BehaviorSpec((vector_sensor("body", 3),), ActionSpec(1, (3,))))

    def reset(self, seed: int | None = None) -> Steps:
        self._places = {name: np.arange(AGENTS) / 10 for name in self._ids}
        self._time = 0
        return {name: self._batch(name, 0.0) for name in self._ids}

    def step(self, actions: Mapping[str, ActionBatch]) -> Steps:
        for name, batch in actions.items():
            effort = batch.continuous[:, 0] + 0.5 * (batch.discrete[:, 0] - 1)
            self._places[name] = self._places[name] + 0.3 * effort
        self._time += 1
        if self._time < EPISODE:
            return {name: self._batch(name, 0.0) for name in self._ids}
        ended = {name: self._batch(name, self._result(name), over=True) for name in self._ids}
        begun = self.reset()
        return {name: concatenate(ended[name], begun[name]) for name in self._ids}

    def _result(self, name: str) -> float:
        team = name.partition("team=")[2]
        others = [place for other, place in self._places.items() if other.partition("team=")[2] != team]
        return float(np.sign(self._places[name].mean() - np.mean(others)))

    def _batch(self, name: str, result: float, *, over: bool = False):
        places = self._places[name]
        body = np.stack([places, np.full(AGENTS, self._time / EPISODE), np.square(places)], axis=1)
        rewards = np.full(AGENTS, result, np.float32)
        return step_batch(
            [body.astype(np.float32)],
            np.zeros(AGENTS, np.float32) if self._groups else rewards,
            agent_ids=np.arange(AGENTS, dtype=np.int64),
            allowed_actions=np.ones((AGENTS, 3), np.bool_),
            terminated=np.full(AGENTS, over),
            group_ids=np.full(AGENTS, int(self._groups), np.int64),
            group_rewards=rewards if self._groups else np.zeros(AGENTS, np.float32),
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--mlagents-port", type=int, required=True)
    parser.add_argument("--ids", nargs="+", required=True)
    parser.add_argument("--groups", action="store_true")
    options, _ = parser.parse_known_args()
    run(Rivals(options.ids, options.groups), options.mlagents_port, connect_timeout_s=30.0)
