from __future__ import annotations

import numpy as np
import pytest

from unity_bridge.simulators.scenes.basic import BEHAVIOR, Basic
from unity_bridge.steps import ActionBatch, StepBatch

STAY, LEFT, RIGHT = range(3)


def always(move: int):
    def policy(steps: StepBatch) -> ActionBatch:
        return ActionBatch(np.zeros((len(steps), 0), np.float32), np.full((len(steps), 1), move, np.int32))

    return policy


@pytest.mark.parametrize(
    ("move", "return_", "decisions", "terminated"),
    [(RIGHT, 0.93, 7, True), (LEFT, 0.07, 3, True), (STAY, -2.0, 200, False)],
)
def test_returns_by_hand(play, move: int, return_: float, decisions: int, terminated: bool) -> None:
    (episode, *_), (same, *_) = play(Basic(2), always(move), steps=decisions).values()
    assert episode == same == (pytest.approx(return_, abs=1e-6), decisions, terminated)


def test_terminal_row_shows_the_goal_next_the_start(act) -> None:
    scene = Basic()
    scene.reset()
    for _ in range(3):
        steps = scene.step(act(BEHAVIOR, discrete=[[LEFT]]))[BEHAVIOR]
    assert steps.agent_ids.tolist() == [0, 0]
    assert steps.observations[0].argmax(axis=1).tolist() == [7, 10]
    assert steps.terminated.tolist() == [True, False]
    np.testing.assert_allclose(steps.rewards, [0.09, 0])
