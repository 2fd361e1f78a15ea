from __future__ import annotations

import itertools

import numpy as np

from unity_bridge.side_channels import FloatParameter
from unity_bridge.simulators.academy import Academy
from unity_bridge.simulators.scene import Steps, choices
from unity_bridge.simulators.scenes.hallway import (
    BACK,
    BEHAVIOR,
    CIRCLE_GOAL,
    CIRCLE_SYMBOL,
    EX_GOAL,
    EX_SYMBOL,
    FORWARD,
    LEFT,
    MAX_DECISIONS,
    RIGHT,
    STAY,
    Hallway,
)
from unity_bridge.steps import ActionBatch

ACTIONS = (STAY, FORWARD, BACK, LEFT, RIGHT)
GOALS = (CIRCLE_GOAL, EX_GOAL)


AGENTS = 64


def to_the_left(steps: Steps) -> np.ndarray:
    """The thing that the first ray of each agent hits. Shape [N]."""
    things: np.ndarray = steps[BEHAVIOR].observations[0][:, :5].argmax(axis=1)
    return things


def everybody(action: int) -> dict[str, ActionBatch]:
    return {BEHAVIOR: choices(np.full(AGENTS, action))}


def test_every_way_to_the_goals_forgets_the_symbol() -> None:
    """Everybody does the same at random; off the first cell, equal goals look equal whatever the symbol is."""
    academy, length, rng = Academy(), 9, np.random.default_rng(9)
    academy.parameters.set(FloatParameter("hallway_length", length))
    scene = Hallway(AGENTS, academy)
    symbols = to_the_left(scene.reset(length))
    goals = to_the_left([scene.step(everybody(FORWARD)) for _ in range(length)][-1])
    worlds = set(zip(symbols.tolist(), goals.tolist(), strict=True))
    assert worlds == set(itertools.product((CIRCLE_SYMBOL, EX_SYMBOL), GOALS))
    cell = length
    for _ in range(MAX_DECISIONS - length - 1):
        action = int(rng.choice(ACTIONS if cell < length else (STAY, FORWARD, BACK)))
        cell = min(max(cell + {FORWARD: 1, BACK: -1}.get(action, 0), 0), length)
        seen = scene.step(everybody(action))[BEHAVIOR].observations[0]
        for goal in GOALS:
            assert len(np.unique(seen[goals == goal], axis=0)) == (2 if cell == 0 else 1)
