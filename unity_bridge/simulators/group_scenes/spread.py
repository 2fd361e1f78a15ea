"""``sim:spread``: a team covers as many landmarks without bumping into each other (simple_spread)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from unity_bridge.arrays import Floats
from unity_bridge.simulators.academy import Academy
from unity_bridge.simulators.group_scenes.assignment import assign
from unity_bridge.simulators.group_scenes.groups import Groups, StepResults, others_of
from unity_bridge.simulators.group_scenes.spread_world import (
    AGENT_RADIUS,
    DAMPING,
    FORCE,
    LANDMARK_RADIUS,
    PUSHES,
    STEP_S,
    SpreadWorld,
    lengths,
)
from unity_bridge.simulators.rendering.drawing import Canvas, Color
from unity_bridge.simulators.scene import Steps, choices, vector_sensor
from unity_bridge.simulators.scenes.array_scene import ArrayScene
from unity_bridge.specs import ActionSpec, BehaviorSpec
from unity_bridge.steps import ActionBatch

BEHAVIOR = "Spread?team=0"
LOCAL_RATIO = 0.5
"""The share of an agent's reward that is about itself."""
EXPERT_RETURN = -7.6
"""The mean return of the expert, for each of three agents in 25 steps."""

_SCALE = 75
"""Pixels for a unit of length."""
_SIDE = 240
_COLORS: tuple[Color, ...] = (
    (70, 130, 255), (230, 120, 60), (90, 170, 90), (180, 110, 200), (200, 170, 60), (90, 180, 190),
)  # fmt: skip


class Spread(ArrayScene):
    """C copies of N agents and N landmarks in a plane: simple_spread of mpe2 1.1.1, equal to it except for rounding.

    An episode begins with agents and landmarks anywhere in (−1, 1)², at rest, and is cut off after ``steps``
    decisions; it never ends by itself. Each copy is a group. Physics: ``spread_world``.

    Observation (6 N): own velocity (2); own position (2); relative positions of the landmarks (2 N), then of the
    other agents in the order of their ids (2 N − 2); and 2 zeros for each other agent, without meaning. Action: one
    branch of 5 (none, left, right, down, up); or, if ``continuous``, 5 numbers, [−1, 1] for mpe2's [0, 1]: the
    second to fifth push to the left, right, down, up. Own reward: half of minus the sum over landmarks of the
    distance to the nearest agent, minus a half for each other agent that it overlaps. The group gets nothing.

    The expert (which deals out landmarks again in every step, and steers) returns −7.6 for three agents and 25
    steps; standing still −24.0, moving at random −26.3. Below −8.5, the task is not solved.

    Statistics, at the end of episodes, means over the copies: ``Spread/D``, the sum over steps and landmarks of
    the distance to the nearest agent; ``Spread/C``, the sum over steps of overlapping pairs; ``Spread/P``, the
    mean return of an agent, −D/2 − C/N; and ``Spread/S``, the same in the convention of OpenAI's environment
    and of the MAPPO paper, a single number for the team: −N·D − 2·C − N·steps.
    """

    frame_s = STEP_S
    has_groups = True
    cell = (_SIDE, _SIDE)
    columns = 2
    shown = 4

    def __init__(
        self,
        copies: int = 16,
        agents_per_copy: int = 3,
        steps: int = 25,
        continuous: bool = False,
        academy: Academy | None = None,
    ) -> None:
        super().__init__(copies, academy)
        self._groups = Groups(copies, agents_per_copy, 0 if continuous else len(PUSHES))
        self._steps = steps
        self._continuous = continuous
        self._world = SpreadWorld(copies, agents_per_copy)
        self._step = 0
        self._uncovered = np.zeros(copies)
        """The sums D and C of the episodes at hand. Shape [C]."""
        self._collisions = np.zeros(copies)
        self._others = others_of(agents_per_copy)

    @property
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        _, agents = self._groups.shape
        sensor = vector_sensor("observation", 6 * agents)
        actions = ActionSpec(len(PUSHES)) if self._continuous else ActionSpec(0, (len(PUSHES),))
        return {BEHAVIOR: BehaviorSpec((sensor,), actions)}

    def _begin(self) -> Steps:
        self._start()
        return {
            BEHAVIOR: self._groups.decision_batch(StepResults(self._observe(), np.zeros(self._groups.shape)))
        }

    def step(self, actions: Mapping[str, ActionBatch]) -> Steps:
        self._world.advance(self._pushes(actions[BEHAVIOR]))
        self._step += 1
        results = StepResults(self._observe(), self._rewards())
        if self._step < self._steps:
            return {BEHAVIOR: self._groups.decision_batch(results)}
        self._report()
        self._start()
        all_agents = np.ones(self._groups.shape, np.bool_)
        restarted = StepResults(self._observe(), np.zeros(self._groups.shape))
        return {
            BEHAVIOR: self._groups.step_batch(
                results, restarted, terminated=~all_agents, truncated=all_agents, waiting=all_agents
            )
        }

    def expert(self) -> Mapping[str, ActionBatch]:
        """Assigns the landmarks, and pushes so that each agent comes nearest to its own after coasting a little."""
        ways = self._world.to_landmarks()
        mine = assign(lengths(ways))
        way = np.take_along_axis(ways, mine[..., None, None], axis=2)
        coasting = 1 + (1 - DAMPING)
        speeds = (1 - DAMPING) * self._world.velocities[:, :, None] + STEP_S * PUSHES
        ahead = STEP_S * (self._world.velocities[:, :, None] + coasting * speeds)
        chosen = lengths(way - ahead).argmin(axis=2).ravel()
        if not self._continuous:
            return {BEHAVIOR: choices(chosen)}
        continuous = np.where(np.arange(len(PUSHES)) == chosen[:, None], 1, -1).astype(np.float32)
        return {BEHAVIOR: ActionBatch(continuous, np.zeros((len(continuous), 0), np.int32))}

    def _start(self) -> None:
        copies, agents = self._groups.shape
        places = self._rng.uniform(-1, 1, (copies, 2, agents, 2))
        self._world.place(places[:, 0], places[:, 1])
        self._step = 0
        self._uncovered[:] = 0
        self._collisions[:] = 0

    def _pushes(self, actions: ActionBatch) -> Floats:
        if not self._continuous:
            return PUSHES[actions.discrete[:, 0]].reshape(*self._groups.shape, 2)
        given = (np.clip(actions.continuous.astype(np.float64), -1, 1) + 1) / 2
        pushes: Floats = FORCE * (given[:, [2, 4]] - given[:, [1, 3]])
        return pushes.reshape(*self._groups.shape, 2)

    def _rewards(self) -> Floats:
        self._uncovered += self._world.uncovered()
        self._collisions += self._world.colliding().sum(axis=1) / 2
        return rewards(self._world)

    def _report(self) -> None:
        _, agents = self._groups.shape
        d, c = float(self._uncovered.mean()), float(self._collisions.mean())
        self._academy.add_statistic("Spread/D", d)
        self._academy.add_statistic("Spread/C", c)
        self._academy.add_statistic("Spread/P", -(1 - LOCAL_RATIO) * d - LOCAL_RATIO * 2 * c / agents)
        self._academy.add_statistic("Spread/S", -agents * d - 2 * c - agents * self._steps)

    def _observe(self) -> NDArray[np.float32]:
        """The observations of all agents. Shape [C, N, 6 N]."""
        (copies, agents), world = self._groups.shape, self._world
        others = world.differences[:, np.arange(agents)[:, None], self._others]
        seen = np.zeros((copies, agents, 6 * agents), np.float32)
        seen[:, :, 0:2] = world.velocities
        seen[:, :, 2:4] = world.positions
        seen[:, :, 4 : 4 + 2 * agents] = world.to_landmarks().reshape(copies, agents, -1)
        seen[:, :, 4 + 2 * agents : 2 + 4 * agents] = others.reshape(copies, agents, -1)
        return seen

    def _draw(self, canvas: Canvas, copy: int, left: int, top: int) -> None:
        """A copy from above: discs are agents, of the same colors everywhere; dots are landmarks."""

        def seen(point: Floats) -> tuple[float, float]:
            return left + _SIDE / 2 + _SCALE * float(point[0]), top + _SIDE / 2 - _SCALE * float(point[1])

        canvas.rectangle((left, top), (left + _SIDE - 1, top + _SIDE - 1))
        for agent, place in enumerate(self._world.positions[copy]):
            canvas.circle(seen(place), _SCALE * AGENT_RADIUS, fill=_COLORS[agent % len(_COLORS)])
            self._mark(canvas, copy * self._groups.shape[1] + agent, seen(place), _SCALE * AGENT_RADIUS + 4)
        for landmark in self._world.landmarks[copy]:
            canvas.circle(seen(landmark), _SCALE * LANDMARK_RADIUS + 1, fill=(40, 40, 40))


def rewards(world: SpreadWorld) -> Floats:
    """(1 − ρ)·G + ρ·L_i with ρ = 0.5: G is minus the uncovered distance, L_i minus agent i's overlaps. Shape [C, N]."""
    shared = -world.uncovered()[:, None]
    earned: Floats = (1 - LOCAL_RATIO) * shared - LOCAL_RATIO * world.colliding()
    return earned
