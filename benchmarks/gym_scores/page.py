"""The page of the scores on Gymnasium: a table, the commands behind it, and curves."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from marl.page import machine
from marl.scores import Score

from gym_scores.rows import ROWS


def write_page(checkout: Path, scores: Sequence[Score]) -> None:
    """Writes docs/results/gym.md and its pictures."""
    notes = (checkout / "benchmarks" / "gym_scores" / "notes.md").read_text(encoding="utf-8")
    pictures = draw(scores, checkout / "docs" / "images")
    shown = "\n".join(f"![{path.stem}](../images/{path.name})\n" for path in pictures)
    text = notes.format(
        table=table(scores),
        commands=commands(scores),
        curves=shown,
        machine=machine(),
        episodes=ROWS[0].episodes,
    )
    (checkout / "docs" / "results" / "gym.md").write_text(text, encoding="utf-8")


def table(scores: Sequence[Score]) -> str:
    """A line for each row that was run."""
    lines = [
        "| configuration | environment | agent steps | seeds | mean ± deviation | Stable-Baselines3 here | published "
        "| minutes of training | of SB3 |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in ROWS:
        own, theirs = _of(scores, row.name), _of(scores, row.peer)
        if not own and not theirs:
            continue
        values = [score.value for score in own]
        steps = (own or theirs)[0].agent_steps / 1e6
        lines.append(
            f"| `{row.name}` | {row.task}, {row.learner} | {steps:.2g} M | {_listed(values)} | {_mean(values)} "
            f"| {_listed([score.value for score in theirs])} | {row.published:.0f} ({row.published_for}) "
            f"| {_minutes(own)} | {_minutes(theirs)} |"
        )
    return "\n".join(lines)


def commands(scores: Sequence[Score]) -> str:
    """What a reader types for one seed of each row."""
    lines = []
    for row in ROWS:
        if _of(scores, row.name):
            lines += [f"mlagents-style {' '.join(row.learn(row.name, 1))}"]
            lines += [f"mlagents-style {' '.join(row.evaluate(row.name))}"]
    return "\n".join(lines)


def draw(scores: Sequence[Score], images: Path) -> list[Path]:
    """Mean return over agent steps while they learned: a picture for each environment, a line for each run.

    The peer's are dotted, where they were kept.
    """
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    made = []
    for task in dict.fromkeys(row.task for row in ROWS):
        rows = [row for row in ROWS if row.task == task]
        own = {row: _of(scores, row.name) for row in rows}
        path = images / f"gym-{task.lower()}.png"
        runs = [score for each in own.values() for score in each]
        if not runs:
            continue
        if not all(score.curve for score in runs):
            made += [path] if path.exists() else []  # not every curve was kept: a picture that has them stays
            continue
        figure, axes = pyplot.subplots(figsize=(6.5, 3.4), layout="constrained")
        for i, row in enumerate(rows):
            theirs = [score for score in _of(scores, row.peer) if score.curve]
            for label, lines, style in ((row.learner, own[row], "-"), (f"{row.learner} of SB3", theirs, ":")):
                for score in lines:
                    steps, returns = zip(*score.curve, strict=True)
                    shown = label if score is lines[0] else None
                    axes.plot(steps, returns, style, color=f"C{i}", label=shown, linewidth=1)
        axes.set(title=task, xlabel="agent steps", ylabel="mean return, as drawn")
        axes.legend(frameon=False)
        figure.savefig(path, dpi=110, bbox_inches="tight")
        pyplot.close(figure)
        made.append(path)
    return made


def _of(scores: Sequence[Score], name: str) -> list[Score]:
    return sorted((score for score in scores if score.row == name), key=lambda score: score.seed)


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.0f}" for value in values)


def _mean(values: Sequence[float]) -> str:
    if not values:
        return ""
    spread = f" ± {statistics.stdev(values):.0f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.0f}{spread}"


def _minutes(scores: Sequence[Score]) -> str:
    return ", ".join(f"{score.seconds / 60:.0f}" for score in scores)
