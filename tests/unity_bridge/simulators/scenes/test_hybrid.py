from __future__ import annotations

import numpy as np
import pytest

from unity_bridge.simulators.scenes.hybrid import BEHAVIOR, GRAB, HOLD, RELEASE, Hybrid
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


def at_the_depot(scene: Hybrid) -> StepBatch:
    steps = scene.reset(0)[BEHAVIOR]
    for _ in range(2):
        steps = scene.step({BEHAVIOR: actions([-1], [HOLD], [0])})[BEHAVIOR]
    return steps


def test_the_hook_is_masked_by_place_and_load() -> None:
    scene = Hybrid(1)
    assert scene.reset(0)[BEHAVIOR].allowed_actions[0, :3].tolist() == [True, False, False]
    steps = at_the_depot(scene)
    assert steps.allowed_actions[0, :3].tolist() == [True, True, False]
    order = int(steps.observations[0][0].argmax())
    steps = scene.step({BEHAVIOR: actions([1], [GRAB], [order])})[BEHAVIOR]
    assert steps.rewards[0] == pytest.approx(0.49)
    assert steps.observations[1][0].tolist() == [-0.5, 1]
    assert steps.allowed_actions[0, :3].tolist() == [True, False, False]
    for _ in range(4):
        steps = scene.step({BEHAVIOR: actions([1], [HOLD], [order])})[BEHAVIOR]
    assert steps.allowed_actions[0, :3].tolist() == [True, False, True]
    steps = scene.step({BEHAVIOR: actions([1], [RELEASE], [order])})[BEHAVIOR]
    assert steps.rewards[0] == pytest.approx(0.49)
    assert steps.observations[1][0].tolist() == [0.5, 0]


def test_the_wrong_crate_costs_a_little_and_is_not_loaded() -> None:
    scene = Hybrid(1)
    steps = at_the_depot(scene)
    wrong = steps.allowed_actions[0, 3:] & (steps.observations[0][0] == 0)
    steps = scene.step({BEHAVIOR: actions([0], [GRAB], [int(wrong.argmax())])})[BEHAVIOR]
    assert steps.rewards[0] == pytest.approx(-0.11)
    assert steps.observations[1][0, 1] == 0


def test_forbidden_choices_do_nothing() -> None:
    scene = Hybrid(1)
    steps = at_the_depot(scene)
    empty = int(steps.allowed_actions[0, 3:].argmin())
    for hook, shelf in ((RELEASE, 0), (GRAB, empty)):
        steps = scene.step({BEHAVIOR: actions([0], [hook], [shelf])})[BEHAVIOR]
        assert steps.rewards[0] == pytest.approx(-0.01)
        assert steps.observations[1][0].tolist() == [-0.5, 0]
        empty = int(steps.allowed_actions[0, 3:].argmin())
