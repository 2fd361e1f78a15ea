"""What the pages of scores share: scores of a row, the commands behind them, and curves."""

from __future__ import annotations

import os
import platform
import shlex
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from marl.rows import Row

from measuring.scores import Score

Curves = Sequence[tuple[str, str, Sequence[Score]]]
"""The label, the style in matplotlib's words, and the scores of lines that look alike."""


def of_row(scores: Iterable[Score], name: str) -> list[Score]:
    """Those of a row, by seed."""
    return sorted((score for score in scores if score.row == name), key=lambda score: score.seed)


def listed(values: Iterable[float], digits: int) -> str:
    """Numbers with commas between them."""
    return ", ".join(f"{value:.{digits}f}" for value in values)


def mean(values: Sequence[float], digits: int) -> str:
    """Their mean, and the deviation of several; empty without any."""
    if not values:
        return ""
    spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{spread}"


def commands(rows: Iterable[Row], scores: Iterable[Score]) -> str:
    """What a reader types for one seed of each row that was run."""
    there = {score.row for score in scores}
    lines = [
        each for row in rows if row.name in there for each in (row.learn(row.name, 1), row.evaluate(row.name))
    ]
    return "\n".join(f"mlagents-style {shlex.join(line)}" for line in lines)


def machine() -> str:
    """Where this ran."""
    return f"{os.cpu_count()} cores, Python {platform.python_version()}"


def draw(path: Path, title: str, curves: Curves) -> bool:
    """Draws mean returns over agent steps, a line for each run. Returns whether there is a picture.

    One that has all curves stays where not every one was kept.
    """
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    if not all(score.curve for _, _, scores in curves for score in scores):
        return path.exists()
    figure, axes = pyplot.subplots(figsize=(6.5, 3.4), layout="constrained")
    for label, style, scores in curves:
        for score in scores:
            steps, returns = zip(*score.curve, strict=True)
            axes.plot(steps, returns, style, label=label if score is scores[0] else None, linewidth=1)
    axes.set(title=title, xlabel="agent steps", ylabel="mean return, as drawn")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=110, bbox_inches="tight")
    pyplot.close(figure)
    return True
