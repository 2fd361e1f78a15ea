"""``sim:goal``: a goalkeeper and field players, two behaviors in one group, stop shots together."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from unity_bridge.arrays import Bools, Floats
from unity_bridge.simulators.academy import Academy
from unity_bridge.simulators.group_scenes.groups import own_first
from unity_bridge.simulators.rendering.drawing import Canvas
from unity_bridge.simulators.scene import Steps, choices, concatenate, step_batch, vector_sensor
from unity_bridge.simulators.scenes.array_scene import ArrayScene
from unity_bridge.specs import ActionSpec, BehaviorSpec
from unity_bridge.steps import ActionBatch, StepBatch

KEEPER, PLAYER = "Keeper?team=0", "Player?team=0"
STAY, DOWN, UP = range(3)

SPEED = 0.1
"""Speed of a ball along x, per step: from x = 1 to the goal line at x = −1."""
STEPS = round(2 / SPEED)
KEEPER_STEP, PLAYER_STEP = 0.06, 0.1
"""The farthest that each goes in a step."""
REACH = 0.15
"""Distance within which an agent stops a ball."""
SIGHT = -0.4
"""The x from which on the keeper sees a ball."""

_MOVES: Floats = np.array([0.0, -1.0, 1.0])
_SIDE = 180


class Goal(ArrayScene):
    """C copies of a goal with one keeper, P field players in front of it, and one shot after the other.

    A shot flies straight from x = 1 to a place anywhere on the goal line, x = −1, both y in (−0.9, 0.9). Half of the
    shots are high: they fly over players. The keeper moves along the line, each player along a column of its own, from
    x = 0.4 to −0.4. Who is within 0.15 of a ball when it passes stops it. Each shot is an episode of all agents of its
    copy, which terminates with 1 for the group if the shot was stopped, else with 0; there are no other rewards.

    The keeper sees a ball from x = −0.4 on, too late for most. But it sees its players, who see all from the start, and
    may go where it would have to: so players can tell, and keepers read it.

    Observation of the keeper (4 + P): its height, then a ball's place (2) and 1, or zeros while it sees none, and the
    players' heights. Its action: one number, how fast to go up (1) or down (−1). Observation of a player (6 + P): the
    ball's place (2), its speed along y / 0.1, whether it is high; the player's x; the heights of the keeper, of itself
    and of the other players. Its action: one branch of 3: stay, down, up.

    The expert, which knows where a ball will be, stops every shot; standing still a third, moving at random fewer.

    Statistics, at the end of each episode: ``Goal/Stopped`` (0 or 1).
    """

    frame_s = 0.05
    has_groups = True
    cell = (_SIDE, _SIDE)
    columns = 2
    shown = 4

    def __init__(self, copies: int = 16, agents_per_copy: int = 3, academy: Academy | None = None) -> None:
        """agents_per_copy: the keeper and the players, at least two together. Raises ValueError for fewer."""
        if agents_per_copy < 2:
            raise ValueError(
                f"agents_per_copy: expected a keeper and at least one player, got {agents_per_copy}"
            )
        super().__init__(copies, academy)
        players = agents_per_copy - 1
        self._shape = copies, players
        self._columns: Floats = np.linspace(0.4, -0.4, players, dtype=np.float64)
        self._keepers: Floats = np.zeros(copies)
        self._players: Floats = np.zeros((copies, players))
        self._balls: Floats = np.zeros((copies, 2))
        self._slopes: Floats = np.zeros(copies)
        """Speed of each ball along y, per step."""
        self._high: Bools = np.zeros(copies, np.bool_)
        self._own_first = own_first(players)

    @property
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        players = self._shape[1]
        return {
            KEEPER: BehaviorSpec((vector_sensor("observation", 4 + players),), ActionSpec(1)),
            PLAYER: BehaviorSpec((vector_sensor("observation", 6 + players),), ActionSpec(0, (len(_MOVES),))),
        }

    def _begin(self) -> Steps:
        self._shoot(np.ones(self._shape[0], np.bool_))
        return self._rows()

    def step(self, actions: Mapping[str, ActionBatch]) -> Steps:
        keeper = np.clip(actions[KEEPER].continuous[:, 0].astype(np.float64), -1, 1)
        players = _MOVES[actions[PLAYER].discrete[:, 0]].reshape(self._shape)
        self._keepers = np.clip(self._keepers + KEEPER_STEP * keeper, -1, 1)
        self._players = np.clip(self._players + PLAYER_STEP * players, -1, 1)
        stopped = self._fly()
        over = stopped | (self._balls[:, 0] <= -1 + SPEED / 2)
        if not over.any():
            return self._rows()
        for each in stopped[over].tolist():
            self._academy.add_statistic("Goal/Stopped", each)
        ended = self._rows(over, stopped.astype(np.float32))
        self._shoot(over)
        begun = self._rows()
        return {behavior: concatenate(ended[behavior], begun[behavior]) for behavior in begun}

    def expert(self) -> Mapping[str, ActionBatch]:
        """Everyone goes to where the ball will pass, or where it has: behind it there is nothing to do."""
        left = (self._balls[:, 0] + 1) / SPEED
        ways = self._balls[:, 1] + self._slopes * left - self._keepers
        continuous = np.clip(ways / KEEPER_STEP, -1, 1).astype(np.float32)[:, None]
        until = (self._balls[:, :1] - self._columns) / SPEED
        ways = self._balls[:, 1:] + self._slopes[:, None] * until - self._players
        moves = np.where(np.abs(ways) < PLAYER_STEP / 2, STAY, np.where(ways > 0, UP, DOWN))
        return {
            KEEPER: ActionBatch(continuous, np.zeros((len(continuous), 0), np.int32)),
            PLAYER: choices(moves.ravel()),
        }

    def _shoot(self, which: Bools) -> None:
        """A new shot, and everybody again in the middle."""
        count = int(np.count_nonzero(which))
        starts, ends = self._rng.uniform(-0.9, 0.9, (2, count))
        self._balls[which, 0] = 1.0
        self._balls[which, 1] = starts
        self._slopes[which] = (ends - starts) / STEPS
        self._high[which] = self._rng.random(count) < 0.5
        self._keepers[which] = 0.0
        self._players[which] = 0.0

    def _fly(self) -> Bools:
        """Moves all balls. Returns which of them were stopped. Shape [C]."""
        before = self._balls[:, :1].copy()
        self._balls[:, 0] -= SPEED
        self._balls[:, 1] += self._slopes
        passes = (before > self._columns + SPEED / 2) & (self._balls[:, :1] <= self._columns + SPEED / 2)
        near = np.abs(self._players - self._balls[:, 1:]) <= REACH
        blocked = (passes & near).any(axis=1) & ~self._high
        at_goal = self._balls[:, 0] <= -1 + SPEED / 2
        stopped: Bools = blocked | (at_goal & (np.abs(self._keepers - self._balls[:, 1]) <= REACH))
        return stopped

    def _rows(
        self, which: Bools | None = None, paid: NDArray[np.float32] | None = None
    ) -> dict[str, StepBatch]:
        """The rows of both behaviors: of copies that end, or of all, which wait for an action."""
        copies, players = self._shape
        chosen = np.arange(copies) if which is None else np.flatnonzero(which)
        earned = np.zeros(copies, np.float32) if paid is None else paid

        def batch(seen: NDArray[np.float32], agents: NDArray[np.int64], each: int, allowed: int) -> StepBatch:
            rows = len(chosen) * each
            return step_batch(
                [seen[chosen].reshape(rows, -1)],
                np.zeros(rows, np.float32),
                agent_ids=agents[chosen].ravel(),
                allowed_actions=np.ones((rows, allowed), np.bool_),
                terminated=None if which is None else np.ones(rows, np.bool_),
                group_ids=np.repeat(1 + chosen, each),
                group_rewards=np.repeat(earned[chosen], each),
            )

        keepers = np.arange(copies)
        field = copies + np.arange(copies * players).reshape(copies, players)
        return {
            KEEPER: batch(self._seen_by_keepers(), keepers, 1, 0),
            PLAYER: batch(self._seen_by_players(), field, players, len(_MOVES)),
        }

    def _seen_by_keepers(self) -> NDArray[np.float32]:
        """Shape [C, 4 + P]."""
        visible = (self._balls[:, :1] <= SIGHT + SPEED / 2).astype(np.float64)
        seen = [self._keepers[:, None], visible * self._balls, visible, self._players]
        return np.concatenate(seen, axis=1).astype(np.float32)

    def _seen_by_players(self) -> NDArray[np.float32]:
        """Shape [C, P, 6 + P]."""
        copies, players = self._shape
        common = [self._balls, self._slopes[:, None] / SPEED, self._high[:, None]]
        shared = np.concatenate(common, axis=1)[:, None].repeat(players, axis=1)
        column = np.broadcast_to(self._columns[:, None], (copies, players, 1))
        keeper = np.broadcast_to(self._keepers[:, None, None], (copies, players, 1))
        heights = self._players[:, self._own_first]
        return np.concatenate([shared, column, keeper, heights], axis=2).astype(np.float32)

    def _draw(self, canvas: Canvas, copy: int, left: int, top: int) -> None:
        """A goal from above: the keeper is blue, players are orange, a high ball is pale."""
        x, y, scale = left + _SIDE / 2, top + _SIDE / 2, 0.42 * _SIDE
        canvas.rectangle((x - 1.1 * scale, y - scale), (x + 1.1 * scale, y + scale), fill=(255, 255, 255))
        canvas.line((x - scale, y - scale), (x - scale, y + scale), color=(120, 120, 120), width=2)
        first = self._copies + copy * len(self._columns)
        bodies = [(copy, -1.0, self._keepers[copy], (70, 130, 255))]
        bodies += [
            (first + player, column, at, (230, 120, 60))
            for player, (column, at) in enumerate(zip(self._columns, self._players[copy], strict=True))
        ]
        for agent, column, at, color in bodies:
            middle, half = y - scale * float(at), scale * REACH
            canvas.rectangle(
                (x + scale * column - 3, middle - half), (x + scale * column + 3, middle + half), fill=color
            )
            self._mark(canvas, agent, (x + scale * column, middle), half + 4)
        ball_x, ball_y = self._balls[copy].tolist()
        fill = (180, 190, 205) if self._high[copy] else (60, 64, 72)
        canvas.circle((x + scale * ball_x, y - scale * ball_y), 5, fill=fill)
