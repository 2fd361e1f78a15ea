"""The physics of ``sim:duel``: a ball between two sides with paddles."""

from __future__ import annotations

import numpy as np

from unity_bridge.arrays import Bools, Floats, Integers

HALF_WIDTH = 1.0
"""Half of the court either way; the lines to defend are at x = ±1, walls at y = ±1."""
PADDLE_X = 0.9
DEPTH = 0.25
"""Distance between the paddles of a side."""
HALF_PADDLE = 0.2
PADDLE_STEP = 0.1
"""The farthest that a paddle goes in a step."""
SERVE_SPEED = 0.08
"""Along x, as all speeds of the ball, by step."""
SPIN = 1.2
"""How steep a ball leaves the very end of a paddle: its speed along y for each of it along x."""
FASTER = 1.1
"""Factor of the ball's speed at each return: so no rally lasts for ever."""


class DuelCourt:
    """C courts. Side 0 defends the left line with P paddles, side 1 the right one. Lengths are halves of a court.

    The ball flies straight and bounces off the walls above and below. A paddle returns it, a tenth faster, at an
    angle that the place on the paddle decides. A ball passes a paddle from behind.
    """

    def __init__(self, courts: int, paddles: int) -> None:
        self.paddles: Floats = np.zeros((courts, 2, paddles))
        """The y of each. Shape [C, 2, P]."""
        outwards = PADDLE_X - DEPTH * np.arange(paddles)
        self.columns: Floats = np.stack([-outwards, outwards])
        """The x of each, the same on all courts. Shape [2, P]."""
        self.ball: Floats = np.zeros((courts, 2))
        self.speed: Floats = np.zeros((courts, 2))

    def serve(self, which: Bools, rng: np.random.Generator) -> None:
        """A new ball in the middle, to either side, and paddles in the middle. Shape [C]."""
        count = int(np.count_nonzero(which))
        self.paddles[which] = 0
        self.ball[which, 0] = 0
        self.ball[which, 1] = rng.uniform(-0.5, 0.5, count)
        self.speed[which, 0] = SERVE_SPEED * rng.choice([-1, 1], count)
        self.speed[which, 1] = SERVE_SPEED * rng.uniform(-1, 1, count)

    def advance(self, moves: Floats) -> Integers:
        """One step.

        Args:
            moves: how each paddle moves, from −1, down, to 1, up. Shape [C, 2, P].

        Returns:
            Which side won the ball: 1 for side 0, −1 for side 1, 0 while it is in play. Shape [C].
        """
        self.paddles = np.clip(self.paddles + PADDLE_STEP * moves, -1 + HALF_PADDLE, 1 - HALF_PADDLE)
        share, offset = self._first_return()
        returned = share <= 1
        # A returned ball stays where it was hit until the next step.
        self.ball, self.speed = fly(self.ball, self.speed, np.minimum(share, 1))
        faster = -FASTER * self.speed[:, 0]
        self.speed[returned, 0] = faster[returned]
        self.speed[returned, 1] = (SPIN * offset * np.abs(faster))[returned]
        passed = ~returned & (np.abs(self.ball[:, 0]) >= HALF_WIDTH)
        won: Integers = np.where(passed, np.sign(self.ball[:, 0]), 0).astype(np.int64)
        return won

    def _first_return(self) -> tuple[Floats, Floats]:
        """When in this step (0 to 1; infinity for never) the ball meets a paddle, and where on it (−1 to 1)."""
        courts = len(self.ball)
        share = (self.columns - self.ball[:, None, None, 0]) / self.speed[:, None, None, 0]
        facing = np.array([-1, 1])[:, None] == np.sign(self.speed[:, None, None, 0])
        at, _ = fold(self.ball[:, None, None, 1] + self.speed[:, None, None, 1] * share)
        offset = (at - self.paddles) / HALF_PADDLE
        met = facing & (share >= 0) & (share <= 1) & (np.abs(offset) <= 1)
        first = np.where(met, share, np.inf).reshape(courts, -1)
        which = first.argmin(axis=1)
        everywhere = np.arange(courts)
        return first[everywhere, which], offset.reshape(courts, -1)[everywhere, which]


def fly(ball: Floats, speed: Floats, steps: Floats) -> tuple[Floats, Floats]:
    """The place of the ball after so many steps, and its speed there. Shapes [C, 2] and [C]."""
    y, turned = fold(ball[:, 1] + speed[:, 1] * steps)
    there = np.stack([ball[:, 0] + speed[:, 0] * steps, y], axis=1)
    return there, np.stack([speed[:, 0], np.where(turned, -speed[:, 1], speed[:, 1])], axis=1)


def fold(y: Floats) -> tuple[Floats, Bools]:
    """A height as the walls at ±1 reflect it, and whether the direction along y has changed."""
    lap = np.mod(y + 1, 4)
    turned = lap > 2
    return np.where(turned, 3 - lap, lap - 1), turned
