"""The picture of a comparison: averaged curves with intervals, over steps and over seconds."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainer_service.commands.common.curves import Band
from trainer_service.commands.compare.comparison import Comparison, GroupScore
from trainer_service.errors import UserError
from trainer_service.running.runs.files import SaveError
from unity_bridge.extras import install_hint
from unity_bridge.untrusted_text import harmless

_AXES = {"steps": "agent steps", "env_steps": "environment steps"}
FORMATS = (".png", ".svg", ".pdf")
_HELD = "\n(a run that has ended keeps its last value)"


def require_drawable(output: Path) -> None:
    """Raises UserError where a picture could not be drawn: matplotlib is missing, or the file's name ends otherwise."""
    if output.suffix.lower() not in FORMATS:
        raise UserError(f"--plot: expected a file that ends with {', '.join(FORMATS)}, got '{output}'")
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise UserError(
            f"--plot needs matplotlib ({error}): {install_hint('plot')}; --json has the curves without it"
        ) from None


def draw(comparison: Comparison, output: Path, *, title: str = "") -> None:
    """Writes the picture, a row for each behavior; its format follows the suffix of ``output``.

    A thick line is the interquartile mean of a group, a band its interval, a thin line one run. Over seconds a run that
    has ended keeps its last value, which a note below says. Size and fonts are matplotlib's own settings, where a
    ``matplotlibrc`` sets them.

    Raises:
        UserError: see ``require_drawable``.
        SaveError: the file cannot be written.
    """
    require_drawable(output)
    from matplotlib import rcParams, rcParamsDefault
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    rows = len(comparison.behaviors)
    size: Any = rcParams["figure.figsize"]
    if size == rcParamsDefault["figure.figsize"]:
        size = (9.0, 3.3 * rows + 0.3 * bool(title))
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    for row, (behavior, scores) in enumerate(comparison.behaviors.items()):
        by_step = figure.add_subplot(rows, 2, 2 * row + 1)
        by_second = figure.add_subplot(rows, 2, 2 * row + 2, sharey=by_step)
        for axes, x in ((by_step, "steps"), (by_second, "seconds")):
            _draw_groups(axes, scores, x, [group.name for group in comparison.groups])
            _dress(axes, comparison.threshold)
        by_step.xaxis.set_major_formatter(EngFormatter(sep=""))
        by_step.set(xlabel=_AXES[comparison.x], ylabel=_in_words(comparison.metrics[behavior]))
        by_step.set_title(_plain(behavior), loc="left", fontsize="medium")
        by_second.set(xlabel=f"seconds since the start of training{_HELD if _ends_differ(scores) else ''}")
        by_step.legend(frameon=False, fontsize="small")
    figure.suptitle(_plain(title))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # letters that the font lacks become boxes
        try:
            figure.savefig(output, dpi=130)
        except OSError as error:
            raise SaveError(output, error) from error


def _draw_groups(axes: Any, scores: Sequence[GroupScore], x: str, names: Sequence[str]) -> None:
    for score in scores:
        color = f"C{names.index(score.group) % 10}"
        averaged: Band = score.over_steps if x == "steps" else score.over_seconds
        several = len(score.runs) > 1
        label = f"{_plain(score.group)} ({len(score.runs)} runs)" if several else _plain(score.group)
        for run in score.runs if several else ():
            axes.plot(getattr(run.curve, x), run.curve.values, color=color, linewidth=0.6, alpha=0.4)
        axes.plot(averaged.x, averaged.iqm, color=color, label=label)
        axes.fill_between(averaged.x, averaged.low, averaged.high, color=color, alpha=0.2, linewidth=0)


def _ends_differ(scores: Sequence[GroupScore]) -> bool:
    """Whether some run ends before another one of its group, and so keeps its last value."""
    ends = [{float(run.curve.seconds[-1]) for run in score.runs} for score in scores]
    return any(len(own) > 1 for own in ends)


def _dress(axes: Any, threshold: float | None) -> None:
    if threshold is not None:
        axes.axhline(threshold, color="0.5", linewidth=0.8, linestyle="--")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlim(left=0)


def _in_words(metric: str) -> str:
    """The name of a metric for an axis: ``mean_return`` as "mean return"."""
    return _plain(metric.replace("_", " ").replace("/", ": "))


def _plain(text: str) -> str:
    """The text as matplotlib shows it as it is: a dollar sign would begin a formula."""
    return harmless(text).replace("$", r"\$")
