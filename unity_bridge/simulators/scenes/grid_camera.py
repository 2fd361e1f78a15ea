"""The camera of ``sim:gridworld``, for many boards at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from unity_bridge.steps import Observation, as_floats

PictureFormat = Literal["png", "float"]
"""The formats that pictures travel in: bytes that are compressed, or plain floats."""

SIDE = 5
"""Cells along each side of a board."""
CELL = 16
"""Pixels along each side of a cell."""
WALL = 2
"""Pixels."""
PIXELS = SIDE * CELL + 2 * WALL

# Bright things on a dark floor: a network sees little where nothing is.
_FLOOR = (20, 22, 28)
_WALL = (90, 94, 104)
_AGENT = (70, 130, 255)
PLUS_COLOR = (60, 210, 90)
EX_COLOR = (240, 70, 60)


class BoardCamera:
    """Looks at boards from above: 84 by 84 pixels of RGB, row 0 at the top."""

    def __init__(self, pictures: PictureFormat) -> None:
        to_format = as_floats if pictures == "float" else np.asarray
        self._board: Observation = to_format(_empty_board())
        self._sprites: list[Observation] = [to_format(sprite) for sprite in _sprites()]

    def observe(self, cells: Sequence[NDArray[np.int64]]) -> Observation:
        """Draws pictures of N boards.

        Args:
            cells: of the plus, of the ex and of the agent, which hides what it stands on; counted row by row
                from 0. Each [N].

        Returns:
            Shape [N, 3, 84, 84].
        """
        count = len(cells[0])
        pictures: NDArray[Any] = np.repeat(self._board[None], count, axis=0)
        floor = pictures[:, :, WALL:-WALL, WALL:-WALL].reshape(count, 3, SIDE, CELL, SIDE, CELL)
        boards = np.arange(count)
        for places, sprite in zip(cells, self._sprites, strict=True):
            rows, columns = np.divmod(places, SIDE)
            floor[boards, :, rows, :, columns] = sprite
        return pictures


def _empty_board() -> NDArray[np.uint8]:
    board = np.empty((3, PIXELS, PIXELS), np.uint8)
    board[:] = np.array(_WALL, np.uint8)[:, None, None]
    board[:, WALL:-WALL, WALL:-WALL] = np.array(_FLOOR, np.uint8)[:, None, None]
    return board


def _sprites() -> list[NDArray[np.uint8]]:
    """A plus, an ex and an agent on a piece of floor, each [3, CELL, CELL]."""
    row, column = np.indices((CELL, CELL)) - (CELL - 1) / 2
    inside = np.maximum(np.abs(row), np.abs(column)) < CELL / 2 - 1
    plus = inside & (np.minimum(np.abs(row), np.abs(column)) < 2.5)
    ex = inside & (np.abs(np.abs(row) - np.abs(column)) < 2.5)
    return [_painted(shape, color) for shape, color in ((plus, PLUS_COLOR), (ex, EX_COLOR), (inside, _AGENT))]


def _painted(shape: NDArray[np.bool_], color: tuple[int, int, int]) -> NDArray[np.uint8]:
    channels = [np.where(shape, *levels) for levels in zip(color, _FLOOR, strict=True)]
    return np.stack(channels).astype(np.uint8)
