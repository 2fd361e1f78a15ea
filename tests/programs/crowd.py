"""A restless simulator: two behaviors and two teams, with agents that come, go, change order and skip messages.

Every walker gets 0.5 for each of six decisions; every flyer −0.5 for each of four, after which it is gone for
ever and another one comes. So every walker's return is 3 and every flyer's −2, unless they were mixed up.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping

import numpy as np

from unity_bridge.simulators.client import run
from unity_bridge.simulators.scene import Steps, concatenate, step_batch, vector_sensor
from unity_bridge.specs import ActionSpec, BehaviorSpec
from unity_bridge.steps import ActionBatch

WALKERS = ("Walker?team=0", "Walker?team=1")
FLYERS = "Flyer?team=0"
DECISIONS = {"Walker": 6, "Flyer": 4}
REWARDS = {"Walker": 0.5, "Flyer": -0.5}


class Crowd:
    frame_s = 0.1

    def __init__(self) -> None:
        self._ids = itertools.count(100)
        self._decided: dict[str, dict[int, int]] = {}
        self._asked: dict[str, list[int]] = {}

    @property
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        walker = BehaviorSpec((vector_sensor("legs", 3),), ActionSpec(discrete_branches=(2, 3)))
        flyer = BehaviorSpec((vector_sensor("air", 1), vector_sensor("wings", 2)), ActionSpec(2))
        return {**dict.fromkeys(WALKERS, walker), FLYERS: flyer}

    def reset(self, seed: int | None = None) -> Steps:
        self._rng = np.random.default_rng(seed)
        # The same ids in both teams: an agent is known by its behavior id and its own together.
        self._decided = {behavior: dict.fromkeys(range(5), 0) for behavior in self.behaviors}
        return {behavior: self._ask(behavior) for behavior in self.behaviors}

    def step(self, actions: Mapping[str, ActionBatch]) -> Steps:
        steps = {}
        for behavior, asked in self._asked.items():
            assert len(actions[behavior]) == len(asked) if behavior in actions else not asked
            ended = [agent for agent in asked if self._act(behavior, agent)]
            terminal = self._rows(behavior, ended, 1.0, terminated=np.ones(len(ended), np.bool_))
            for agent in ended:
                del self._decided[behavior][agent]
                self._decided[behavior][next(self._ids) if behavior == FLYERS else agent] = 0
            steps[behavior] = concatenate(terminal, self._ask(behavior))
        return steps

    def _act(self, behavior: str, agent: int) -> bool:
        """Counts a decision; whether it was the episode's last."""
        self._decided[behavior][agent] += 1
        return self._decided[behavior][agent] == DECISIONS[behavior.partition("?")[0]]

    def _ask(self, behavior: str):
        """Some agents, in any order. Rewards were earned with the previous decision."""
        everybody = list(self._decided[behavior])
        some = self._rng.permutation(everybody)[: self._rng.integers(len(everybody) + 1)].tolist()
        self._asked[behavior] = some
        began = np.array([self._decided[behavior][agent] > 0 for agent in some], np.float32)
        return self._rows(behavior, some, began)

    def _rows(self, behavior: str, agents: list[int], earned, **ends):
        spec = self.behaviors[behavior]
        count = len(agents)
        return step_batch(
            [self._rng.normal(size=(count, *sensor.shape)).astype("f4") for sensor in spec.observation_specs],
            (np.ones(count, np.float32) * REWARDS[behavior.partition("?")[0]] * earned).astype("f4"),
            agent_ids=np.array(agents, np.int64),
            allowed_actions=np.ones((count, spec.action_spec.mask_size), np.bool_),
            **ends,
        )


if __name__ == "__main__":
    run(Crowd(), int(sys.argv[sys.argv.index("--mlagents-port") + 1]), connect_timeout_s=30.0)
