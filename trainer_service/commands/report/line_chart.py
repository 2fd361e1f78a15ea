"""Line charts as SVG, without a library: a pure function from numbers to an element."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

import numpy as np

from trainer_service.commands.report.elements import element
from trainer_service.running.metrics import short_number
from unity_bridge.arrays import Floats, Integers

WIDTH, HEIGHT = 400, 214
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 10, 8, 38
"""Margins, where numbers stand, and below them the unit of x."""

_HEADROOM = 0.05
"""The share of the range of y by which an axis goes beyond its lines: one along the frame is hard to see."""

COLORS = 8
"""Colours that the style sheet has, as classes s0, s1 …"""

_MAX_POINTS = 300
_MAX_MARKS = 60
"""Limit of the points of a line that are marked, so that they tell their value when pointed at."""

_LARGEST = 1e150


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """A line of a chart."""

    name: str
    x: Floats | Integers
    """Ascending. Shape [N], not empty."""

    y: Floats
    """Finite. Shape [N]."""

    spread: Floats | None = None
    """Half of the height of a band around the line. Shape [N]."""


def line_chart(lines: Sequence[Line], label: str, *, from_zero: bool = False) -> Element:
    """Draws a line chart over agent steps, with axes, and with a legend if there are several lines or a band.

    Args:
        lines: at least one.
        label: a description of the chart for screen readers.
        from_zero: whether the y axis begins at 0, where no value is below it.
    """
    frame = _Frame.around(lines, from_zero=from_zero)
    drawn = [part for i, line in enumerate(lines) for part in _line(frame, line, i % COLORS)]
    svg = element("svg", *_axes(frame), *drawn, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=label)
    legend = [
        element("span", element("i", class_=f"s{i % COLORS}"), line.name) for i, line in enumerate(lines)
    ]
    needed = len(lines) > 1 or lines[0].spread is not None
    return element("figure", svg, *([element("figcaption", *legend)] if needed else []))


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers from ``low`` to ``high``, steps of 1, 2 or 5 times a power of ten apart."""
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(step for step in (power, 2 * power, 5 * power, 10 * power) if step >= 0.999 * rough)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def thinned(x: Floats | Integers, y: Floats, most: int = _MAX_POINTS) -> Integers:
    """Indices of at most about ``most`` points that keep a line's look: the lowest and highest of each stretch."""
    if len(x) <= most:
        return np.arange(len(x))
    stretches = np.array_split(np.arange(len(x)), most // 2)
    kept = [own[index] for own in stretches for index in (y[own].argmin(), y[own].argmax())]
    return np.unique([0, *kept, len(x) - 1])


@dataclass(frozen=True, slots=True)
class _Frame:
    """The ranges of the axes."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float

    @classmethod
    def around(cls, lines: Sequence[Line], *, from_zero: bool = False) -> _Frame:
        xs = np.concatenate([line.x for line in lines]).astype(np.float64)
        edges = [edge for line in lines for edge in _edges(line)]
        ys = np.clip(np.concatenate(edges), -_LARGEST, _LARGEST)
        x_low = 0.0 if xs.min() < 0.5 * xs.max() else float(xs.min())
        y_low, y_high = float(ys.min()), float(ys.max())
        if from_zero and y_low >= 0.0:
            return cls(*_widened(x_low, float(xs.max())), 0.0, (1.0 + _HEADROOM) * y_high or 1.0)
        y_low, y_high = _widened(y_low, y_high)
        room = _HEADROOM * (y_high - y_low)
        return cls(*_widened(x_low, float(xs.max())), y_low - room, y_high + room)

    def x(self, value: float) -> float:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * (value - self.x_low) / (self.x_high - self.x_low)

    def y(self, value: float) -> float:
        share = (min(max(value, -_LARGEST), _LARGEST) - self.y_low) / (self.y_high - self.y_low)
        return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * share


def _widened(low: float, high: float) -> tuple[float, float]:
    """A range that is not empty, even in floating point."""
    if high - low > 1e-9 * max(abs(low), abs(high)):
        return low, high
    reach = max(0.1 * abs(low), 0.5)
    return low - reach, high + reach


def _edges(line: Line) -> list[Floats]:
    return [line.y] if line.spread is None else [line.y - line.spread, line.y + line.spread]


def _axes(frame: _Frame) -> list[Element]:
    bottom, right = HEIGHT - _BOTTOM, WIDTH - _RIGHT
    parts = []
    for value in ticks(frame.y_low, frame.y_high):
        y = f"{frame.y(value):.1f}"
        parts.append(element("line", class_="grid", x1=str(_LEFT), x2=str(right), y1=y, y2=y))
        parts.append(_label(short_number(value), _LEFT - 6, frame.y(value) + 4, "end"))
    for value in ticks(frame.x_low, frame.x_high):
        x = frame.x(value)
        at, anchor = (x, "middle") if x < right - 10 else (WIDTH - 1, "end")  # whole, at the edge too
        parts.append(_label(short_number(value), at, bottom + 16, anchor))
    parts.append(_label("agent steps", right, bottom + 32, "end"))
    parts.append(element("line", class_="axis", x1=str(_LEFT), x2=str(right), y1=str(bottom), y2=str(bottom)))
    return parts


def _label(text: str, x: float, y: float, anchor: str) -> Element:
    return element("text", text, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor)


def _line(frame: _Frame, line: Line, color: int) -> list[Element]:
    kept = thinned(line.x, line.y)
    x, y = line.x[kept], line.y[kept]
    parts = []
    if line.spread is not None:
        spread = line.spread[kept]
        around = [*_points(frame, x, y + spread), *reversed(_points(frame, x, y - spread))]
        parts.append(element("polygon", class_=f"band s{color}", points=" ".join(around)))
    points = _points(frame, x, y)
    parts.append(element("polyline", class_=f"line s{color}", points=" ".join(points)))
    kind = "mark" if len(points) > 1 else "dot"  # a line of one point is none
    if len(points) <= _MAX_MARKS:
        for point, step, value in zip(points, x, y, strict=True):
            cx, cy = point.split(",")
            told = element("title", f"{line.name}: {value:.4g} at {step:,.0f}")
            parts.append(element("circle", told, class_=f"{kind} s{color}", cx=cx, cy=cy, r="3"))
    return parts


def _points(frame: _Frame, x: Floats | Integers, y: Floats) -> list[str]:
    return [f"{frame.x(float(a)):.1f},{frame.y(float(b)):.1f}" for a, b in zip(x, y, strict=True)]
