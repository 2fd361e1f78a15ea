"""The base of bundled scenes: many copies side by side as arrays, with one source of chance and one picture."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from unity_bridge.simulators.academy import Academy
from unity_bridge.simulators.rendering.drawing import Canvas, Point, grid_cells
from unity_bridge.simulators.scene import Steps

LARGEST = (800, 420)
"""Limits of the width and height, in pixels, to which the picture of a single copy is magnified."""


class ArrayScene(ABC):
    """A scene of C copies: its seed, its academy, and the picture of some of the copies."""

    cell: ClassVar[tuple[int, int]]
    """Pixels of a copy in the picture: width and height."""

    columns: ClassVar[int] = 4
    """Copies beside each other in the picture."""

    shown: ClassVar[int] = 8
    """Limit of the copies in the picture."""

    has_groups: ClassVar[bool] = False
    """Whether a copy has several agents, with ids of their own; otherwise an agent's id is its copy's number."""

    def __init__(self, copies: int, academy: Academy | None = None) -> None:
        self._copies = copies
        self._academy = academy or Academy()
        self._rng = np.random.default_rng()
        self.marked: int | None = None
        """The id of the agent that pictures mark."""

    @property
    def copies(self) -> int:
        """C."""
        return self._copies

    @abstractmethod
    def _begin(self) -> Steps:
        """Starts every agent's episode again, and asks for the first actions."""

    @abstractmethod
    def _draw(self, canvas: Canvas, copy: int, left: int, top: int) -> None:
        """Draws a copy into its cell of the picture."""

    def reset(self, seed: int | None = None) -> Steps:
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        return self._begin()

    def render(self) -> NDArray[np.uint8]:
        corners, width, height = grid_cells(min(self._copies, self.shown), self.cell, self.columns)
        canvas = Canvas(width, height, scale=self._scale())
        for copy, (left, top) in enumerate(corners):
            self._draw(canvas, copy, left, top)
            if copy == self.marked and self._copies > 1 and not self.has_groups:
                right, bottom = left + self.cell[0] - 2, top + self.cell[1] - 2
                canvas.frame((left + 1, top + 1), (right, bottom))
        return canvas.pixels()

    def _mark(self, canvas: Canvas, agent: int, center: Point, radius: float) -> None:
        """Draws a ring around an agent of a group if it is the marked one."""
        if agent == self.marked:
            canvas.ring(center, radius)

    def _scale(self) -> int:
        """The magnification of the picture: a single copy fills ``LARGEST``, several keep their size."""
        if self._copies > 1:
            return 1
        return max(1, min(largest // side for largest, side in zip(LARGEST, self.cell, strict=True)))

    def close(self) -> None:
        """A scene of arrays holds nothing that must be freed."""
        return
