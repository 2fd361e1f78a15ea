"""The expert of ``sim:pushblock``."""

from __future__ import annotations

import numpy as np

from unity_bridge.arrays import Bools, Integers
from unity_bridge.simulators.group_scenes.push_block_world import (
    DOWN,
    HEAVY,
    LANES,
    LEFT,
    RIGHT,
    UP,
    PushBlockWorld,
)


def expert_actions(world: PushBlockWorld) -> Integers:
    """The expert's actions: while the gate is closed, the nearest agent goes to the trap; the others push.

    Shape [C, A].
    """
    volunteers = _volunteers(world)
    workers = world.alive & ~volunteers
    blocks = _assign_blocks(world, workers)
    columns = np.take_along_axis(world.blocks, blocks, axis=1)
    actions = _go_behind(world, LANES[blocks], columns)
    return np.where(volunteers, _go_to_the_trap(world), actions)


def _volunteers(world: PushBlockWorld) -> Bools:
    far = np.abs(world.places - world.traps[:, None]).sum(axis=2) + 1000 * ~world.alive
    nearest = far.argmin(axis=1)[:, None] == np.arange(far.shape[1])
    chosen: Bools = nearest & world.alive & ~world.open[:, None]
    return chosen


def _assign_blocks(world: PushBlockWorld, workers: Bools) -> Integers:
    """The block of each agent: two to the heavy one first, then one to each light one, and over again. Shape [C, A]."""
    rank = np.cumsum(workers, axis=1) - 1
    # The blocks in the order in which they are dealt out; what is delivered comes last.
    order = np.argsort(np.where(world.delivered, 9, -world.weights), axis=1, kind="stable")
    left = np.maximum(np.count_nonzero(~world.delivered, axis=1), 1)[:, None]
    heavy = (~world.delivered & (world.weights == HEAVY)).any(axis=1)[:, None]
    turn = np.where(heavy, np.maximum(rank, 1) - 1, rank) % left
    return np.take_along_axis(order, turn.clip(min=0), axis=1)


def _go_behind(world: PushBlockWorld, lanes: Integers, columns: Integers) -> Integers:
    """Returns the actions that lead around obstacles to the back of a block and push it. Shape [C, A]."""
    rows, here = world.places[..., 0], world.places[..., 1]
    upright = np.where(lanes < rows, UP, DOWN)
    back = np.where(_is_before_a_block(world), DOWN, LEFT)
    aside = np.where((here < columns) & _is_free(world, lanes), upright, back)
    return np.where((rows == lanes) & (here < columns), RIGHT, aside)


def _is_free(world: PushBlockWorld, lanes: Integers) -> Bools:
    """Whether an agent can go straight up or down to a lane. Shape [C, A]."""
    rows, here = world.places[..., 0], world.places[..., 1]
    low, high = np.minimum(rows, lanes)[..., None], np.maximum(rows, lanes)[..., None]
    crossed = (low <= LANES) & (high >= LANES) & (world.blocks[:, None] == here[..., None])
    trap_row, trap_column = world.traps[:, :1], world.traps[:, 1:]
    trapped = (low[..., 0] <= trap_row) & (trap_row <= high[..., 0]) & (here == trap_column)
    free: Bools = ~(crossed & ~world.delivered[:, None]).any(axis=2) & ~(trapped & ~world.open[:, None])
    return free


def _is_before_a_block(world: PushBlockWorld) -> Bools:
    """Whether an agent stands where its lane's block wants to go, and cannot go back. Shape [C, A]."""
    in_lane = world.places[..., None, 0] == LANES
    blocked = in_lane & (world.places[..., None, 1] == world.blocks[:, None] + 1)
    stuck: Bools = (blocked & ~world.delivered[:, None]).any(axis=2)
    return stuck


def _go_to_the_trap(world: PushBlockWorld) -> Integers:
    """The actions that lead to the trap: along the first column, then along the trap's row. Shape [C, A]."""
    down = world.traps[:, None, 0] - world.places[..., 0]
    back = np.where(world.places[..., 1] > 0, LEFT, np.where(down < 0, UP, DOWN))
    onward = np.where(world.places[..., 1] < world.traps[:, None, 1], RIGHT, LEFT)
    return np.where(down == 0, onward, back)
