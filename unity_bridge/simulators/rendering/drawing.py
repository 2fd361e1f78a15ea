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
    """A white page to draw on; pixels() returns the picture."""

    def __init__(self, width: int, height: int) -> None:
        from PIL import Image, ImageDraw  # a simulator that nobody watches starts without it

        self._image = Image.new("RGB", (width, height), PAPER)
        self._draw = ImageDraw.Draw(self._image)

    def polygon(self, points: Sequence[Point], fill: Color, outline: Color = INK) -> None:
        self._draw.polygon(list(points), fill=fill, outline=outline)

    def rectangle(self, corner: Point, opposite: Point, fill: Color = PAPER, outline: Color = INK) -> None:
        self._draw.rectangle([corner, opposite], fill=fill, outline=outline)

    def circle(self, center: Point, radius: float, fill: Color, outline: Color = INK) -> None:
        x, y = center
        self._draw.ellipse([(x - radius, y - radius), (x + radius, y + radius)], fill=fill, outline=outline)

    def line(self, start: Point, end: Point, color: Color = INK, width: int = 2) -> None:
        self._draw.line([start, end], fill=color, width=width)

    def text(self, corner: Point, text: str, color: Color = INK) -> None:
        """Writes a line of text in Pillow's own font. corner: the left upper one."""
        self._draw.text(corner, text, fill=color)

    def paste(self, pixels: NDArray[np.uint8], left: int, top: int) -> None:
        """Copies pixels in. RGB, shape [height, width, 3]."""
        from PIL import Image

        self._image.paste(Image.fromarray(pixels), (left, top))

    def pixels(self) -> NDArray[np.uint8]:
        """RGB, shape [height, width, 3]."""
        return np.asarray(self._image, np.uint8)


def grid_cells(count: int, cell: tuple[int, int], columns: int = 4) -> tuple[list[tuple[int, int]], int, int]:
    """The left upper corners of equal cells in rows, and the width and height of them all, in pixels."""
    width, height = cell
    columns = min(count, columns)
    corners = [(width * (i % columns), height * (i // columns)) for i in range(count)]
    return corners, width * columns, height * (-(-count // columns))
