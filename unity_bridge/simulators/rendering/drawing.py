"""Pictures of scenes, drawn with Pillow, which is loaded only when a scene is rendered."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Color = tuple[int, int, int]
Point = tuple[float, float]

PAPER: Color = (250, 250, 247)
INK: Color = (60, 64, 72)
MARK: Color = (220, 38, 127)
"""Of the agent that is watched; no scene uses it otherwise."""


_FINE = 3
"""Dots along a side of a pixel. Shapes are drawn in dots, whose mean is the pixel: edges are smooth."""
_CENTER = (_FINE - 1) / 2
_TEXT_HEIGHT = 10


class Canvas:
    """A white page to draw on; pixels() returns the picture. Coordinates and lengths are multiplied by the scale."""

    def __init__(self, width: int, height: int, scale: int = 1) -> None:
        from PIL import Image, ImageDraw  # a simulator that nobody watches starts without it

        self._scale = scale * _FINE
        self._outline = (scale + 1) // 2 * _FINE
        self._image = Image.new("RGB", (self._scale * width, self._scale * height), PAPER)
        self._draw = ImageDraw.Draw(self._image)

    def polygon(self, points: Sequence[Point], fill: Color, outline: Color = INK) -> None:
        corners = [self._at(point) for point in points]
        self._draw.polygon(corners, fill=fill)
        self._draw.line([*corners, *corners[:2]], fill=outline, width=self._outline, joint="curve")

    def rectangle(self, corner: Point, opposite: Point, fill: Color = PAPER, outline: Color = INK) -> None:
        self._draw.rectangle(self._box(corner, opposite), fill=fill, outline=outline, width=self._outline)

    def circle(self, center: Point, radius: float, fill: Color, outline: Color = INK) -> None:
        self._draw.ellipse(self._around(center, radius), fill=fill, outline=outline, width=self._outline)

    def ring(self, center: Point, radius: float) -> None:
        self._draw.ellipse(self._around(center, radius), outline=MARK, width=2 * self._scale)

    def frame(self, corner: Point, opposite: Point) -> None:
        self._draw.rectangle(self._box(corner, opposite), outline=MARK, width=2 * self._scale)

    def line(self, start: Point, end: Point, color: Color = INK, width: int = 2) -> None:
        dots = self._scale * width
        shift = _CENTER if dots % 2 else 2 * _CENTER  # so that both edges are those of pixels
        self._draw.line([self._at(start, shift), self._at(end, shift)], fill=color, width=dots)

    def text(self, corner: Point, text: str) -> None:
        """Writes a line of text in Pillow's own font. corner: the left upper one."""
        from PIL import ImageFont

        font = ImageFont.load_default(_TEXT_HEIGHT * self._scale)
        self._draw.text(self._at(corner), text, fill=INK, font=font)

    def paste(self, pixels: NDArray[np.uint8], left: int, top: int) -> None:
        """Copies pixels in, each magnified by the scale. RGB, shape [height, width, 3]."""
        from PIL import Image

        magnified = pixels.repeat(self._scale, axis=0).repeat(self._scale, axis=1)
        self._image.paste(Image.fromarray(magnified), (self._scale * left, self._scale * top))

    def pixels(self) -> NDArray[np.uint8]:
        """RGB, shape [height, width, 3]."""
        return np.asarray(self._image.reduce(_FINE), np.uint8)

    def _at(self, point: Point, shift: float = _CENTER) -> Point:
        """The dot in the middle of a point's pixel."""
        x, y = point
        return self._scale * x + shift, self._scale * y + shift

    def _box(self, corner: Point, opposite: Point) -> list[Point]:
        """From the first dot of one pixel to the last dot of the other."""
        return [self._at(corner, 0.0), self._at(opposite, 2 * _CENTER)]

    def _around(self, center: Point, radius: float) -> list[Point]:
        x, y = center
        return self._box((x - radius, y - radius), (x + radius, y + radius))


def grid_cells(count: int, cell: tuple[int, int], columns: int = 4) -> tuple[list[tuple[int, int]], int, int]:
    """The left upper corners of equal cells in rows, and the width and height of them all, in pixels."""
    width, height = cell
    columns = min(count, columns)
    corners = [(width * (i % columns), height * (i // columns)) for i in range(count)]
    return corners, width * columns, height * (-(-count // columns))
