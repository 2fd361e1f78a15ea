"""The world of the learning tests: walk along a line to the end that is shown."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from learning.worlds import BEHAVIOR, World, behavior_spec, observe
from unity_bridge.simulators.rendering.drawing import Canvas
from unity_bridge.simulators.scene import Steps, choices, concatenate, step_batch
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import ActionBatch, StepBatch

STEP_REWARD = -0.01
END_REWARD = 1.06
SHOWN_STEPS = 2
"""With a goal that fades: it is seen as long as no more moves than this were made."""

Tell = Callable[[int, float], None]
"""Hears of every episode's end: the steps of all episodes so far, and the return of this one."""


class Walker:
    """An agent with a position on [−1, 1] for each of its actions, all of which it shall bring to the goal.

    The goal is −1 or 1; every number of every observation is the goal. A number moves its position by itself, a
    choice of two by −1 or 1, but no further than ``step_size``.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.start(1)

    def start(self, goal: int) -> None:
        self.goal = goal
        self.positions = np.zeros(self._world.continuous + self._world.discrete)
        self._moves = 0

    def move(self, action: ActionBatch, row: int) -> float:
        """Moves all positions.

        Returns:
            −0.01, or for the step with which it arrives 1.06 · position · goal, in the mean over positions.
        """
        choice = 2.0 * action.discrete[row] - 1.0
        moves = np.concatenate([action.continuous[row].astype(np.float64), choice])
        there = self.positions + np.clip(moves, -self._world.step_size, self._world.step_size)
        self.positions = np.clip(there, -1.0, 1.0)
        self._moves += len(moves)
        return float(END_REWARD * self.goal * self.positions.mean()) if self.arrived else STEP_REWARD

    @property
    def arrived(self) -> bool:
        """Whether every position is at an end."""
        return bool((np.abs(self.positions) >= 1.0).all())

    @property
    def shown(self) -> int:
        """The goal's observation."""
        return 0 if self._world.fades and self._moves > SHOWN_STEPS else self.goal


class Line:
    """One agent, whose episode ends when it arrives; every step before costs 0.01.

    So the best return is 1.02 with steps of 0.2. The goal is drawn for each episode. Each episode's agent has an id
    of its own, and no clock ends an episode.
    """

    frame_s = 0.1

    def __init__(
        self,
        world: World,
        tell: Tell = lambda steps, return_: None,
        *,
        behavior: str = BEHAVIOR,
        ids: Iterator[int] | None = None,
    ) -> None:
        """ids: from where the agents of all episodes have theirs; None counts from 1."""
        self._world = world
        self._tell = tell
        self._behavior = behavior
        self._ids = itertools.count(1) if ids is None else ids
        self._rng = np.random.default_rng()
        self._spec = behavior_spec(world)
        self._walker = Walker(world)
        self._steps = 0

    @property
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        return {self._behavior: self._spec}

    def reset(self, seed: int | None = None) -> Steps:
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self._start()
        return {self._behavior: self._row(0.0)}

    def step(self, actions: Mapping[str, ActionBatch]) -> Steps:
        reward = self._walker.move(actions[self._behavior], 0)
        self._steps += 1
        self._return += reward
        if not self._walker.arrived:
            return {self._behavior: self._row(reward)}
        self._tell(self._steps, self._return)
        terminal = self._row(reward, terminated=True)
        self._start()
        return {self._behavior: concatenate(terminal, self._row(0.0))}

    def expert(self) -> Mapping[str, ActionBatch]:
        """Goes to the goal at full speed, as numbers 1 or −1 say it: more than a step takes."""
        goal, choice = self._walker.goal, int(self._walker.goal > 0)
        if self._world.discrete and not self._world.continuous:
            return {self._behavior: choices(np.full((1, self._world.discrete), choice))}
        numbers = np.full((1, self._world.continuous), goal, np.float32)
        return {self._behavior: ActionBatch(numbers, np.full((1, self._world.discrete), choice, np.int32))}

    def close(self) -> None:
        pass

    def render(self) -> NDArray[np.uint8]:
        return draw([self._walker])

    def look(self) -> list[NDArray[np.float32]]:
        """The agent's observations. Shapes [1, *sensor shape]."""
        return observe(self._spec, [self._walker.shown])

    def _start(self) -> None:
        self._agent = next(self._ids)
        self._walker.start(int(self._rng.choice((-1, 1))))
        self._return = 0.0

    def _row(self, reward: float, *, terminated: bool = False) -> StepBatch:
        return step_batch(
            self.look(),
            np.array([reward], np.float32),
            agent_ids=np.array([self._agent], np.int64),
            allowed_actions=np.ones((1, self._spec.action_spec.mask_size), np.bool_),
            terminated=np.array([terminated]),
        )


def draw(walkers: list[Walker]) -> NDArray[np.uint8]:
    """A line for every position, with its goal in green."""
    tracks = [(walker.goal, float(position)) for walker in walkers for position in walker.positions]
    canvas = Canvas(220, 40 * len(tracks))
    for number, (goal, position) in enumerate(tracks):
        middle = 40 * number + 20
        canvas.rectangle((10, middle - 1), (210, middle + 1), fill=(200, 200, 200))
        canvas.circle((110 + 100 * goal, middle), 8, fill=(110, 180, 90))
        canvas.circle((110 + 100 * position, middle), 5, fill=(70, 110, 190))
    return canvas.pixels()
