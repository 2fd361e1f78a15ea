"""Curves of mean returns during a run, as HTML for the output of a notebook's cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.etree.ElementTree import tostring

import numpy as np

from trainer_service.commands.report.elements import element
from trainer_service.commands.report.line_chart import Line, line_chart

_CLASS = "trainer-service-curve"
_COLORS = ("#2b7de9", "#d9480f", "#0f8a5f", "#9333ea", "#b7791f", "#c2255c", "#0c8599", "#6b7785")
"""One for each class of lines; legible on a light and on a dark page."""

_RULES = (
    "{ max-width: 36rem; } ",
    "p { margin: .4rem 0 0; font: 13px sans-serif; } ",
    "figure { margin: 0; } ",
    "svg { display: block; width: 100%; } ",
    "svg text { font: 12px sans-serif; fill: #7a8594; } ",
    ".grid, .C .axis { stroke: #7a8594; stroke-opacity: .35; } ",
    ".line { fill: none; stroke: currentColor; stroke-width: 1.8; } ",
    ".dot, .C .mark { fill: currentColor; } ",
    ".mark { opacity: 0; } ",
    ".mark:hover { opacity: 1; } ",
    "figcaption span { margin-right: 1rem; font: 13px sans-serif; } ",
    "figcaption i { display: inline-block; width: 1em; height: .2em; margin-right: .4em; background: currentColor; } ",
    *(f".s{i} {{ color: {color}; }} " for i, color in enumerate(_COLORS)),
)
"""Rules below the element of the class, and nowhere else on the page."""

_STYLE = "".join(f".C {rule}" for rule in _RULES).replace(".C", f".{_CLASS}")


def live_curve(returns: Mapping[str, Sequence[tuple[int, float]]]) -> str:
    """The curves of mean returns over agent steps as HTML, without a script; empty without points.

    returns: steps and mean returns of each behavior's summaries, in order.
    """
    lines = [
        Line(behavior, np.array([step for step, _ in points]), np.array([mean for _, mean in points]))
        for behavior, points in returns.items()
        if points
    ]
    if not lines:
        return ""
    chart = line_chart(lines, "mean return over agent steps")
    whole = element("div", element("style", _STYLE), element("p", "Mean return"), chart, class_=_CLASS)
    return tostring(whole, encoding="unicode", method="html")
