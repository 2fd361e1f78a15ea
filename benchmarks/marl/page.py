"""The page of the scores: a table, the commands behind it, and curves."""

from __future__ import annotations

import importlib.util
import os
import platform
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from marl.opponents import Encounter, tables
from marl.rows import ROWS
from marl.scores import Score


def require_matplotlib() -> None:
    """Leaves the program where curves could not be drawn: better now than after hours of training."""
    if importlib.util.find_spec("matplotlib") is None:
        sys.exit('curves are drawn with matplotlib, which is not installed: pip install -e ".[plot]"')


def write_page(checkout: Path, scores: Sequence[Score], encounters: Sequence[Encounter]) -> None:
    """Writes docs/results/marl.md with its pictures, and docs/results/opponents.md."""
    notes, results = checkout / "benchmarks" / "marl", checkout / "docs" / "results"
    pictures = draw(scores, checkout / "docs" / "images")
    shown = "\n".join(f"![{task}](../images/{path.name})\n" for task, path in pictures)
    text = (notes / "notes.md").read_text(encoding="utf-8")
    text = text.format(
        table=table(scores),
        commands=commands(scores),
        curves=shown,
        machine=machine(),
        spread_episodes=f"{ROWS[0].episodes:,}",
    )
    (results / "marl.md").write_text(text, encoding="utf-8")
    text = (notes / "opponents.md").read_text(encoding="utf-8")
    (results / "opponents.md").write_text(text.format(opponents=tables(encounters)), encoding="utf-8")


def table(scores: Iterable[Score]) -> str:
    """A line for each row that was run."""
    lines = [
        "| configuration | scored on | agent steps | seeds | mean ± deviation | asked for | EPyMARL's "
        "| minutes of training |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    scores = list(scores)
    for row in ROWS:
        own = sorted((score for score in scores if score.row == row.name), key=lambda score: score.seed)
        if not own:
            continue
        values = [score.value for score in own]
        spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
        bar = "" if row.bar is None else f"{row.bar:g}"
        published = "" if row.published is None else f"{row.published:.2f}"
        each = ", ".join(f"{value:.2f}" for value in values)
        minutes = ", ".join(f"{score.seconds / 60:.1f}" for score in own)
        lines.append(
            f"| `{row.config_name}` | {row.task}, {row.unit} | {own[0].agent_steps / 1e6:.2g} M | {each} "
            f"| {statistics.mean(values):.2f}{spread} | {bar} | {published} | {minutes} |"
        )
    return "\n".join(lines)


def commands(scores: Iterable[Score]) -> str:
    """What a reader types for one seed of each row."""
    there = {score.row for score in scores}
    lines = []
    for row in ROWS:
        if row.name in there:
            lines += [f"mlagents-style {' '.join(row.learn(row.name, 1))}"]
            lines += [f"mlagents-style {' '.join(row.evaluate(row.name))}"]
    return "\n".join(lines)


def machine() -> str:
    """Where this ran."""
    return f"{os.cpu_count()} cores, Python {platform.python_version()}"


def draw(scores: Sequence[Score], images: Path) -> list[tuple[str, Path]]:
    """Mean return over agent steps while they learned: a picture or two for each task, a line for each run."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    made = []
    for task, picture in dict.fromkeys((row.task, row.picture) for row in ROWS):
        rows = [row for row in ROWS if (row.task, row.picture) == (task, picture)]
        runs = [(row, score) for row in rows for score in scores if score.row == row.name]
        if not runs:
            continue
        title = f"{task}, {picture}" if picture else task
        path = images / f"marl-{title.replace(' ', '-').replace(',', '')}.png"
        if not all(score.curve for _, score in runs):
            # Not every curve was kept: a picture that has them stays.
            made += [(title, path)] if path.exists() else []
            continue
        figure, axes = pyplot.subplots(figsize=(6.5, 3.4), layout="constrained")
        for row, score in runs:
            steps, returns = zip(*score.curve, strict=True)
            first = score.seed == min(each.seed for own, each in runs if own is row)
            axes.plot(
                steps, returns, color=f"C{rows.index(row)}", label=row.name if first else None, linewidth=1
            )
        axes.set(title=task.removesuffix(", drawn"), xlabel="agent steps", ylabel="mean return, as drawn")
        axes.legend(frameon=False)
        figure.savefig(path, dpi=110, bbox_inches="tight")
        pyplot.close(figure)
        made.append((title, path))
    return made
