from __future__ import annotations

import numpy as np
import pytest

from unity_bridge.simulators.scenes.hybrid import BEHAVIOR, Hybrid
from unity_bridge.steps import ActionBatch, StepBatch


def actions(drive, hook, shelf) -> ActionBatch:
    return ActionBatch(np.array(drive, np.float32)[:, None], np.stack([hook, shelf], axis=1).astype(np.int32))


def stay(steps: StepBatch) -> ActionBatch:
    nothing = np.zeros(len(steps))
    return actions(nothing, nothing, steps.allowed_actions[:, 3:].argmax(axis=1))


def test_agents_are_asked_in_their_own_rhythm() -> None:
    scene = Hybrid(4)
    steps = scene.reset(0)[BEHAVIOR]
    asked = []
    for _ in range(7):
        asked.append(steps.agent_ids.tolist())
        steps = scene.step({BEHAVIOR: stay(steps)})[BEHAVIOR]
    every, second, third = [0, 3], [0, 1, 3], [0, 2, 3]
    assert asked == [[0, 1, 2, 3], every, second, third, second, every, [0, 1, 2, 3]]


def test_episode_ends_are_sent_before_the_agents_turn() -> None:
    scene = Hybrid(3)
    steps = scene.reset(0)[BEHAVIOR]
    place = np.zeros(3)
    while steps.num_terminal == 0:  # agent 2 runs to the right, the others stay
        runs = (steps.agent_ids == 2).astype(float)
        place[2] += 0.25 * runs.sum()
        steps = scene.step({BEHAVIOR: actions(runs, stay(steps).discrete[:, 0], stay(steps).discrete[:, 1])})[
            BEHAVIOR
        ]
    assert place[2] == 1.25  # on 1.0 it still stood
    assert steps.num_terminal == 1
    assert steps.agent_ids[0] == 2
    assert steps.terminated[0]
    assert 2 not in steps.agent_ids[1:]
    assert steps.rewards[0] == pytest.approx(-1.01)
