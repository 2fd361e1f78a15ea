"""Draws the mean return of one behavior over agent steps and over seconds, a line for each run.

    python tools/plot_learning_curves.py results/ball-1 results/ball-2 --output docs/images/3dball.png

Reads the runs' metrics.jsonl, so it works while they train. Needs matplotlib, which the dev extra brings.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Curve:
    """One behavior of one run, at every summary in which an episode ended."""

    run: str
    steps: tuple[int, ...]
    seconds: tuple[float, ...]
    """Since the start of the run, the time between an interruption and its resumption left out."""
    returns: tuple[float, ...]


class NoCurveError(Exception):
    """A folder without anything to draw. The text says what was looked for."""


def read_curve(run: Path, behavior: str | None = None) -> Curve:
    """The curve of ``behavior``, or of the only one there is.

    Raises:
        NoCurveError: no metrics, no such behavior, several to choose from, or no episode that ended.
    """
    path = run / "metrics.jsonl"
    if not path.is_file():
        raise NoCurveError(f"{path} does not exist; expected the folder of a run")
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    names = list(dict.fromkeys(line["behavior"] for line in lines))
    if behavior is None and len(names) != 1:
        raise NoCurveError(f"{path} holds {len(names)} behaviors ({', '.join(names)}); name one: --behavior")
    own = [line for line in lines if line["behavior"] == (behavior or names[0])]
    seconds = _without_restarts([line["wall_s"] for line in own])
    ended = [(line, at) for line, at in zip(own, seconds, strict=True) if line["mean_return"] is not None]
    if not ended:
        raise NoCurveError(f"{path} tells of no episode of '{behavior or names[0]}' that ended")
    return Curve(
        run=run.name,
        steps=tuple(line["step"] for line, _ in ended),
        seconds=tuple(at for _, at in ended),
        returns=tuple(line["mean_return"] for line, _ in ended),
    )


def _without_restarts(wall_s: Sequence[float]) -> list[float]:
    """A clock that starts at zero in every process, as one that goes on."""
    seconds: list[float] = []
    before = past = 0.0
    for now in wall_s:
        if now < before:
            past += before
        before = now
        seconds.append(past + now)
    return seconds


def draw(curves: Sequence[Curve], output: Path, *, title: str = "") -> None:
    """Writes the picture; its format follows the suffix of ``output``."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, (by_step, by_second) = pyplot.subplots(
        1, 2, figsize=(9.0, 3.4), sharey=True, layout="constrained"
    )
    for curve in curves:
        by_step.plot([step / 1000 for step in curve.steps], curve.returns, marker=".", label=curve.run)
        by_second.plot(curve.seconds, curve.returns, marker=".", label=curve.run)
    by_step.set(xlabel="agent steps, thousands", ylabel="mean return while training")
    by_second.set(xlabel="seconds since the start of training")
    for axes in (by_step, by_second):
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xlim(left=0)
    by_second.legend(frameon=False)
    figure.suptitle(title)
    figure.savefig(output, dpi=130)
    pyplot.close(figure)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Mean return over steps and over seconds, a line per run.")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folders of runs, results/RUN_ID")
    parser.add_argument("--behavior", metavar="NAME", help="which one, where the runs have several")
    parser.add_argument("--output", type=Path, default=Path("learning_curves.png"), metavar="FILE")
    parser.add_argument("--title", default="")
    arguments = parser.parse_args(argv)
    try:
        curves = [read_curve(run, arguments.behavior) for run in arguments.runs]
    except NoCurveError as error:
        parser.error(str(error))
    draw(curves, arguments.output, title=arguments.title)
    print(f"{len(curves)} curves in {arguments.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
