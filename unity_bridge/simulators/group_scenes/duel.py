"""``sim:duel``: two sides return a ball until one misses it; for self-play."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from unity_bridge.arrays import Bools, Floats, Integers
from unity_bridge.simulators.academy import Academy
from unity_bridge.simulators.group_scenes.duel_court import (
    HALF_PADDLE,
    PADDLE_STEP,
    SERVE_SPEED,
    SPIN,
    DuelCourt,
    fold,
)
from unity_bridge.simulators.group_scenes.groups import Groups, StepResults, own_first
from unity_bridge.simulators.rendering.drawing import Canvas, Color
from unity_bridge.simulators.scene import Steps, choices, vector_sensor
from unity_bridge.simulators.scenes.array_scene import ArrayScene
from unity_bridge.specs import ActionSpec, BehaviorSpec
from unity_bridge.steps import ActionBatch, StepBatch

SIDES = ("Duel?team=0", "Duel?team=1")
STAY, DOWN, UP = range(3)
MAX_STEPS = 300

_MOVES: Floats = np.array([0.0, -1.0, 1.0])
_MIRROR = np.array([1, -1])
"""Factors along x: side 1 observes the court as if it were side 0."""
_AIMS: Floats = np.array([0.0, -0.7, 0.7])
"""Places on the paddle where the expert considers hitting the ball."""
_WIDTH, _HEIGHT = 260, 200
_SCALE = 90
_COLORS: tuple[Color, Color] = ((70, 130, 255), (230, 120, 60))


class Duel(ArrayScene):
    """C courts on each of which two sides of P paddles play for one ball. Physics: ``duel_court``.

    The ball is served from the middle to either side. The side that misses it loses: the episode of both terminates
    with −1 for one and +1 for the other; each return makes the ball faster, so hardly ever are ``steps`` (300)
    decisions over before, which is an interruption, and a draw (0). There are no other rewards. Alone on its side
    an agent earns them itself, in a team (``agents_per_copy`` P > 1) its group does. Each side of a court is a group.

    Observation (4 + 4 P): the ball's position (2) and velocity (2, / 0.08); then two numbers for each paddle, the
    distance from the left line (x + 1) and the height. The agent's own paddle comes first, then its teammates' in the
    order of their ids, then the opponents'. Side 1 gets a mirrored observation, so both play to the right. Action:
    one branch of 3: stay, down, up; or, if ``continuous``, one number, the speed upwards, from −1 to 1.

    The expert goes where the ball will come, and aims away from the others. Alone on its side, it beats players that
    move at random or stand still, and in 99 of 100 duels one that only follows the ball's height.

    Statistics, at the end of each episode: ``Duel/Steps`` and ``Duel/Draw`` (0 or 1).
    """

    frame_s = 0.05
    has_groups = True
    cell = (_WIDTH, _HEIGHT)
    columns = 2
    shown = 4

    def __init__(
        self,
        copies: int = 16,
        agents_per_copy: int = 1,
        steps: int = MAX_STEPS,
        continuous: bool = False,
        academy: Academy | None = None,
    ) -> None:
        super().__init__(copies, academy)
        allowed = 0 if continuous else len(_MOVES)
        self._sides = [Groups(copies, agents_per_copy, allowed, side=side) for side in (0, 1)]
        self._shape = copies, agents_per_copy
        self._max_steps = steps
        self._continuous = continuous
        self._court = DuelCourt(copies, agents_per_copy)
        self._steps = np.zeros(copies, np.int64)
        self._team = own_first(agents_per_copy)

    @property
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        sensor = vector_sensor("observation", 4 + 4 * self._shape[1])
        actions = ActionSpec(1) if self._continuous else ActionSpec(0, (len(_MOVES),))
        return dict.fromkeys(SIDES, BehaviorSpec((sensor,), actions))

    def _begin(self) -> Steps:
        self._start(np.ones(self._shape[0], np.bool_))
        return {
            behavior: self._sides[side].decision_batch(self._results(side, np.zeros(self._shape[0])))
            for side, behavior in enumerate(SIDES)
        }

    def step(self, actions: Mapping[str, ActionBatch]) -> Steps:
        moves = [self._moves(actions[behavior]).reshape(self._shape) for behavior in SIDES]
        won = self._court.advance(np.stack(moves, axis=1))
        self._steps += 1
        lost_or_won = won != 0
        draw = ~lost_or_won & (self._steps >= self._max_steps)
        over = lost_or_won | draw
        results = [self._results(side, won * _MIRROR[side]) for side in (0, 1)]
        if not over.any():
            return {SIDES[side]: self._sides[side].decision_batch(results[side]) for side in (0, 1)}
        self._report(draw[over], self._steps[over])
        self._start(over)
        return {SIDES[side]: self._end(side, results[side], lost_or_won, draw) for side in (0, 1)}

    def expert(self) -> Mapping[str, ActionBatch]:
        return {
            behavior: self._actions(expert_moves(self._court, side)) for side, behavior in enumerate(SIDES)
        }

    def _moves(self, batch: ActionBatch) -> Floats:
        if self._continuous:
            return np.clip(batch.continuous[:, 0].astype(np.float64), -1, 1)
        return _MOVES[batch.discrete[:, 0]]

    def _actions(self, moves: Floats) -> ActionBatch:
        if not self._continuous:
            return choices(np.where(np.abs(moves) < 0.5, STAY, np.where(moves > 0, UP, DOWN)).ravel())
        continuous = moves.reshape(-1, 1).astype(np.float32)
        return ActionBatch(continuous, np.zeros((len(continuous), 0), np.int32))

    def _start(self, which: Bools) -> None:
        self._court.serve(which, self._rng)
        self._steps[which] = 0

    def _report(self, draws: Bools, steps: Integers) -> None:
        for draw, length in zip(draws.tolist(), steps.tolist(), strict=True):
            self._academy.add_statistic("Duel/Draw", draw)
            self._academy.add_statistic("Duel/Steps", length)

    def _results(self, side: int, scores: Floats | Integers) -> StepResults:
        earned = scores[:, None].repeat(self._shape[1], axis=1).astype(np.float64)
        nothing = np.zeros(self._shape)
        if self._shape[1] == 1:
            return StepResults(self._observe(side), earned)
        return StepResults(self._observe(side), nothing, earned)

    def _end(self, side: int, results: StepResults, terminated: Bools, truncated: Bools) -> StepBatch:
        paddles = self._shape[1]
        return self._sides[side].step_batch(
            results,
            self._results(side, np.zeros(self._shape[0])),
            terminated=terminated[:, None].repeat(paddles, axis=1),
            truncated=truncated[:, None].repeat(paddles, axis=1),
            waiting=np.ones(self._shape, np.bool_),
        )

    def _observe(self, side: int) -> NDArray[np.float32]:
        """The observations of a side. Shape [C, P, 4 + 4 P]."""
        paddles, court, mirror = self._shape[1], self._court, _MIRROR[side]
        seen = np.empty((*self._shape, 4 + 4 * paddles), np.float32)
        seen[..., 0] = mirror * court.ball[:, :1]
        seen[..., 1] = court.ball[:, 1:]
        seen[..., 2] = mirror * court.speed[:, :1] / SERVE_SPEED
        seen[..., 3] = court.speed[:, 1:] / SERVE_SPEED
        own, others = 4 + 2 * paddles, slice(4 + 2 * paddles, None)
        seen[..., 4:own:2] = 1 + court.columns[0, self._team]
        seen[..., 5:own:2] = court.paddles[:, side][:, self._team]
        seen[..., others][..., ::2] = 1 + court.columns[1]
        seen[..., others][..., 1::2] = court.paddles[:, 1 - side, None]
        return seen

    def _draw(self, canvas: Canvas, copy: int, left: int, top: int) -> None:
        """A court: side 0 is blue and on the left, side 1 orange."""
        x, y = left + _WIDTH // 2, top + _HEIGHT // 2
        canvas.rectangle((x - 1.3 * _SCALE, y - _SCALE), (x + 1.3 * _SCALE, y + _SCALE), fill=(255, 255, 255))
        canvas.line((x, y - _SCALE), (x, y + _SCALE), color=(210, 210, 210), width=1)
        for side in (0, 1):
            line = x + (2 * side - 1) * 1.2 * _SCALE
            canvas.line((line, y - _SCALE), (line, y + _SCALE), color=(210, 210, 210), width=1)
            first = (side * self._copies + copy) * self._shape[1]
            columns, paddles = self._court.columns[side], self._court.paddles[copy, side]
            for agent, (column, height) in enumerate(zip(columns, paddles, strict=True), first):
                at, middle = x + 1.2 * _SCALE * float(column), y - _SCALE * float(height)
                half = HALF_PADDLE * _SCALE
                canvas.rectangle((at - 3, middle - half), (at + 3, middle + half), fill=_COLORS[side])
                self._mark(canvas, agent, (at, middle), half + 4)
        ball_x, ball_y = self._court.ball[copy].tolist()
        canvas.circle((x + 1.2 * _SCALE * ball_x, y - _SCALE * ball_y), 6, fill=(60, 64, 72))


def expert_moves(court: DuelCourt, side: int) -> Floats:
    """The expert's moves: to where the ball will come, to hit it away from the others; else to the middle.

    Shape [C, P].
    """
    ways = court.columns[side] - court.ball[:, :1]
    steps = ways / court.speed[:, :1]
    comes = (np.sign(court.speed[:, :1]) == -_MIRROR[side]) & (steps >= 0)
    height, _ = fold(court.ball[:, 1:] + court.speed[:, 1:] * steps)
    far = 2 * abs(float(court.columns[side, 0]))
    lands, _ = fold(height[..., None] + SPIN * far * _AIMS)
    places = (height[..., None] - HALF_PADDLE * _AIMS).clip(HALF_PADDLE - 1, 1 - HALF_PADDLE)
    room = np.abs(lands[..., None] - court.paddles[:, 1 - side, None, None]).min(axis=3)
    here = court.paddles[:, side]
    late = np.abs(places - here[..., None]) - PADDLE_STEP * np.abs(steps[..., None])
    best = (room - 10 * late.clip(min=0)).argmax(axis=2)
    wanted = np.take_along_axis(places, best[..., None], axis=2)[..., 0]
    target = np.where(comes, wanted, 0.0)
    moves: Floats = np.clip((target - here) / PADDLE_STEP, -1, 1)
    return moves
