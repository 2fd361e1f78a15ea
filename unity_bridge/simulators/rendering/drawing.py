"""Pictures of scenes, drawn with Pillow, which is loaded only when a scene is rendered."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Color = tuple[int, int, int]
Point = tuple[float, float]

PAPER: Color = (250, 250, 247)
INK: Color = (60, 64, 72)


class Canvas:
    """A white page to draw on; pixels() returns the picture. Coordinates and lengths are multiplied by the scale."""

    def __init__(self, width: int, height: int, scale: int = 1) -> None:
        from PIL import Image, ImageDraw  # a simulator that nobody watches starts without it

        self._scale = scale
        self._outline = (scale + 1) // 2
        self._image = Image.new("RGB", (scale * width, scale * height), PAPER)
        self._draw = ImageDraw.Draw(self._image)

    def polygon(self, points: Sequence[Point], fill: Color, outline: Color = INK) -> None:
        self._draw.polygon(
            [self._at(point) for point in points], fill=fill, outline=outline, width=self._outline
        )

    def rectangle(self, corner: Point, opposite: Point, fill: Color = PAPER, outline: Color = INK) -> None:
        corners = [self._at(corner), self._at(opposite)]
        self._draw.rectangle(corners, fill=fill, outline=outline, width=self._outline)

    def circle(self, center: Point, radius: float, fill: Color, outline: Color = INK) -> None:
        x, y = center
        corners = [self._at((x - radius, y - radius)), self._at((x + radius, y + radius))]
        self._draw.ellipse(corners, fill=fill, outline=outline, width=self._outline)

    def line(self, start: Point, end: Point, color: Color = INK, width: int = 2) -> None:
        self._draw.line([self._at(start), self._at(end)], fill=color, width=self._scale * width)

    def text(self, corner: Point, text: str) -> None:
        """Writes a line of text in Pillow's own font. corner: the left upper one."""
        self._draw.text(self._at(corner), text, fill=INK)

    def paste(self, pixels: NDArray[np.uint8], left: int, top: int) -> None:
        """Copies pixels in, each magnified by the scale. RGB, shape [height, width, 3]."""
        from PIL import Image

        magnified = pixels.repeat(self._scale, axis=0).repeat(self._scale, axis=1)
        self._image.paste(Image.fromarray(magnified), (self._scale * left, self._scale * top))

    def pixels(self) -> NDArray[np.uint8]:
        """RGB, shape [height, width, 3]."""
        return np.asarray(self._image, np.uint8)

    def _at(self, point: Point) -> Point:
        x, y = point
        return self._scale * x, self._scale * y


def grid_cells(count: int, cell: tuple[int, int], columns: int = 4) -> tuple[list[tuple[int, int]], int, int]:
    """The left upper corners of equal cells in rows, and the width and height of them all, in pixels."""
    width, height = cell
    columns = min(count, columns)
    corners = [(width * (i % columns), height * (i // columns)) for i in range(count)]
    return corners, width * columns, height * (-(-count // columns))
