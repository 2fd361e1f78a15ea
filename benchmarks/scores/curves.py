"""Curves of rows, and the numbers of their scores as text."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from scores.record import Score

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


def draw(path: Path, title: str, curves: Curves) -> bool:
    """Draws mean returns over agent steps, a line for each run whose curve was kept. Returns whether there is one."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    kept = [(label, style, [score for score in scores if score.curve]) for label, style, scores in curves]
    if not any(scores for _, _, scores in kept):
        return False
    figure, axes = pyplot.subplots(figsize=(6.5, 3.4), layout="constrained")
    for label, style, scores in kept:
        for score in scores:
            steps, returns = zip(*score.curve, strict=True)
            axes.plot(steps, returns, style, label=label if score is scores[0] else None, linewidth=1)
    axes.set(title=title, xlabel="agent steps", ylabel="mean return, as drawn")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=110, bbox_inches="tight")
    pyplot.close(figure)
    return True
