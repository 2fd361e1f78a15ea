"""Captions of film frames: a strip of text below the picture."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from unity_bridge.simulators.rendering.drawing import PAPER, Canvas

LEAST_WIDTH = 200
"""Pixels that a line of a caption needs; narrower pictures are centered on a page of this width."""

_LINE_HEIGHT = 13
_MARGIN = 4


def caption_height(lines: int) -> int:
    """Returns the height of a caption with this number of lines, in pixels."""
    return lines * _LINE_HEIGHT + 2


def captioned(picture: NDArray[np.uint8], lines: Sequence[str]) -> NDArray[np.uint8]:
    """A picture with a caption below it. The same number of lines always gives the same size.

    Args:
        picture: RGB, shape [H, W, 3].
        lines: of text, from top to bottom; empty ones keep their place.
    """
    height, width = picture.shape[:2]
    strip = Canvas(max(width, LEAST_WIDTH), caption_height(len(lines)))
    for number, line in enumerate(lines):
        strip.text((_MARGIN, number * _LINE_HEIGHT), line)
    page = np.full((height, max(width, LEAST_WIDTH), 3), PAPER, np.uint8)
    left = max(0, LEAST_WIDTH - width) // 2
    page[:, left : left + width] = picture
    return np.concatenate([page, strip.pixels()])
